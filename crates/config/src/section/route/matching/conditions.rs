//! `match` of a route: its conditions, what no request can meet, and what is probably not meant.

use crate::scalar::address::is_dns_label;
use http::{HeaderName, Method};
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::section::common::header::{RawHeaderCondition, check_names};
use crate::section::route::matching::path::RawPathMatch;
use crate::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use tollgate_spec::route::{HeaderMatch, HostMatch, Match, PathMatch, PathPattern, Segment};

record! {
    /// Which requests a route takes: all conditions hold.
    RawMatch {
        /// A host such as api.example.com, or *.example.com for all below it, or a list of hosts.
        /// Default: any.
        optional host: OneOrMore<Located<HostMatch>>,
        /// /exact, /users/{id} or /prefix/*, or {regex: "^/v[0-9]+/"}, or a list of these. Default:
        /// any.
        optional path: OneOrMore<RawPathMatch>,
        /// Methods. Default: any.
        optional methods: NonEmptyList<Located<Method>>,
        /// Header fields that must be there: a value, or {present: true} for any.
        optional headers: Mapping<HeaderName, RawHeaderCondition>,
    }
}

impl Scalar for HostMatch {
    const WHAT: &'static str = "a host";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = ValueProblem::new(format!("{} is not a host to match", quote(text)));
        if text == "*" {
            return Err(problem.hint("leave \"host\" out to match any host"));
        }
        let lower = text.to_ascii_lowercase();
        let suffix = lower.strip_prefix("*.");
        let name = suffix.unwrap_or(&lower);
        if name.contains('*') {
            return Err(problem.hint("the only wildcard is a leading \"*.\": \"*.example.com\""));
        }
        if suffix.is_none() && is_ipv6_literal(name) {
            return Ok(Self::Exact(name.into()));
        }
        if name.contains(':') {
            return Err(problem.hint("write the host without scheme and port"));
        }
        if !is_host_name(name) {
            return Err(problem.hint("write api.example.com or \"*.example.com\""));
        }
        Ok(match suffix {
            Some(suffix) => Self::Suffix(format!(".{suffix}").into()),
            None => Self::Exact(lower.into()),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

fn is_ipv6_literal(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => false,
    }
}

/// RFC 1123 §2.1, and underscores, which container names have.
fn is_host_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// The conditions of a match. Those that are absent are the ones of what it narrows.
pub struct Conditions {
    hosts: Option<Vec<HostMatch>>,
    paths: Option<Vec<PathMatch>>,
    methods: Option<Vec<Method>>,
    headers: Vec<HeaderMatch>,
}

impl RawMatch {
    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        !self.host.is_present()
            && !self.path.is_present()
            && !self.methods.is_present()
            && !self.headers.is_present()
    }

    /// Pairs of a host and a path that it takes as a part of `whole`.
    pub fn pairs(&self, whole: &Match) -> usize {
        let hosts = self.host.valid().map(|list| list.0.len());
        let paths = self.path.valid().map(|list| list.0.len());
        let hosts = hosts.unwrap_or(whole.hosts.len());
        hosts.saturating_mul(paths.unwrap_or(whole.paths.len()))
    }

    /// The conditions. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<Conditions> {
        let headers = self.headers.build(|table| {
            check_names(table, report);
            table
                .0
                .iter()
                .map(|row| {
                    Some(HeaderMatch {
                        name: row.key.clone()?,
                        value: row.value.as_ref()?.0.clone(),
                    })
                })
                .collect()
        });
        let hosts = self.host.build(|list| hosts(&list.0, report));
        let paths = self.path.build(|list| paths(list, report));
        Some(Conditions {
            hosts: hosts?,
            paths: paths?,
            methods: self.methods.values()?,
            headers: headers?.unwrap_or_default(),
        })
    }
}

impl Conditions {
    /// The conditions of `whole` with these in their place. Conditions on other header fields stay.
    pub fn narrowing(self, whole: &Match) -> Match {
        let mut headers = self.headers;
        for inherited in &whole.headers {
            if !headers.iter().any(|own| own.name == inherited.name) {
                headers.push(inherited.clone());
            }
        }
        Match {
            hosts: self.hosts.unwrap_or_else(|| whole.hosts.clone()),
            paths: self.paths.unwrap_or_else(|| whole.paths.clone()),
            methods: self.methods.unwrap_or_else(|| whole.methods.clone()),
            headers,
        }
    }
}

/// The conditions of a route. `None`: a mistake was reported.
pub fn matches(setting: &Setting<RawMatch>, report: &mut Report) -> Option<Match> {
    match setting.build(|raw| raw.build(report))? {
        Some(conditions) => Some(conditions.narrowing(&everything())),
        None => Some(everything()),
    }
}

fn everything() -> Match {
    let path = PathPattern {
        segments: Vec::new(),
        rest: true,
    };
    Match {
        hosts: vec![HostMatch::Any],
        paths: vec![PathMatch::Pattern(path)],
        methods: Vec::new(),
        headers: Vec::new(),
    }
}

fn hosts(list: &[Located<HostMatch>], report: &mut Report) -> Option<Vec<HostMatch>> {
    let mut hosts = Vec::with_capacity(list.len());
    for Located { location, value } in list {
        if hosts.contains(value) {
            let problem = ValueProblem::new("the host is in the list twice");
            report.mistake(location, problem.hint("keep one of the two"));
            return None;
        }
        hosts.push(value.clone());
    }
    Some(hosts)
}

/// The paths, whole ones first and prefixes last: in the order in which they take a request.
fn paths(list: &OneOrMore<RawPathMatch>, report: &mut Report) -> Option<Vec<PathMatch>> {
    let mut paths: Vec<PathMatch> = Vec::with_capacity(list.0.len());
    for RawPathMatch { location, value } in &list.0 {
        if let Some(other) = paths.iter().find(|other| take_the_same(other, value)) {
            let problem = ValueProblem::new(format!(
                "{} takes the same paths",
                quote(&other.to_string())
            ));
            report.mistake(location, problem.hint("keep one of the two"));
            return None;
        }
        warn_of_likely_slip(
            &RawPathMatch {
                location: location.clone(),
                value: value.clone(),
            },
            report,
        );
        paths.push(value.clone());
    }
    paths.sort_by_cached_key(order);
    Some(paths)
}

/// Whether both take the same paths, whatever the names of their parameters.
fn take_the_same(one: &PathMatch, other: &PathMatch) -> bool {
    match (one, other) {
        (PathMatch::Pattern(one), PathMatch::Pattern(other)) => {
            one.rest == other.rest
                && one.segments.len() == other.segments.len()
                && one
                    .segments
                    .iter()
                    .zip(&other.segments)
                    .all(|(one, other)| match (one, other) {
                        (Segment::Literal(one), Segment::Literal(other)) => one == other,
                        (Segment::Param(_), Segment::Param(_)) => true,
                        (Segment::Literal(_), Segment::Param(_))
                        | (Segment::Param(_), Segment::Literal(_)) => false,
                    })
        }
        (one, other) => one == other,
    }
}

/// Whole paths, expressions, prefixes; among patterns literals before parameters, from the left.
fn order(path: &PathMatch) -> (u8, Vec<u8>) {
    match path {
        PathMatch::Expression(_) => (1, Vec::new()),
        PathMatch::Pattern(PathPattern { segments, rest }) => {
            let mut ranks = Vec::with_capacity(segments.len() + 1);
            for segment in segments {
                ranks.push(u8::from(matches!(segment, Segment::Param(_))));
            }
            if *rest {
                // A prefix goes behind the longer ones that begin like it.
                ranks.push(2);
                (2, ranks)
            } else {
                (0, ranks)
            }
        }
    }
}

fn warn_of_likely_slip(path: &RawPathMatch, report: &mut Report) {
    match &path.value {
        PathMatch::Pattern(pattern) => {
            if let Some(name) = pattern.segments.iter().find_map(colon_name) {
                let problem = ValueProblem::new(format!(
                    "\":{name}\" is taken as it is written, and no parameter"
                ));
                let meant = pattern
                    .to_string()
                    .replace(&format!("/:{name}"), &format!("/{{{name}}}"));
                report.warning(
                    &path.location,
                    problem.hint(format!("for any segment, write {}", quote(&meant))),
                );
            }
        }
        PathMatch::Expression(expression) if !expression.is_anchored() => {
            let problem = ValueProblem::new(format!(
                "{} may begin anywhere in a path",
                quote(expression.text())
            ));
            report.warning(
                &path.location,
                problem.hint("begin it with ^ for whole paths"),
            );
        }
        PathMatch::Expression(_) => {}
    }
}

/// The name behind a colon, which other gateways take for a parameter.
fn colon_name(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Literal(literal) => literal.strip_prefix(':').filter(|name| is_name(name)),
        Segment::Param(_) => None,
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
