//! Limits, splits and texts that go by an identity, on a route whose requests have none.

use tollgate_limiter::limit::key::OnMissing;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::limit::key::{RawKey, part_of_identity};
use crate::section::limit::uses::{CheckedUse, by_nobody, part_of_limit};
use crate::section::listener::serving::IdentifiedRequests;
use crate::section::route::action::RawActionKeys;
use crate::yaml::decode::{Located, Setting};
use tollgate_spec::route::template::Template;

/// Reports settings that go by an identity on a route whose requests have none, and limits that
/// count all such requests of a listener together.
pub fn check_route<'t>(
    action: &RawActionKeys,
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
            check_split(&action.split_by, &action.location, report);
            for at in templates {
                check_template(at, report);
            }
        }
    }
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

/// Reports a text with a variable of an identity, where requests have none.
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
