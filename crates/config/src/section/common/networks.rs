//! `allow` and `deny`: the networks whose clients a listener or a route takes.

use crate::report::Report;
use crate::scalar::address::Cidr;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use tollgate_spec::route::networks::{NetworkRules, NetworkSet};

/// The networks whose clients are taken. `None`: a mistake was reported.
pub fn network_rules(
    allow: &Setting<NonEmptyList<Located<Cidr>>>,
    deny: &Setting<NonEmptyList<Located<Cidr>>>,
    report: &mut Report,
) -> Option<NetworkRules> {
    let allow = network_set(allow, report);
    let deny = network_set(deny, report);
    Some(NetworkRules {
        allow: allow?,
        deny: deny?.unwrap_or_default(),
    })
}

/// The networks of a list. `Some(None)`: there is no list. `None`: a mistake was reported.
fn network_set(
    setting: &Setting<NonEmptyList<Located<Cidr>>>,
    report: &mut Report,
) -> Option<Option<NetworkSet>> {
    setting.build(|list| Some(list.0.iter().map(|at| at.network(report)).collect()))
}
