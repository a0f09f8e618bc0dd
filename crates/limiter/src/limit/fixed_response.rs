//! A response that an operator wrote down: status, fields, body.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};

/// A fixed response, given as often as needed.
///
/// ```
/// use http::StatusCode;
/// use tollgate_limiter::limit::fixed_response::FixedResponse;
/// use tollgate_limiter::limit::on_limit::OnLimit;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let later = FixedResponse { status: StatusCode::SERVICE_UNAVAILABLE, headers: vec![], body: "later".into() };
/// let limit = Limit::per_second("per-client", 10).key(client_ip()).on_limit(OnLimit::Answer(later.into()));
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

impl FixedResponse {
    /// The response, for one more request. Its body is shared, not copied.
    pub fn response<B: From<Bytes>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(self.body.clone()));
        *response.status_mut() = self.status;
        for (name, value) in &self.headers {
            response.headers_mut().append(name, value.clone());
        }
        response
    }
}
