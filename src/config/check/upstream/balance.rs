//! Balancing across upstreams and routes: ways that work, and probably not as they are meant.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::check::identity::usage::{
    AskingListeners, IdentifiedRequests, part_of_identity,
};
use crate::config::file::balance::RawBalance;
use crate::config::file::config::RawConfig;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::route::Route;

/// Warns of upstreams that share a cookie: an answer from one takes its client away from the
/// endpoint of the other.
pub fn warn_of_shared_cookies(file: &RawConfig, report: &mut Report) {
    let mut known: HashMap<Arc<str>, (&str, &Location)> = HashMap::new();
    for (name, _, balance) in balanced(file) {
        let RawBalance::Cookie(cookie) = balance else {
            continue;
        };
        let Some(at) = cookie.name.valid() else {
            continue;
        };
        match known.get(&at.value.0) {
            None => drop(known.insert(at.value.0.clone(), (name, &at.location))),
            Some((other, first)) => {
                let problem = ValueProblem::new(format!(
                    "upstream {} has a cookie called {} too, on {}: clients of both stay with neither",
                    quote(other),
                    quote(&at.value.0),
                    first.line_beside(&at.location)
                ));
                report.warning(
                    &at.location,
                    problem.hint("give the cookie of each upstream a name of its own"),
                );
            }
        }
    }
}

/// Warns of upstreams that go by who the client is, on routes where nobody says so.
pub fn warn_of_unknown_clients(
    file: &RawConfig,
    asking: &AskingListeners,
    routes: &[Arc<Route>],
    report: &mut Report,
) {
    for (name, at, balance) in balanced(file) {
        let RawBalance::Hash(key) = balance else {
            continue;
        };
        let parts = key.parts().unwrap_or_default();
        let Some(part) = part_of_identity(&parts) else {
            continue;
        };
        let forwards = |route: &&Arc<Route>| {
            route
                .action
                .upstreams()
                .iter()
                .any(|upstream| ***upstream == *name)
                && asking.identified_on(route) == IdentifiedRequests::None
        };
        if let Some(route) = routes.iter().find(forwards) {
            let problem = ValueProblem::new(format!(
                "the endpoint goes by {part}, and route {} authenticates nobody: its requests go to any",
                quote(&route.name)
            ));
            report.warning(
                at,
                problem.hint("add \"authenticate\" to the route, or balance by another part"),
            );
        }
    }
}

/// The upstreams by name, each with where it stands and how it balances.
fn balanced(file: &RawConfig) -> impl Iterator<Item = (&str, &Location, &RawBalance)> {
    let rows = file.upstreams.valid().map_or(&[][..], |table| &table.0);
    rows.iter().filter_map(|row| {
        Some((
            &*row.text,
            &row.location,
            row.value.as_ref()?.balance.valid()?,
        ))
    })
}
