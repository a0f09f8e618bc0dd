//! `allow` and `deny`: the networks whose clients a listener or a route takes.

use crate::config::report::Report;
use crate::config::scalar::address::Cidr;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting};
use crate::route::networks::{NetworkRules, NetworkSet};

/// The networks whose clients are taken. `None`: a mistake was reported.
pub fn network_rules(
    allow: &Setting<NonEmptyList<Located<Cidr>>>,
    deny: &Setting<NonEmptyList<Located<Cidr>>>,
    report: &mut Report,
) -> Option<NetworkRules> {
    let mut set = |setting: &Setting<NonEmptyList<Located<Cidr>>>| {
        setting.build(|list| {
            Some(
                list.0
                    .iter()
                    .map(|at| at.network(report))
                    .collect::<NetworkSet>(),
            )
        })
    };
    let (allow, deny) = (set(allow), set(deny));
    Some(NetworkRules {
        allow: allow?,
        deny: deny?.unwrap_or_default(),
    })
}
