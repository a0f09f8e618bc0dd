//! The file below applications.

use std::sync::Arc;

use super::owned_routes::OwnedRoutes;
use crate::section::defaults::LimitDefaults;
use crate::section::root::CheckedFile;

/// The file below applications, on a node.
pub struct Base<'a> {
    pub file: &'a CheckedFile,
    pub limit_defaults: &'a LimitDefaults,
    pub owned: OwnedRoutes<'a>,
    /// The name of the node. `None`: any.
    pub node: Option<&'a Arc<str>>,
}
