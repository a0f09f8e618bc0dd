//! Requests that a limit does not count.
//!
//! A header exempts any client that sends it: a proxy in front must remove it from clients that may
//! not.

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::limit::key::Facts;

/// Requests that a limit skips: any of these conditions is enough.
///
/// ```
/// use tollgate_limiter::limit::exemption::Exemption;
/// use tollgate_limiter::{Limit, client_ip};
///
/// let office = Exemption { clients: vec!["192.0.2.0/24".parse()?], ..Exemption::default() };
/// let limit = Limit::per_second("per-client", 10).key(client_ip()).exempt(office);
/// # limit.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Exemption {
    /// Networks of clients.
    pub clients: Vec<IpNet>,
    /// Header fields with this value, or with any.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
}

impl Exemption {
    /// Whether anything is exempt at all.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.headers.is_empty()
    }

    /// Whether this request is exempt. An IPv4 address written as IPv6 counts as IPv4.
    pub fn applies_to(&self, facts: &Facts<'_>) -> bool {
        if self.is_empty() {
            return false;
        }
        let client = facts.client_ip.map(|ip| ip.to_canonical());
        let by_client = client
            .is_some_and(|client| self.clients.iter().any(|network| network.contains(&client)));
        by_client
            || self
                .headers
                .iter()
                .any(|(name, wanted)| sent(facts, name, wanted.as_ref()))
    }
}

fn sent(facts: &Facts<'_>, name: &HeaderName, wanted: Option<&HeaderValue>) -> bool {
    match wanted {
        None => facts.headers.contains_key(name),
        Some(wanted) => facts
            .headers
            .get_all(name)
            .iter()
            .any(|value| value == wanted),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn covers(exempt: &Exemption, ip: &str, header: &'static str) -> bool {
        let request = Request::builder()
            .header("x-internal", header)
            .body(())
            .unwrap();
        exempt.applies_to(&Facts {
            client_ip: ip.parse().ok(),
            ..Facts::from_request(&request)
        })
    }

    #[test]
    fn any_condition_is_enough() {
        let name = HeaderName::from_static("x-internal");
        let clients = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let exempt = Exemption {
            clients,
            headers: vec![(name.clone(), Some(HeaderValue::from_static("yes")))],
        };
        assert!(covers(&exempt, "10.1.2.3", "no") && covers(&exempt, "::ffff:10.1.2.3", "no"));
        assert!(
            covers(&exempt, "fd12::1", "no")
                && covers(&exempt, "192.0.2.1", "yes")
                && covers(&exempt, "", "yes")
        );
        assert!(!covers(&exempt, "192.0.2.1", "no") && !covers(&exempt, "", "Yes"));
        assert!(covers(
            &Exemption {
                clients: vec![],
                headers: vec![(name, None)]
            },
            "",
            "anything"
        ));
        assert!(
            !covers(&Exemption::default(), "10.0.0.1", "yes") && Exemption::default().is_empty()
        );
    }
}
