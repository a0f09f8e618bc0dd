//! Refuses clients by their addresses.

use crate::exchange::Exchange;
use tollgate_spec::route::networks::NetworkRules;
use tollgate_wire::error::Failure;

/// The rules of a listener and of a route on the networks of their clients: all have to take one.
pub struct ClientNetworks(Vec<NetworkRules>);

impl ClientNetworks {
    /// `None`: every client is served.
    pub fn new(listener: &NetworkRules, route: Option<&NetworkRules>) -> Option<Self> {
        let mut rules = Vec::new();
        for one in std::iter::once(listener).chain(route) {
            if !one.is_open() {
                rules.push(one.clone());
            }
        }
        if rules.is_empty() {
            return None;
        }
        Some(Self(rules))
    }

    /// Refuses a client whose network is not served.
    ///
    /// # Errors
    /// [`Failure::NetworkRefused`].
    pub fn check(&self, exchange: &Exchange<'_>) -> Result<(), Failure> {
        let client = exchange.context.origin.client_ip;
        if self.0.iter().all(|rules| rules.take(client)) {
            Ok(())
        } else {
            Err(Failure::NetworkRefused)
        }
    }
}
