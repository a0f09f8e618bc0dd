//! Which client addresses a listener or a route takes.
//!
//! Guarantees that a client in a network of `deny` is refused, also where `allow` has it, and that
//! an address is found in time that grows with the logarithm of the lists.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_limiter::limit::client_address::canonical_network;

/// The networks whose clients are taken, and those whose are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// Only clients in these are taken. `None`: all.
    pub allow: Option<NetworkSet>,
    /// No client in these is taken, whatever `allow` has.
    pub deny: NetworkSet,
}

/// A set of networks. IPv4-mapped IPv6 addresses count as the IPv4 address they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkSet {
    /// In order, and none within another.
    networks: Box<[IpNet]>,
}

impl NetworkRules {
    /// Whether every client is taken.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.networks.is_empty()
    }

    /// How many networks there are in both lists.
    pub fn count(&self) -> usize {
        let allowed = self.allow.as_ref().map_or(0, |allow| allow.networks.len());
        allowed + self.deny.networks.len()
    }

    pub fn take(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.allow
            .as_ref()
            .is_none_or(|allow| allow.contains(client))
            && !self.deny.contains(client)
    }
}

impl NetworkSet {
    /// Whether the client is in one of them.
    pub fn has(&self, client: IpAddr) -> bool {
        self.contains(client.to_canonical())
    }

    fn contains(&self, address: IpAddr) -> bool {
        let after = self
            .networks
            .partition_point(|network| network.network() <= address);
        after
            .checked_sub(1)
            .is_some_and(|last| self.networks[last].contains(&address))
    }
}

impl FromIterator<IpNet> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let networks: Vec<IpNet> = networks.into_iter().map(canonical_network).collect();
        let mut networks = IpNet::aggregate(&networks);
        networks.sort_unstable_by_key(IpNet::network);
        Self {
            networks: networks.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(networks: &[&str]) -> NetworkSet {
        networks
            .iter()
            .map(|network| network.parse::<IpNet>().unwrap())
            .collect()
    }

    fn taken<'a>(rules: &NetworkRules, clients: &[&'a str]) -> Vec<&'a str> {
        clients
            .iter()
            .copied()
            .filter(|client| rules.take(client.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_what_is_allowed_and_not_denied_is_taken() {
        let clients = [
            "10.0.0.1",
            "10.1.2.3",
            "10.1.255.255",
            "10.2.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "fd00::1",
            "::1",
        ];
        let allow = Some(set(&["10.0.0.0/8", "fd00::/8"]));
        let rules = NetworkRules {
            allow: allow.clone(),
            deny: set(&["10.1.0.0/16"]),
        };
        assert_eq!(taken(&rules, &clients), ["10.0.0.1", "10.2.0.0", "fd00::1"]);
        assert_eq!(
            taken(
                &NetworkRules {
                    allow,
                    deny: set(&[])
                },
                &clients
            )
            .len(),
            5
        );
        assert_eq!(
            taken(
                &NetworkRules {
                    allow: None,
                    deny: set(&["::/0"])
                },
                &clients
            )
            .len(),
            6
        );
        assert_eq!(
            taken(&NetworkRules::default(), &clients).len(),
            clients.len()
        );
    }

    #[test]
    fn the_order_in_which_networks_are_written_and_those_within_others_change_nothing() {
        let rules = NetworkRules {
            allow: Some(set(&[
                "192.168.7.0/24",
                "10.9.0.0/16",
                "10.0.0.0/8",
                "192.168.0.0/16",
                "10.200.0.1/32",
            ])),
            deny: NetworkSet::default(),
        };
        let clients = [
            "10.0.0.0",
            "10.250.1.1",
            "192.168.6.1",
            "192.168.7.1",
            "192.169.0.0",
            "172.16.0.1",
        ];
        assert_eq!(
            taken(&rules, &clients),
            ["10.0.0.0", "10.250.1.1", "192.168.6.1", "192.168.7.1"]
        );
    }

    #[test]
    fn mapped_addresses_count_as_what_they_stand_for() {
        let rules = NetworkRules {
            allow: None,
            deny: set(&["::ffff:10.0.0.0/104"]),
        };
        assert_eq!(
            taken(&rules, &["10.1.2.3", "::ffff:10.1.2.3", "::ffff:11.1.2.3"]),
            ["::ffff:11.1.2.3"]
        );
        let rules = NetworkRules {
            allow: Some(set(&["10.0.0.0/8"])),
            deny: NetworkSet::default(),
        };
        assert_eq!(
            taken(&rules, &["::ffff:10.1.2.3", "::ffff:11.1.2.3"]),
            ["::ffff:10.1.2.3"]
        );
    }
}
