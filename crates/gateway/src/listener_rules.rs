//! The rules of a listener, which hold before any route: requests belong on the connection they
//! came on, and came by HTTPS where only that is served.

use http::{HeaderValue, Method, Request, Version};
use tollgate_limiter::limit::key::host;

use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_server::ConnectionInfo;
use tollgate_spec::route::networks::NetworkRules;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

/// The rules of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerRules {
    /// The port of HTTPS that clients are sent to.
    pub redirect_to_https: Option<u16>,
    /// The `Strict-Transport-Security` of answers.
    pub hsts: Option<HeaderValue>,
    /// The networks of clients that it takes. Requests meet them in the pipeline.
    pub networks: NetworkRules,
}

impl ListenerRules {
    /// Whether the request goes on.
    ///
    /// # Errors
    /// When it belongs on another connection, or is served by HTTPS only.
    pub fn check(
        &self,
        connection: &ConnectionInfo,
        origin: &ClientOrigin,
        request: &Request<Body>,
    ) -> Result<(), Failure> {
        if let Some(session) = &connection.tls {
            let host = host::find(request.uri(), request.headers());
            let shared = request.version() == Version::HTTP_2;
            if session.is_misdirected(&host, shared) {
                return Err(Failure::Misdirected);
            }
            return Ok(());
        }
        match self.redirect_to_https {
            Some(port) if origin.forwarded_scheme(request.headers()) != "https" => {
                Err(redirect(request, port))
            }
            _ => Ok(()),
        }
    }
}

/// Sends the client to the same host, path and query by HTTPS. The host is one that was checked
/// when the request was read.
fn redirect(request: &Request<Body>, port: u16) -> Failure {
    let host = host::find(request.uri(), request.headers());
    if host.is_empty() {
        return Failure::BadRequest("a request without a host cannot be sent to HTTPS");
    }
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str());
    // `OPTIONS *` asks about the server as a whole.
    let target = if target == "*" { "/" } else { target };
    let port = if port == 443 {
        String::new()
    } else {
        format!(":{port}")
    };
    match HeaderValue::try_from(format!("https://{host}{port}{target}")) {
        Ok(location) => Failure::ServedByHttps {
            location,
            safe_method: is_safe(request.method()),
        },
        Err(_) => Failure::BadRequest("the target has a character that cannot be sent back"),
    }
}

fn is_safe(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
