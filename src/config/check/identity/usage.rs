//! Where requests have an identity, and what goes by it where they have none.

use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::key::{KeyPart, OnMissing};

use crate::config::check::limit::usage::CheckedUse;
use crate::config::file::config::RawConfig;
use crate::config::file::limit::RawKey;
use crate::config::file::route::RawRoute;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, Setting};
use crate::route::Route;
use crate::route::template::Template;

/// Which of the requests of a route have an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifiedRequests {
    All,
    /// Those of some listeners, and not those of this one.
    NotOf(Arc<str>),
    None,
}

/// Which listeners ask who a client is.
#[derive(Clone, Debug)]
pub struct AskingListeners {
    some: bool,
    /// The first that does not.
    open: Option<Arc<str>>,
}

impl AskingListeners {
    pub fn of(file: &RawConfig) -> Self {
        let listeners = file.listeners.valid().map_or(&[][..], |raws| &raws.0);
        let mut open = listeners
            .iter()
            .filter(|raw| !raw.authenticate.is_present());
        let some = listeners.iter().any(|raw| raw.authenticate.is_present());
        Self {
            some,
            open: open.next().map(|raw| raw.location.path().into()),
        }
    }

    /// The requests that have an identity on a route with this list. An invalid one says nothing.
    pub fn identified<T>(&self, own: &Setting<Vec<T>>) -> IdentifiedRequests {
        match own {
            Setting::Absent => self.of_count(None),
            Setting::Invalid => IdentifiedRequests::All,
            Setting::Valid(listed) => self.of_count(Some(listed.len())),
        }
    }

    /// The requests of `route` that have an identity.
    pub fn identified_on(&self, route: &Route) -> IdentifiedRequests {
        self.of_count(route.authenticate.as_ref().map(Vec::len))
    }

    /// The requests that have an identity on a route that lists so many authenticators. `None`: it
    /// does not say.
    fn of_count(&self, own: Option<usize>) -> IdentifiedRequests {
        match (own, &self.open) {
            (Some(0), _) => IdentifiedRequests::None,
            (Some(_), _) | (None, None) => IdentifiedRequests::All,
            (None, Some(open)) if self.some => IdentifiedRequests::NotOf(open.clone()),
            (None, Some(_)) => IdentifiedRequests::None,
        }
    }
}

/// Whether a key has a part of an identity.
pub fn part_of_identity(parts: &[KeyPart]) -> Option<String> {
    parts.iter().find_map(|part| {
        if let KeyPart::Identity(part) = part {
            Some(part.name())
        } else {
            None
        }
    })
}

/// Reports a limit of a listener that counts by an identity, where nobody has one: all requests
/// would share a bucket.
pub fn check_listener_limit(used: &CheckedUse, report: &mut Report) {
    if let Some(part) = part_of_limit(&used.limit_use.limit) {
        let hint = "add \"authenticate\" to the listener, or list the limit on routes that have it";
        report.mistake(
            &used.location,
            by_nobody(used, &part, "this listener").hint(hint),
        );
    }
}

/// Reports what goes by an identity on a route where nobody has one, and limits that count all such
/// requests of a listener together.
pub fn check_route<'t>(
    raw: &RawRoute,
    limits: &[CheckedUse],
    templates: impl Iterator<Item = &'t Located<Template>>,
    identified: &IdentifiedRequests,
    report: &mut Report,
) {
    match identified {
        IdentifiedRequests::All => {}
        IdentifiedRequests::NotOf(listener) => {
            for used in limits {
                check_shared_bucket(used, listener, report);
            }
        }
        IdentifiedRequests::None => {
            for used in limits {
                if let Some(part) = part_of_limit(&used.limit_use.limit) {
                    let hint = "add \"authenticate\" to the route, and list the limit there";
                    report.mistake(
                        &used.location,
                        by_nobody(used, &part, "this route").hint(hint),
                    );
                }
            }
            check_split(&raw.action.split_by, &raw.action.location, report);
            templates.for_each(|at| check_template(at, report));
        }
    }
}

/// The part of an identity that a limit counts or tells plans by.
fn part_of_limit(limit: &Limit) -> Option<String> {
    part_of_identity(&limit.key.parts).or_else(|| {
        limit
            .plans
            .as_ref()
            .and_then(|plans| part_of_identity(std::slice::from_ref(&plans.by)))
    })
}

fn by_nobody(used: &CheckedUse, part: &str, place: &str) -> ValueProblem {
    let limit = quote(&used.limit_use.limit.name);
    ValueProblem::new(format!(
        "limit {limit} counts by {part}, and {place} authenticates nobody"
    ))
}

fn check_shared_bucket(used: &CheckedUse, listener: &str, report: &mut Report) {
    let limit = &used.limit_use.limit;
    let Some(part) =
        part_of_identity(&limit.key.parts).filter(|_| limit.key.on_missing == OnMissing::Share)
    else {
        return;
    };
    let name = quote(&limit.name);
    let problem = ValueProblem::new(format!(
        "limit {name} counts by {part}, and {listener} authenticates nobody: all of its requests share a bucket"
    ));
    let hint = "add \"authenticate\" to the listener or to the route, or \"on_missing\": skip or refuse to the limit";
    report.warning(&used.location, problem.hint(hint));
}

fn check_split(split_by: &Setting<RawKey>, location: &Location, report: &mut Report) {
    let parts = split_by.valid().and_then(RawKey::parts).unwrap_or_default();
    if let Some(part) = part_of_identity(&parts) {
        let problem = ValueProblem::new(format!(
            "requests are split by {part}, and this route authenticates nobody"
        ));
        report.mistake(
            location,
            problem.hint("add \"authenticate\" to the route, or split by another part"),
        );
    }
}

/// Reports a text with a variable of an identity, where nobody has one.
fn check_template(at: &Located<Template>, report: &mut Report) {
    if let Some(variable) = at
        .value
        .variables()
        .find(|variable| variable.is_of_identity())
    {
        let problem = ValueProblem::new(format!(
            "{{{variable}}} is always empty: the route authenticates nobody"
        ));
        report.mistake(
            &at.location,
            problem.hint("add \"authenticate\" to the route"),
        );
    }
}
