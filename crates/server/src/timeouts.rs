//! The time limits of a listener, in the form that waits take.

use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::http::deadline::ClientTimeouts;

/// The time limits for the clients of a listener.
pub fn client_timeouts(spec: &ListenerSpec) -> ClientTimeouts {
    ClientTimeouts::new(
        spec.header_timeout,
        spec.keepalive_timeout,
        spec.body_timeout,
    )
}
