//! A warning of a proxy that `trusted_proxies` lacks: to limits that count by the client's address,
//! all of its clients are one.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;
use http::header::FORWARDED;
use tollgate_limiter::limit::client_address::X_FORWARDED_FOR;
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::denial::Denial;

use crate::exchange::Exchange;

/// The warning, given once for each configuration.
#[derive(Debug, Default)]
pub struct UnnamedProxyWarning {
    is_given: AtomicBool,
}

impl UnnamedProxyWarning {
    /// Warns where a limit by the client's address has denied what a proxy seems to have sent.
    #[cold]
    pub fn consider(&self, exchange: &Exchange<'_>, denial: &Denial, limits: &Catalog) {
        let origin = &exchange.context.origin;
        if origin.peer_trusted || self.is_given.load(Relaxed) {
            return;
        }
        let Some(field) = forwarding_field(exchange.request.headers()) else {
            return;
        };
        let Some(limit) = denial.limit() else { return };
        if !counts_by_address(limits, limit) || self.is_given.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            peer = %origin.peer,
            %limit,
            "a limit by client_ip has denied a request with {field} from a peer that is none of trusted_proxies: \
             if it is a proxy of yours, all of its clients share one bucket until trusted_proxies names it"
        );
    }
}

/// The field in which a proxy says for whom it asks. Names are compared one by one: a request has
/// few, and each hash of one would cost more.
pub fn forwarding_field(headers: &HeaderMap) -> Option<&'static str> {
    for name in headers.keys() {
        if *name == X_FORWARDED_FOR {
            return Some("X-Forwarded-For");
        }
        if *name == FORWARDED {
            return Some("Forwarded");
        }
    }
    None
}

fn counts_by_address(limits: &Catalog, name: &str) -> bool {
    let Some(entry) = limits.find(name) else {
        return false;
    };
    let mut parts = entry.limit().key.parts.iter();
    parts.any(|part| matches!(part, KeyPart::ClientIp { .. }))
}
