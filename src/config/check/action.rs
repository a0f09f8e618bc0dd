//! The action of a route: the upstream that it names, and a path that the rewriting fits.

use std::sync::Arc;

use tollgate_limiter::limit::key::KeyPart;

use super::named::NamedSection;
use crate::config::file::limit::RawKey;
use crate::config::file::route::action::{ActionName, RawActionKeys};
use crate::config::file::route::distribution::{RawForwardTo, RawMirror, RawSplitPart};
use crate::config::file::scalar::path::PathPrefix;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::Located;
use crate::route::distribution::{MirrorSpec, SplitPart, UpstreamSplit, WHOLE};
use crate::route::{
    Action, Distribution, Forward, Match, PathMatch, PathPattern, Rewrite, Segment,
};
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
    let forward = keys
        .upstream
        .is_present()
        .then(|| forward(keys, matches, upstreams, report));
    let respond = keys.respond.build(|respond| respond.build(report));
    let redirect = keys.redirect.build(|raw| raw.build(report));
    match chosen? {
        ActionName::Forward => forward?,
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
) -> Option<Action> {
    let by = split_key(keys, matches, report);
    let found = match keys.upstream.valid() {
        Some(RawForwardTo::One(name)) => upstreams
            .find(name, report)
            .map(|spec| (spec.name.clone(), None)),
        Some(RawForwardTo::Split(at, parts)) => split(at, parts, upstreams, report),
        None => None,
    };
    let mirror = keys.mirror.build(|raw| mirror(raw, upstreams, report));
    let rewrite = rewrite(keys, matches, report);
    let host = keys.host.build(|at| Some(at.value.clone()));
    let ((upstream, parts), by, mirror) = (found?, by?, mirror?);
    let is_own = |to: &Arc<str>| match &parts {
        Some(parts) => parts.iter().any(|part| part.upstream == *to),
        None => upstream == *to,
    };
    if let Some(copied) = &mirror
        && is_own(&copied.upstream)
    {
        let problem = ValueProblem::new(format!(
            "{} gets copies of its own requests",
            quote(&copied.upstream)
        ));
        let at = keys
            .mirror
            .valid()
            .map_or(&keys.location, |raw| &raw.location);
        report.warning(
            at,
            problem.hint("mirror to another upstream: this one would do everything twice"),
        );
    }
    let forward = Forward {
        upstream,
        rewrite: rewrite?,
        host: host?.unwrap_or_default(),
    };
    if parts.is_none() && mirror.is_none() {
        return Some(Action::Forward(forward));
    }
    let split = parts.and_then(|parts| UpstreamSplit::new(parts, by));
    Some(Action::Distribute(Box::new(Distribution {
        forward,
        split,
        mirror,
    })))
}

/// The first upstream, and all of them with their shares.
type SplitParts = (Arc<str>, Option<Vec<SplitPart>>);

/// Several upstreams. `None`: a mistake was reported.
fn split(
    at: &Location,
    raws: &[RawSplitPart],
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<SplitParts> {
    let mut parts: Vec<SplitPart> = Vec::new();
    for raw in raws {
        let upstream = raw.to.valid().and_then(|name| upstreams.find(name, report));
        let (Some(upstream), Some(share)) = (upstream, raw.weight.value()) else {
            continue;
        };
        if let Some(name) = raw
            .to
            .valid()
            .filter(|_| parts.iter().any(|part| part.upstream == upstream.name))
        {
            let problem = ValueProblem::new(format!("{} is listed twice", quote(&upstream.name)));
            report.mistake(
                &name.location,
                problem.hint("list each upstream once, with all of its share"),
            );
            return None;
        }
        parts.push(SplitPart {
            upstream: upstream.name.clone(),
            share,
        });
    }
    if parts.len() < raws.len() {
        return None;
    }
    let sum: u64 = parts
        .iter()
        .map(|part| u64::from(part.share.hundredths()))
        .sum();
    if sum != u64::from(WHOLE) {
        let sum = format!("{}.{:02}", sum / 100, sum % 100);
        let problem = ValueProblem::new(format!(
            "the weights are {}% together",
            sum.trim_end_matches(".00")
        ));
        report.mistake(
            at,
            problem.hint("change them so that they are 100% together"),
        );
        return None;
    }
    Some((parts.first()?.upstream.clone(), Some(parts)))
}

/// The key that requests are split by. `None`: a mistake was reported.
fn split_key(
    keys: &RawActionKeys,
    matches: Option<&Match>,
    report: &mut Report,
) -> Option<Arc<[KeyPart]>> {
    let parts = keys.split_by.build(RawKey::parts)?.unwrap_or_default();
    if parts.iter().any(|part| matches!(part, KeyPart::Body(_))) {
        let problem = ValueProblem::new("only the keys of limits read the body");
        report.mistake(
            &keys.location,
            problem.hint("split by a part of the request's head, such as {header: x-tenant}"),
        );
        return None;
    }
    if !parts.is_empty() && matches!(keys.upstream.valid(), Some(RawForwardTo::One(_))) {
        let problem = ValueProblem::new("\"split_by\" is for routes with several upstreams");
        report.mistake(
            &keys.location,
            problem.hint("remove it, or list upstreams with their weights"),
        );
        return None;
    }
    let missing = parts.iter().find_map(|part| match part {
        KeyPart::PathParam(param) if matches.is_some_and(|matches| !matches.has_param(param)) => {
            Some(param)
        }
        _ => None,
    });
    if let Some(param) = missing {
        let problem = ValueProblem::new(format!("this route's path does not have {{{param}}}"));
        report.mistake(
            &keys.location,
            problem.hint(format!("put {{{param}}} into the route's path")),
        );
        return None;
    }
    Some(parts.into())
}

/// Copies. `None`: a mistake was reported.
fn mirror(
    raw: &RawMirror,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<MirrorSpec> {
    let upstream = raw.to.valid().and_then(|name| upstreams.find(name, report));
    Some(MirrorSpec {
        upstream: upstream?.name.clone(),
        share: raw.share.value()?,
        max_body: usize::try_from(raw.max_body.value()?.0).ok()?,
        max_in_flight: raw.max_in_flight.value()?.count().get(),
    })
}

fn rewrite(keys: &RawActionKeys, matches: Option<&Match>, report: &mut Report) -> Option<Rewrite> {
    let strip = keys.strip_prefix.build(|at| {
        check_prefix(at, matches, report)?;
        Some(Rewrite::StripPrefix(at.value.0.clone()))
    });
    let replace_prefix = keys.replace_prefix.build(|record| {
        let from = record.from.valid()?;
        check_prefix(from, matches, report)?;
        Some(Rewrite::ReplacePrefix {
            from: from.value.0.clone(),
            to: record.to.value()?.0,
        })
    });
    let replace = keys
        .replace_path
        .build(|at| Some(Rewrite::Replace(at.value.0.clone())));
    Some(strip?.or(replace_prefix?).or(replace?).unwrap_or_default())
}

/// Every request of the route must have the prefix, in whole segments.
fn check_prefix(
    prefix: &Located<PathPrefix>,
    matches: Option<&Match>,
    report: &mut Report,
) -> Option<()> {
    let prefix_text = quote(&prefix.value.0);
    let other = matches?
        .paths
        .iter()
        .find(|path| !starts_with(path, &prefix.value.0));
    let problem = match other {
        None => return Some(()),
        Some(PathMatch::Pattern(_)) => ValueProblem::new(format!(
            "the route's path does not start with {prefix_text}"
        )),
        Some(PathMatch::Expression(_)) => ValueProblem::new(format!(
            "nothing says that the paths of an expression start with {prefix_text}"
        )),
    };
    report.mistake(
        &prefix.location,
        problem.hint(format!("match {}", quote(&format!("{}/*", prefix.value.0)))),
    );
    None
}

fn starts_with(path: &PathMatch, prefix: &str) -> bool {
    let PathMatch::Pattern(PathPattern { segments, .. }) = path else {
        return false;
    };
    let mut segments = segments.iter();
    let mut parts = prefix.split('/').skip(1).filter(|part| !part.is_empty());
    parts.all(|part| {
        segments.next().is_some_and(
            |segment| matches!(segment, Segment::Literal(literal) if **literal == *part),
        )
    })
}
