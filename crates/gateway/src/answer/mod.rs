//! The changes of an answer, whoever it comes from: `error_page` has the content of an error, in
//! which `page_syntax` keeps text from being anything else, `rendered` the fields of the route,
//! `compression` a content coding, and `cors` the fields for pages of other origins.

pub mod compression;
pub mod cors;
pub mod error_page;
mod page_syntax;
pub mod rendered;

use std::sync::Arc;

use tollgate_limiter::request::headers::RateLimitFields;

use self::compression::AcceptedCoding;
use self::cors::CorsFields;
use self::error_page::AcceptedPages;
use self::rendered::RenderedFields;

/// The changes of one answer, prepared from its request. Boxed, where few routes have them.
#[derive(Default)]
pub struct AnswerChanges {
    pub pages: Option<Box<AcceptedPages>>,
    pub limits: RateLimitFields,
    /// The fields of the route.
    pub fields: Option<Box<RenderedFields>>,
    pub coding: Option<Box<AcceptedCoding>>,
    pub cors: Option<Arc<CorsFields>>,
}
