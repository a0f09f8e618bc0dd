//! The code that answers requests, as the server sees it.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use http::{Request, Response};

use super::connection_info::ConnectionInfo;
use crate::body::Body;
use crate::error::Failure;
use crate::http::interim::InterimSlot;

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request. Dropped when the client goes away. Interim responses that it leaves in `interim` are sent
    /// before its answer.
    fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        interim: &InterimSlot,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Whether `peer` is a proxy that stands for many clients: bounds on each client are not for it.
    fn is_trusted(&self, _peer: IpAddr) -> bool {
        false
    }

    /// Answers in place of a request that could not be read, in its turn among pipelined requests. The connection
    /// closes after that.
    fn refuse(&self, connection: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body>;
}
