//! When a request is sent a second time. The whole law, in one place:
//!
//! - No connection could be opened: nothing was sent, so the next endpoint is tried, each at most once and
//!   [`MAX_ENDPOINTS`] in all.
//! - The connection broke and the request came back unsent: once more, over a new connection.
//! - A connection that had been used before broke before it answered: the server may have closed it for idleness just
//!   as the request set out. Once more over a new connection, if the request is idempotent (RFC 9110 §9.2.2), has no
//!   body, and the upstream's budget bears it.
//! - Nothing else is ever sent twice.

use std::error::Error;

use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::body::Upload;
use crate::body::BodyFailure;
use crate::error::Failure;
use crate::upstream::Upstream;

/// Endpoints one request goes to at most: each may cost a whole connect timeout.
pub const MAX_ENDPOINTS: usize = 3;

/// Bytes that the packed fields of most requests fit into.
const TYPICAL_FIELDS: usize = 1024;

/// An exchange that failed before there was a response.
pub struct Failed {
    pub failure: Failure,
    pub permission: Permission,
}

/// What may be done about it.
pub enum Permission {
    /// The request never left.
    Unsent(Box<Request<Upload>>),
    /// The connection may have been closed before the request came.
    Stale,
    Never,
}

impl Failed {
    /// `unsent`: the request, if none of it was sent. `used`: the connection had carried another exchange before.
    pub fn new(error: &hyper::Error, unsent: Option<Request<Upload>>, used: bool) -> Self {
        let failure = explain(error);
        let permission = match unsent {
            Some(request) => Permission::Unsent(Box::new(request)),
            None if used && failure == Failure::UpstreamClosed => Permission::Stale,
            None => Permission::Never,
        };
        Self { failure, permission }
    }
}

/// Whose fault it was: the request body's, which says so itself, or the upstream's.
fn explain(error: &hyper::Error) -> Failure {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<BodyFailure>()) {
        Some(BodyFailure::Timeout) => Failure::RequestTimeout,
        Some(BodyFailure::TooLarge) => Failure::BodyTooLarge,
        Some(BodyFailure::Malformed) => Failure::BadRequest("the request body is malformed"),
        None if error.is_user() => Failure::BadRequest("the request body broke off"),
        None if error.is_parse() || error.is_parse_too_large() => Failure::UpstreamInvalid,
        None => Failure::UpstreamClosed,
    }
}

/// The one retry a request has.
#[derive(Default)]
pub struct Retry {
    copy: Option<Packed>,
    spent: bool,
}

/// A copy of a request without a body. Its fields are one allocation, names and values behind both lengths: nearly
/// no copy is ever needed, and a clone of the map costs several times as much.
struct Packed {
    method: Method,
    uri: Uri,
    version: Version,
    fields: Vec<u8>,
}

impl Retry {
    /// The request goes out for the second time, which takes a new connection.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Keeps a copy of what may have to be sent again. Only needed before a used connection: a new one is never stale.
    /// A copy of twelve fields takes a quarter of a microsecond, about a hundredth of what a forwarded request costs.
    pub fn remember(&mut self, request: &Request<Upload>) {
        if !self.spent && is_replayable(request) {
            self.copy = Some(Packed::new(request));
        }
    }

    /// The request to send again, over a new connection; or what to tell the client.
    pub fn decide(&mut self, failed: Failed, upstream: &Upstream) -> Result<Request<Upload>, Failure> {
        let spent = std::mem::replace(&mut self.spent, true);
        let again = match failed.permission {
            _ if spent => None,
            Permission::Unsent(request) => Some(*request),
            Permission::Stale => self.copy.take().and_then(Packed::unpack).filter(|_| upstream.budget().withdraw()),
            Permission::Never => None,
        };
        again.inspect(|_| upstream.meters().retried()).ok_or(failed.failure)
    }
}

fn is_replayable(request: &Request<Upload>) -> bool {
    let idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    idempotent && request.body().progress().is_none()
}

impl Packed {
    fn new(request: &Request<Upload>) -> Self {
        let mut fields = Vec::with_capacity(TYPICAL_FIELDS);
        for (name, value) in request.headers() {
            let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
            let lengths = [name.len().to_ne_bytes(), value.len().to_ne_bytes()];
            fields.extend_from_slice(lengths.as_flattened());
            fields.extend_from_slice(name);
            fields.extend_from_slice(value);
        }
        Self { method: request.method().clone(), uri: request.uri().clone(), version: request.version(), fields }
    }

    fn unpack(self) -> Option<Request<Upload>> {
        let mut request = Request::new(Upload::empty());
        let mut rest = &*self.fields;
        while !rest.is_empty() {
            let (name_length, behind) = split_length(rest)?;
            let (value_length, behind) = split_length(behind)?;
            let (name, behind) = behind.split_at_checked(name_length)?;
            let (value, behind) = behind.split_at_checked(value_length)?;
            request.headers_mut().append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
            rest = behind;
        }
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        Some(request)
    }
}

fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((usize::from_ne_bytes(*length), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_request_comes_out_as_it_went_in() {
        let request = Request::put("http://a.example/x?y=%2F")
            .header("host", "a.example")
            .header("cookie", "a=1")
            .header("x-own", "")
            .header("cookie", "b=2")
            .header("x-bytes", &b"caf\xc3\xa9"[..])
            .body(Upload::empty())
            .unwrap();
        let again = Packed::new(&request).unpack().unwrap();
        assert_eq!((again.method(), again.uri()), (request.method(), request.uri()));
        assert_eq!((again.version(), again.headers()), (request.version(), request.headers()));
    }
}
