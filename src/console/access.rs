//! What a visitor of the console may see.

use std::net::SocketAddr;

use crate::admin::caller::{Caller, CallerProof};

/// Whether keys of a limit's buckets are shown. They name clients, so with accounts they are for those who `may_look` at its
/// buckets; without, only where nobody reaches the port from another machine. The pages elsewhere have the names by which
/// logs call them.
pub fn may_see_keys(admin: SocketAddr, caller: Option<&Caller>, may_look: impl FnOnce() -> bool) -> bool {
    match caller {
        Some(caller) if caller.by != CallerProof::Local => may_look(),
        Some(_) => admin.ip().to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;

    #[test]
    fn without_accounts_keys_are_shown_on_this_machine_alone() {
        let local = Caller::local(&HeaderMap::new(), String::new());
        for (address, shown) in [
            ("127.0.0.1:9901", true),
            ("127.1.2.3:9901", true),
            ("[::1]:9901", true),
            ("[::ffff:127.0.0.1]:9901", true),
            ("0.0.0.0:9901", false),
            ("[::]:9901", false),
            ("10.0.0.5:9901", false),
        ] {
            assert_eq!(may_see_keys(address.parse().unwrap(), Some(&local), || true), shown, "{address}");
        }
        assert!(!may_see_keys("127.0.0.1:9901".parse().unwrap(), None, || true));
    }
}
