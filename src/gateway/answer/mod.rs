//! The changes that layers make to an answer, whoever it comes from. It is done once the chain has
//! ended, so it reaches the gateway's own failures too: `rendered` has the fields of the route,
//! `cors` those for pages of other origins, `compression` a content coding, `error_page` the
//! content of an error, in which `page_syntax` keeps text from being anything else.

pub mod compression;
pub mod cors;
pub mod error_page;
mod page_syntax;
pub mod rendered;

use http::Response;
use tollgate_limiter::request::headers::RateLimitFields;
use tollgate_limiter::request::permit::Permit;

use self::compression::AcceptedCoding;
use self::cors::CorsFields;
use self::error_page::AcceptedPages;
use self::rendered::RenderedFields;
use crate::body::Body;

/// The changes that layers make to an answer. Boxed, where few routes have them.
#[derive(Default)]
pub struct AnswerChanges {
    pub pages: Option<Box<AcceptedPages>>,
    pub limits: RateLimitFields,
    /// The changes that the route makes.
    pub changed: Option<Box<RenderedFields>>,
    pub coding: Option<Box<AcceptedCoding>>,
    pub cors: Option<Box<CorsFields>>,
}

impl AnswerChanges {
    /// Makes the changes. The fields of the limits come first, so that a route may take them away.
    /// The coding follows the route's own fields, which say what the content is. Those of CORS are
    /// last: they are not the route's to change.
    ///
    /// `permit` settles by what the response said before.
    #[inline]
    pub fn apply(self, response: &mut Response<Body>, permit: &mut Permit) {
        self.limits.apply(response.headers_mut());
        if let Some(changed) = self.changed {
            changed.apply(response.headers_mut());
        }
        if let Some(coding) = self.coding {
            coding.apply(response, permit);
        }
        if let Some(cors) = self.cors {
            cors.apply(response.headers_mut());
        }
    }
}
