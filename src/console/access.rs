//! What a visitor of the console may see. There are no accounts: whoever reaches the admin port is an operator.

use std::net::SocketAddr;

/// Whether keys of buckets are shown. They name clients, so only where nobody reaches the port from another machine; the
/// pages elsewhere have the names by which logs call them.
pub fn may_see_keys(admin: SocketAddr) -> bool {
    admin.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_on_this_machine_alone() {
        for (address, shown) in [
            ("127.0.0.1:9901", true),
            ("127.1.2.3:9901", true),
            ("[::1]:9901", true),
            ("[::ffff:127.0.0.1]:9901", true),
            ("0.0.0.0:9901", false),
            ("[::]:9901", false),
            ("10.0.0.5:9901", false),
        ] {
            assert_eq!(may_see_keys(address.parse().unwrap()), shown, "{address}");
        }
    }
}
