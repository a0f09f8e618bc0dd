//! Routes: each for itself, then all together.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::spec::Limit;

use super::limits::{Used, path_params, uses};
use super::named::Named;
use super::ties::{Candidate, report_ties};
use super::{optional, rewrite};
use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::raw;
use crate::gateway::route::{HeaderMatch, HostMatch, Match, PathPattern, Route, Segment};
use crate::upstream::UpstreamSpec;

/// All routes. `None`: said in the report.
pub(super) fn build(
    file: &raw::File,
    limits: &Named<Limit>,
    upstreams: &Named<UpstreamSpec>,
    report: &mut Report,
) -> Option<Vec<Arc<Route>>> {
    let raws = &file.routes.good()?.0;
    check_names(raws, report);
    let listeners = listener_limits(file);
    let mut candidates = Vec::new();
    let mut built = Vec::new();
    for raw in raws {
        let matches = matches(&raw.r#match, report);
        built.push(route(raw, matches.as_ref(), &listeners, limits, upstreams, report));
        candidates.extend(matches.map(|matches| Candidate { raw, matches }));
    }
    report_ties(&candidates, report);
    built.into_iter().map(|route| route.map(Arc::new)).collect()
}

fn check_names(raws: &[raw::Route], report: &mut Report) {
    let mut lines = HashMap::new();
    for At { place, value } in raws.iter().filter_map(|raw| raw.name.good()) {
        match lines.get(&value.0) {
            None => drop(lines.insert(value.0.clone(), place.line)),
            Some(line) => {
                let trouble = Trouble::new(format!("another route is called {}, on line {line}", quote(&value.0)));
                report.mistake(place, trouble.hint("give each route a name of its own"));
            }
        }
    }
}

/// The limits that count every request already, each with the path of its listener.
fn listener_limits(file: &raw::File) -> HashMap<Arc<str>, String> {
    let listeners = file.listeners.good().map_or(&[][..], |raws| &raws.0);
    let uses = listeners.iter().flat_map(|raw| raw.limits.good().into_iter().flatten().map(move |used| (raw, used)));
    uses.filter_map(|(raw, used)| Some((used.limit.value()?.0, raw.place.path()))).collect()
}

fn route(
    raw: &raw::Route,
    matches: Option<&Match>,
    listeners: &HashMap<Arc<str>, String>,
    limits: &Named<Limit>,
    upstreams: &Named<UpstreamSpec>,
    report: &mut Report,
) -> Option<Route> {
    let path = matches.map(|matches| &matches.path);
    let action = rewrite::action(raw, path, upstreams, report);
    let used = uses(&raw.limits, limits, report);
    for used in used.iter().flatten() {
        check_params(used, path, report);
        check_listeners(used, listeners, report);
    }
    let max_body = optional(&raw.max_body, |at| Some(at.value.0));
    let timeout = optional(&raw.timeout, |at| Some(at.value.0));
    Some(Route {
        name: raw.name.value()?.0,
        matches: matches?.clone(),
        action: action?,
        limits: used?.into_iter().map(|used| used.limit_use).collect(),
        max_body: max_body?,
        timeout: timeout?,
    })
}

fn check_params(used: &Used, path: Option<&PathPattern>, report: &mut Report) {
    let Some(path) = path else { return };
    let has = |name: &Arc<str>| path.segments.contains(&Segment::Param(name.clone()));
    for param in path_params(&used.limit_use.limit).filter(|param| !has(param)) {
        let limit = quote(&used.limit_use.limit.name);
        let trouble =
            Trouble::new(format!("limit {limit} counts by {{{param}}}, which this route's path does not have"));
        report
            .mistake(&used.place, trouble.hint(format!("put {{{param}}} into the route's path, or use another limit")));
    }
}

/// One request takes from one bucket once.
fn check_listeners(used: &Used, listeners: &HashMap<Arc<str>, String>, report: &mut Report) {
    if let Some(listener) = listeners.get(&used.limit_use.limit.name) {
        let limit = quote(&used.limit_use.limit.name);
        let trouble = Trouble::new(format!("{listener} counts every request by limit {limit} already"));
        report.mistake(&used.place, trouble.hint("list the limit in one of the two places"));
    }
}

fn matches(slot: &Slot<raw::Match>, report: &mut Report) -> Option<Match> {
    let raw = match slot {
        Slot::Absent => return Some(everything()),
        Slot::Bad => return None,
        Slot::Good(raw) => raw,
    };
    let headers = optional(&raw.headers, |table| {
        rewrite::check_names(table, report);
        table
            .0
            .iter()
            .map(|row| Some(HeaderMatch { name: row.key.clone()?, value: row.value.as_ref()?.0.clone() }))
            .collect()
    });
    let host = optional(&raw.host, |at| Some(at.value.clone()));
    let methods = optional(&raw.methods, |many| Some(many.0.iter().map(|at| at.value.clone()).collect()));
    Some(Match {
        host: host?.unwrap_or(HostMatch::Any),
        path: raw.path.value()?,
        methods: methods?.unwrap_or_default(),
        headers: headers?.unwrap_or_default(),
    })
}

fn everything() -> Match {
    let path = PathPattern { segments: Vec::new(), rest: true };
    Match { host: HostMatch::Any, path, methods: Vec::new(), headers: Vec::new() }
}
