//! The action of a route: the upstream that it names, and a path that the rewriting fits.

use super::named::NamedSection;
use crate::config::file::route::action::{ActionName, RawActionKeys};
use crate::config::file::scalar::path::PathPrefix;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::decode::Located;
use crate::route::{Action, Forward, Match, PathMatch, PathPattern, Rewrite, Segment};
use crate::upstream::UpstreamSpec;

/// The action of a route that takes what `matches` says. `None`: a mistake was reported.
pub fn build(
    keys: &RawActionKeys,
    matches: Option<&Match>,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Action> {
    let chosen = keys.choose(report);
    // Both are visited even when one of them is too many: all mistakes are reported at once.
    let forward = keys.upstream.is_present().then(|| forward(keys, matches, upstreams, report));
    let respond = keys.respond.build(|respond| respond.build(report));
    let redirect = keys.redirect.build(|raw| raw.build(report));
    match chosen? {
        ActionName::Forward => forward?.map(Action::Forward),
        ActionName::Respond => respond?.map(Action::Respond),
        ActionName::Redirect => redirect?.map(Action::Redirect),
        ActionName::Echo => Some(Action::Echo),
    }
}

fn forward(
    keys: &RawActionKeys,
    matches: Option<&Match>,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Forward> {
    let upstream = keys.upstream.valid().and_then(|name| upstreams.find(name, report));
    let rewrite = rewrite(keys, matches, report);
    let host = keys.host.build(|at| Some(at.value.clone()));
    Some(Forward { upstream: upstream?.name.clone(), rewrite: rewrite?, host: host?.unwrap_or_default() })
}

fn rewrite(keys: &RawActionKeys, matches: Option<&Match>, report: &mut Report) -> Option<Rewrite> {
    let strip = keys.strip_prefix.build(|at| {
        check_prefix(at, matches, report)?;
        Some(Rewrite::StripPrefix(at.value.0.clone()))
    });
    let replace_prefix = keys.replace_prefix.build(|record| {
        let from = record.from.valid()?;
        check_prefix(from, matches, report)?;
        Some(Rewrite::ReplacePrefix { from: from.value.0.clone(), to: record.to.value()?.0 })
    });
    let replace = keys.replace_path.build(|at| Some(Rewrite::Replace(at.value.0.clone())));
    Some(strip?.or(replace_prefix?).or(replace?).unwrap_or_default())
}

/// Every request of the route must have the prefix, in whole segments.
fn check_prefix(prefix: &Located<PathPrefix>, matches: Option<&Match>, report: &mut Report) -> Option<()> {
    let prefix_text = quote(&prefix.value.0);
    let other = matches?.paths.iter().find(|path| !starts_with(path, &prefix.value.0));
    let problem = match other {
        None => return Some(()),
        Some(PathMatch::Pattern(_)) => ValueProblem::new(format!("the route's path does not start with {prefix_text}")),
        Some(PathMatch::Expression(_)) => {
            ValueProblem::new(format!("nothing says that the paths of an expression start with {prefix_text}"))
        }
    };
    report.mistake(&prefix.location, problem.hint(format!("match {}", quote(&format!("{}/*", prefix.value.0)))));
    None
}

fn starts_with(path: &PathMatch, prefix: &str) -> bool {
    let PathMatch::Pattern(PathPattern { segments, .. }) = path else { return false };
    let mut segments = segments.iter();
    let mut parts = prefix.split('/').skip(1).filter(|part| !part.is_empty());
    parts.all(|part| {
        segments.next().is_some_and(|segment| matches!(segment, Segment::Literal(literal) if **literal == *part))
    })
}
