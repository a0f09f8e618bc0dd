//! The action of a route: forward, respond, redirect or echo. Each action is spelt here and nowhere
//! else in the configuration.
//!
//! Guarantees that a route has exactly one action, no key of another one, and a path that its
//! rewriting fits.

use std::sync::Arc;

use http::HeaderValue;
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::OnlyTrue;
use crate::section::common::named::NamedSection;
use crate::section::common::respond::RawRespond;
use crate::section::limit::key::RawKey;
use crate::section::route::distribution::{RawForwardTo, RawMirror, mirror, split, split_key};
use crate::section::route::fields::RawRedirect;
use crate::section::route::matching::path_text::{FullPath, PathPrefix};
use crate::yaml::decode::{Located, Scalar, Setting, only_one};
use crate::yaml::record::record;
use crate::yaml::words::{Words, words};
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_proxy::upstream::url::authority;
use tollgate_spec::route::distribution::{SplitPart, UpstreamSplit};
use tollgate_spec::route::{
    Action, Distribution, Forward, HostPolicy, Match, PathMatch, PathPattern, Rewrite, Segment,
};
use tollgate_spec::spelling::nearest;

record! {
    /// The action of a route, and the keys that belong to it.
    RawActionKeys at location {
        /// Forward to this upstream, or to several: [{to: orders, weight: 95%}, {to: canary,
        /// weight: 5%}].
        optional upstream: RawForwardTo,
        /// The key by which requests stay with one of several upstreams, as in a limit. Default:
        /// each goes to any.
        optional split_by: RawKey,
        /// Copies of requests for another upstream, whose answers are dropped.
        optional mirror: RawMirror,
        /// Answer with something fixed.
        optional respond: RawRespond,
        /// Send the client elsewhere.
        optional redirect: RawRedirect,
        /// Answer with a description of the request.
        optional echo: Located<OnlyTrue>,
        /// Forward without this leading part of the path.
        optional strip_prefix: Located<PathPrefix>,
        /// Forward with another leading part of the path.
        optional replace_prefix: RawReplacePrefix,
        /// Forward to this path instead of the request's.
        optional replace_path: Located<FullPath>,
        /// The Host that the upstream sees: the client's (preserve), the endpoint's (endpoint), or
        /// this one.
        optional host: Located<HostPolicy>,
    }
}

record! {
    /// Another leading part of the path.
    RawReplacePrefix at location {
        /// The part to replace.
        required from: Located<PathPrefix>,
        /// The new leading part.
        required to: Located<PathPrefix>,
    }
}

/// An action, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionName {
    Forward,
    Respond,
    Redirect,
    Echo,
}

impl RawActionKeys {
    /// The route's one action. `None`: a mistake was reported.
    pub fn choose(&self, report: &mut Report) -> Option<ActionName> {
        self.check_forward_keys(report);
        let actions = [
            self.upstream.build(|_| Some(ActionName::Forward)),
            self.respond.build(|_| Some(ActionName::Respond)),
            self.redirect.build(|_| Some(ActionName::Redirect)),
            self.echo.build(|_| Some(ActionName::Echo)),
        ];
        let message = match only_one(actions) {
            Ok(action) => return action,
            Err(0) => "the route does nothing",
            Err(_) => "the route does more than one thing",
        };
        let hint =
            "a route has exactly one of \"upstream\", \"respond\", \"redirect\" and \"echo\"";
        report.mistake(&self.location, ValueProblem::new(message).hint(hint));
        None
    }

    /// Reports keys that belong to a route that forwards, and two ways to rewrite one path.
    fn check_forward_keys(&self, report: &mut Report) {
        let mut rewrites = Vec::new();
        if let Setting::Valid(at) = &self.strip_prefix {
            rewrites.push(("strip_prefix", &at.location));
        }
        if let Setting::Valid(record) = &self.replace_prefix {
            rewrites.push(("replace_prefix", &record.location));
        }
        if let Setting::Valid(at) = &self.replace_path {
            rewrites.push(("replace_path", &at.location));
        }
        if !self.upstream.is_present() {
            let mut present = rewrites.clone();
            if let Setting::Valid(at) = &self.host {
                present.push(("host", &at.location));
            }
            if let Setting::Valid(record) = &self.mirror {
                present.push(("mirror", &record.location));
            }
            if let Setting::Valid(_) = &self.split_by {
                present.push(("split_by", &self.location));
            }
            for (key, location) in present {
                let problem = ValueProblem::new(format!("\"{key}\" is for routes that forward"));
                report.mistake(
                    location,
                    problem.hint("give the route an \"upstream\", or remove this key"),
                );
            }
        }
        if let [(first, _), (second, location), ..] = &*rewrites {
            let problem =
                ValueProblem::new(format!("\"{first}\" and \"{second}\" exclude each other"));
            report.mistake(location, problem.hint("keep one of the two"));
        }
    }
}

/// The word for a Host that is not written out.
enum HostWord {
    Preserve,
    Endpoint,
}

words! {
    HostWord: "preserve or endpoint" { "preserve" => Preserve, "endpoint" => Endpoint }
}

impl Scalar for HostPolicy {
    const WHAT: &'static str = "preserve, endpoint or a host";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let not_a_host = ValueProblem::new(format!(
            "{} is neither preserve, endpoint nor a host",
            quote(text)
        ));
        match HostWord::read(text) {
            Ok(HostWord::Preserve) => return Ok(Self::Preserve),
            Ok(HostWord::Endpoint) => return Ok(Self::Endpoint),
            Err(_) => {}
        }
        // A slip of these words would be a valid host.
        let words = HostWord::WORDS.iter().copied();
        if !text.contains(['.', ':']) && nearest(text, words.clone()).is_some() {
            return Err(not_a_host.suggest(text, words, ""));
        }
        let hint = "write preserve, endpoint, or a host such as api.internal";
        let Some(authority) = authority(text) else {
            return Err(not_a_host.hint(hint));
        };
        match HeaderValue::from_str(authority.as_str()) {
            Ok(host) => Ok(Self::Fixed(host)),
            Err(_) => Err(not_a_host.hint(hint)),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// The action of a route that takes what `matches` says. `None`: a mistake was reported.
pub fn build(
    keys: &RawActionKeys,
    matches: Option<&Match>,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Action> {
    let chosen = keys.choose(report);
    // Both are visited even when one of them is too many: all mistakes are reported at once.
    let forward = if keys.upstream.is_present() {
        forward(keys, matches, upstreams, report)
    } else {
        None
    };
    let respond = keys.respond.build(|respond| respond.build(report));
    let redirect = keys.redirect.build(|raw| raw.build(report));
    match chosen? {
        ActionName::Forward => forward,
        ActionName::Respond => respond?.map(Action::Respond),
        ActionName::Redirect => redirect?.map(Action::Redirect),
        ActionName::Echo => Some(Action::Echo),
    }
}

/// The upstreams of a route.
enum ForwardTarget {
    One(Arc<str>),
    Several(Vec<SplitPart>),
}

impl ForwardTarget {
    /// Whether `upstream` is one of them.
    fn has(&self, upstream: &Arc<str>) -> bool {
        match self {
            Self::One(own) => own == upstream,
            Self::Several(parts) => parts.iter().any(|part| part.upstream == *upstream),
        }
    }
}

fn forward(
    keys: &RawActionKeys,
    matches: Option<&Match>,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Action> {
    let split_by = split_key(
        &keys.split_by,
        &keys.upstream,
        &keys.location,
        matches,
        report,
    );
    let target = match &keys.upstream {
        Setting::Absent | Setting::Invalid => None,
        Setting::Valid(RawForwardTo::One(name)) => upstreams
            .find(name, report)
            .map(|spec| ForwardTarget::One(spec.name.clone())),
        Setting::Valid(RawForwardTo::Split(at, raws)) => {
            split(at, raws, upstreams, report).map(ForwardTarget::Several)
        }
    };
    let mirror = keys.mirror.build(|raw| mirror(raw, upstreams, report));
    let rewrite = rewrite(keys, matches, report);
    let host = keys.host.optional();
    let target = target?;
    let split_by = split_by?;
    let mirror = mirror?;
    if let Some(copied) = &mirror
        && target.has(&copied.upstream)
    {
        let problem = ValueProblem::new(format!(
            "{} gets copies of its own requests",
            quote(&copied.upstream)
        ));
        let at = match &keys.mirror {
            Setting::Valid(raw) => &raw.location,
            Setting::Absent | Setting::Invalid => &keys.location,
        };
        report.warning(
            at,
            problem.hint("mirror to another upstream: this one would do everything twice"),
        );
    }
    let (upstream, parts) = match target {
        ForwardTarget::One(upstream) => (upstream, None),
        ForwardTarget::Several(parts) => (parts.first()?.upstream.clone(), Some(parts)),
    };
    let forward = Forward {
        upstream,
        rewrite: rewrite?,
        host: host?.unwrap_or_default(),
    };
    if parts.is_none() && mirror.is_none() {
        return Some(Action::Forward(forward));
    }
    let split = parts.and_then(|parts| UpstreamSplit::new(parts, split_by));
    Some(Action::Distribute(Box::new(Distribution {
        forward,
        split,
        mirror,
    })))
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
    for part in prefix.split('/').filter(|part| !part.is_empty()) {
        match segments.next() {
            Some(Segment::Literal(literal)) if **literal == *part => {}
            Some(_) | None => return false,
        }
    }
    true
}
