//! The ports of this process that no endpoint may be: those of its admin server.
//!
//! Guarantees that no answer of DNS can lead clients of a listener to them. The admin server
//! believes that a request from this machine is its operator's.

use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::upstream::health::micros;
use tollgate_limiter::clock;
use tollgate_wire::transport::address::{canonical, is_loopback, is_of_a_server, is_wildcard};

/// The addresses that they listen on.
static OWN: OnceLock<Box<[SocketAddr]>> = OnceLock::new();

/// When the log has last said that one was left out, in microseconds of the monotonic clock. 0:
/// never.
static LOGGED: AtomicU64 = AtomicU64::new(0);

/// How often the log says it: a name may be looked up ten times a second.
const LOGS_AGAIN: Duration = Duration::from_secs(60);

/// Says where they are, once.
pub fn keep_out(addresses: impl IntoIterator<Item = SocketAddr>) {
    drop(OWN.set(addresses.into_iter().collect()));
}

/// The canonical form of an address that an answer of DNS has. `None`: no server can have it, or it
/// leads to a port of this process.
pub fn server_address(address: SocketAddr) -> Option<SocketAddr> {
    let address = canonical(address);
    if is_of_a_server(address.ip()) && !is_kept_out(address) {
        Some(address)
    } else {
        None
    }
}

/// Whether `address` leads to one of them. The log says so.
fn is_kept_out(address: SocketAddr) -> bool {
    let is_own = OWN
        .get()
        .is_some_and(|own| own.iter().any(|own| leads_to(address, *own)));
    if is_own && is_time_to_log() {
        tracing::warn!(%address, "an answer of DNS names the admin server of this process: that is no endpoint");
    }
    is_own
}

/// Whether who connects to `address` reaches a socket that listens on `own`.
fn leads_to(address: SocketAddr, own: SocketAddr) -> bool {
    let ip = canonical(address).ip();
    let own_ip = canonical(own).ip();
    if address.port() != own.port() {
        return false;
    }
    // Nothing can be bound to an address of another machine.
    ip == own_ip || is_wildcard(own_ip) && (is_loopback(ip) || UdpSocket::bind((ip, 0)).is_ok())
}

fn is_time_to_log() -> bool {
    let now = clock::monotonic_micros().max(1);
    let logged = LOGGED.load(Ordering::Relaxed);
    let is_due = logged == 0 || now.saturating_sub(logged) >= micros(LOGS_AGAIN);
    is_due
        && LOGGED
            .compare_exchange(logged, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_the_port_that_listens_there_or_everywhere() {
        fn leads(address: &str, own: &str) -> bool {
            leads_to(address.parse().unwrap(), own.parse().unwrap())
        }
        assert!(
            leads("127.0.0.1:9901", "127.0.0.1:9901")
                && leads("[::ffff:127.0.0.1]:9901", "127.0.0.1:9901")
        );
        assert!(leads("127.0.0.7:9901", "0.0.0.0:9901") && leads("127.0.0.1:9901", "[::]:9901"));
        assert!(
            !leads("127.0.0.1:9902", "127.0.0.1:9901")
                && !leads("127.0.0.2:9901", "127.0.0.1:9901")
        );
        // Documentation's network (RFC 5737): no machine has it.
        assert!(!leads("203.0.113.7:9901", "0.0.0.0:9901"));
    }
}
