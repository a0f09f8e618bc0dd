//! Upgrades: connections that leave HTTP for WebSocket and other protocols (RFC 9110 §7.8).
//!
//! Guarantees that both sides have agreed before their connections are joined, and that no client
//! is offered HTTP itself: requests inside such a tunnel would evade routes and limits.

use std::time::Duration;

use http::{HeaderValue, Request};

use super::tunnel::{self, TunnelEnd};
use tollgate_wire::body::Body;
use tollgate_wire::http::h1::upgrade::{OnUpgrade, Upgraded};

/// A client's request to leave HTTP for another protocol.
pub struct UpgradeRequest {
    client: OnUpgrade,
    protocol: HeaderValue,
}

impl UpgradeRequest {
    /// Takes the upgrade out of a request that announced this `Upgrade`. `None`: the request goes
    /// on as an ordinary one, since it asks for HTTP or its connection cannot leave HTTP.
    pub fn take(request: &mut Request<Body>, protocol: HeaderValue) -> Option<Self> {
        if names_http(&protocol) {
            return None;
        }
        let client = request.extensions_mut().remove()?;
        Some(Self { client, protocol })
    }

    pub fn protocol(&self) -> &HeaderValue {
        &self.protocol
    }

    /// Joins both connections once the client has its 101, until the tunnel was `idle` for so long.
    /// `guard` is dropped when the tunnel closes. An observer can be set on the result.
    pub fn join(self, upstream: Upgraded, idle: Duration, guard: impl Send + 'static) -> TunnelEnd {
        let end = TunnelEnd::default();
        let observed = end.clone();
        tokio::spawn(async move {
            match self.client.upgraded().await {
                Some(client) => tunnel::run(client, upstream, idle, observed).await,
                None => tracing::debug!("an upgrade came to nothing"),
            }
            drop(guard);
        });
        end
    }
}

/// Whether `protocol` lists HTTP/2 in clear text or another version of HTTP.
fn names_http(protocol: &HeaderValue) -> bool {
    protocol
        .as_bytes()
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|name| {
            name.eq_ignore_ascii_case(b"h2c")
                || name
                    .get(..4)
                    .is_some_and(|start| start.eq_ignore_ascii_case(b"http"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_never_the_new_protocol() {
        for refused in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "http/3"] {
            assert!(names_http(&HeaderValue::from_static(refused)), "{refused}");
        }
        assert!(!names_http(&HeaderValue::from_static("websocket")));
    }
}
