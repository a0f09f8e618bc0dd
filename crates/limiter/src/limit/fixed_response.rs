//! A response that an operator wrote down: status, fields, body.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};

/// A fixed response, given as often as needed.
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
