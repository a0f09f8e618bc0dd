//! `trusted_proxies`: the proxies in front whose claims about their clients are believed.

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::report::{Location, Report, ValueProblem};
use crate::scalar::address::Cidr;
use crate::yaml::decode::{Located, Scalar};
use tollgate_wire::transport::peer::TrustedPeers;

/// A proxy in front: a network, or the word `unix` for all clients of Unix sockets.
#[derive(Clone, Copy)]
pub enum TrustedProxy {
    Network(IpNet),
    Unix,
}

impl Scalar for TrustedProxy {
    const WHAT: &'static str = "a network";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text == "unix" {
            Ok(Self::Unix)
        } else {
            Cidr::read(text).map(|cidr| Self::Network(cidr.0))
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// The proxies whose claims about their clients are believed.
pub fn trusted_peers(proxies: &[Located<TrustedProxy>], report: &mut Report) -> TrustedPeers {
    let networks = proxies.iter().filter_map(|at| match at.value {
        TrustedProxy::Network(network) => {
            warn_of_everybody(&at.location, network, report);
            Some(
                Located {
                    location: at.location.clone(),
                    value: Cidr(network),
                }
                .network(report),
            )
        }
        TrustedProxy::Unix => None,
    });
    let proxies_of_networks = networks.collect::<Vec<_>>().into();
    let unix = proxies
        .iter()
        .any(|at| matches!(at.value, TrustedProxy::Unix));
    TrustedPeers {
        proxies: proxies_of_networks,
        unix,
    }
}

/// Warns of a network of all addresses: every client would choose the address that it counts by.
fn warn_of_everybody(location: &Location, network: IpNet, report: &mut Report) {
    if network.prefix_len() == 0 {
        let problem = ValueProblem::new("every client is trusted to say which address it has");
        report.warning(
            location,
            problem.hint("list the networks of your proxies only"),
        );
    }
}
