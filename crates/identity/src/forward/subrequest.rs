//! The question about a request: a GET without its body, with where it comes from and what it asks
//! for.
//!
//! Guarantees that the service learns of a request what the gateway saw, whatever the client
//! claims.

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::spec::ForwardSpec;
use crate::source::CredentialSource;
use tollgate_proxy::message::headers;
use tollgate_wire::body::Body;
use tollgate_wire::fields;
use tollgate_wire::http::syntax;

pub const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
pub const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Fields of a connection, of a body, and those that ask for a part of an answer or none: the
/// service has an answer of its own.
const LEFT_OUT: [HeaderName; 14] = [
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    EXPECT,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields by which some services, Authelia and oauth2-proxy among them, learn of the request,
/// before or beside those that are set here.
fn is_original(name: &HeaderName) -> bool {
    let undisguised = syntax::undisguised(name.as_str());
    let name = undisguised.as_deref().unwrap_or(name.as_str());
    name.starts_with("x-original-") || matches!(name, "x-rewrite-url" | "x-auth-request-redirect")
}

/// The question about a request. `None`: its target or its host cannot be said in a field.
pub fn subrequest(spec: &ForwardSpec, source: &CredentialSource<'_>) -> Option<Request<Body>> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::from(spec.path.clone());
    let target = source
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let fields = request.headers_mut();
    *fields = match &spec.request_headers {
        None => all(source.headers),
        Some(names) => selected(source.headers, names),
    };
    headers::strip_claims(fields, source.exchange.origin.peer_trusted);
    fields::remove(fields, is_original);
    if let Some(authority) = source.uri.authority() {
        // An authority takes precedence over Host (RFC 9112 §3.2.2).
        let text = authority.as_str();
        let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
        fields.insert(HOST, HeaderValue::from_str(host).ok()?);
    }
    fields.insert(
        X_FORWARDED_METHOD,
        HeaderValue::from_str(source.exchange.method.as_str()).ok()?,
    );
    fields.insert(X_FORWARDED_URI, HeaderValue::from_str(target).ok()?);
    Some(request)
}

fn all(fields: &HeaderMap) -> HeaderMap {
    let mut fields = fields.clone();
    headers::settle_connection(&mut fields);
    for name in &LEFT_OUT {
        fields.remove(name);
    }
    fields
}

/// The fields with these `names`. The host and what a trusted proxy says of the origin are always
/// among them.
fn selected(fields: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut settled = fields.clone();
    headers::settle_connection(&mut settled);
    let mut fields = HeaderMap::new();
    for (name, value) in &settled {
        let is_selected = *name == HOST
            || *name == FORWARDED
            || headers::is_claim(name.as_str())
            || names.contains(name);
        if is_selected && !LEFT_OUT.contains(name) {
            fields.append(name, value.clone());
        }
    }
    fields
}
