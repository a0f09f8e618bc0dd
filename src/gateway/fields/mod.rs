//! The fields that layers add to an answer, whoever it comes from.

pub mod cors;
pub mod rendered;

use http::HeaderMap;
use tollgate_limiter::request::headers::RateLimitFields;

use self::cors::CorsFields;
use self::rendered::RenderedFields;

/// The fields that layers add to an answer, whoever it comes from. Boxed, where few routes have them.
#[derive(Default)]
pub struct AnswerFields {
    pub limits: RateLimitFields,
    /// The changes that the route makes.
    pub changed: Option<Box<RenderedFields>>,
    pub cors: Option<Box<CorsFields>>,
}

impl AnswerFields {
    /// Puts them into the answer: those of the limits first, so that a route may take them away, and those of CORS last, which
    /// are not the route's to change.
    #[inline]
    pub fn apply(self, headers: &mut HeaderMap) {
        self.limits.apply(headers);
        if let Some(changed) = self.changed {
            changed.apply(headers);
        }
        if let Some(cors) = self.cors {
            cors.apply(headers);
        }
    }
}
