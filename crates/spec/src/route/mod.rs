//! A route as data: which requests it takes and what it does with them, as an operator writes it
//! under `routes`. `table` finds the route of a request, `path` normalizes the path to look it up
//! by, `expression` has the regular expressions in paths, `networks` says which clients a listener
//! or a route takes, `cors` which pages may read its answers, `distribution` how requests are split
//! over upstreams and mirrored, `fields` which header fields it changes, `compression` which
//! answers it compresses, `error_pages` what it shows in place of errors, `maintenance` when it is
//! not served; `template` is a text with variables, and `location` where one of them sends clients;
//! `timeouts` has time limits, and `retry` says when requests are sent again.

pub mod compression;
pub mod cors;
pub mod distribution;
pub mod error_pages;
pub mod expression;
pub mod fields;
pub mod location;
pub mod maintenance;
pub mod networks;
pub mod path;
pub mod retry;
pub mod table;
pub mod template;
pub mod timeouts;

use std::fmt;
use std::sync::Arc;

use compression::CompressionRules;
use cors::CorsSpec;
use distribution::{MirrorSpec, UpstreamSplit};
use error_pages::ErrorPages;
use expression::PathExpression;
use fields::FieldChanges;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use maintenance::MaintenanceSpec;
use networks::NetworkRules;
use retry::RetryPolicy;
use template::Template;
use timeouts::{AnswerTimeLimits, UpstreamTimeLimits};
use tollgate_limiter::limit::definition::LimitUse;
pub use tollgate_limiter::limit::fixed_response::FixedResponse;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub name: Arc<str>,
    /// The name in keys of limits: a part of a route has that of the whole.
    pub counted_as: Arc<str>,
    pub matches: Match,
    /// The names of the listeners that serve it. Empty: all do.
    pub listeners: Vec<Arc<str>>,
    /// Whether it takes paths that its upstream may read as those of another route.
    pub takes_ambiguous_paths: bool,
    pub action: Action,
    /// The clients that it takes.
    pub networks: NetworkRules,
    /// When it is under maintenance. `None`: never.
    pub maintenance: Option<Arc<MaintenanceSpec>>,
    /// The authenticators that are asked who the client is, by name. Empty: none is. `None`: those
    /// of the listener.
    pub authenticate: Option<Vec<Arc<str>>>,
    /// The pages of other origins that may read its answers. `None`: none but those that the
    /// upstream lets.
    pub cors: Option<Arc<CorsSpec>>,
    /// Changes of the fields of requests, after the limits have counted them.
    pub request_fields: Arc<FieldChanges>,
    /// Changes of the fields of answers.
    pub response_fields: Arc<FieldChanges>,
    /// Which answers are compressed, and how. `None`: none.
    pub compression: Option<Arc<CompressionRules>>,
    /// Pages in place of errors. `None`: those of requests without a route.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// The route's own limits; the listener's come before them.
    pub limits: Vec<LimitUse>,
    /// Whether requests have lines in the access log, if there is one.
    pub is_logged: bool,
    /// A request body longer than this is refused with 413. `None`: no bound.
    pub max_body: Option<u64>,
    pub answer_time: AnswerTimeLimits,
    /// In place of the upstream's.
    pub upstream_time: UpstreamTimeLimits,
    /// When its requests are sent again. `None`: only where that can do no harm.
    pub retry: Option<Arc<RetryPolicy>>,
}

impl Route {
    /// Whether the listener of this name serves it. `None`: one without a name.
    pub fn is_served_by(&self, listener: Option<&str>) -> bool {
        self.listeners.is_empty()
            || listener.is_some_and(|name| self.listeners.iter().any(|served| **served == *name))
    }
}

/// Which requests a route takes: all conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Any of these. Not empty.
    pub hosts: Vec<HostMatch>,
    /// Any of these. Not empty; those that go first stand first.
    pub paths: Vec<PathMatch>,
    /// Empty: any method.
    pub methods: Vec<Method>,
    pub headers: Vec<HeaderMatch>,
}

/// The hosts that a route takes: in lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    Any,
    Exact(Arc<str>),
    /// `*.example.com`, stored as `.example.com`.
    Suffix(Arc<str>),
}

/// The paths that a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Pattern(PathPattern),
    Expression(PathExpression),
}

/// `/exact`, `/users/{id}`, `/prefix/*`: segments, and whether anything may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub segments: Vec<Segment>,
    /// The pattern ends in `/*`: it takes the prefix itself and everything below it.
    pub rest: bool,
}

/// A segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Literal(Arc<str>),
    /// `{name}`: one segment, not empty.
    Param(Arc<str>),
}

/// A header field that must be present, with this value or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    pub name: HeaderName,
    pub value: Option<HeaderValue>,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward(Forward),
    /// Forwards to one of several upstreams, or with a copy to another.
    Distribute(Box<Distribution>),
    Respond(FixedResponse),
    Redirect(RedirectRule),
    /// Answers with a description of the request.
    Echo,
}

impl Action {
    /// The rule by which requests are forwarded, if they are.
    pub fn forward(&self) -> Option<&Forward> {
        match self {
            Self::Forward(rule) => Some(rule),
            Self::Distribute(distribution) => Some(&distribution.forward),
            Self::Respond(_) | Self::Redirect(_) | Self::Echo => None,
        }
    }

    /// The upstreams that requests may go to, copies aside.
    pub fn upstreams(&self) -> Vec<&Arc<str>> {
        match self {
            Self::Forward(rule) => vec![&rule.upstream],
            Self::Distribute(distribution) => distribution.upstreams().collect(),
            Self::Respond(_) | Self::Redirect(_) | Self::Echo => Vec::new(),
        }
    }
}

/// Sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectRule {
    pub to: Template,
    pub status: StatusCode,
}

/// Forwarding to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub upstream: Arc<str>,
    pub rewrite: Rewrite,
    pub host: HostPolicy,
}

/// Forwarding to one of several upstreams, with a copy for another, or one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The rule for all of them. Its upstream is the first of a split.
    pub forward: Forward,
    pub split: Option<UpstreamSplit>,
    pub mirror: Option<MirrorSpec>,
}

impl Distribution {
    /// The upstreams that requests may go to, apart from copies.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<str>> {
        let parts = self
            .split
            .iter()
            .flat_map(UpstreamSplit::parts)
            .map(|part| &part.upstream);
        parts.chain(self.split.is_none().then_some(&self.forward.upstream))
    }
}

/// `95% orders, 5% orders-canary`
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(split) = &self.split else {
            return f.write_str(&self.forward.upstream);
        };
        let parts = split
            .parts()
            .iter()
            .map(|part| format!("{} {}", part.share, part.upstream));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

/// How the path is rewritten; the query stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Rewrite {
    #[default]
    Keep,
    /// Removes this prefix (whole segments); the rest starts with `/`.
    StripPrefix(Arc<str>),
    /// Replaces the prefix `from` by `to`.
    ReplacePrefix { from: Arc<str>, to: Arc<str> },
    /// Replaces the whole path.
    Replace(Arc<str>),
}

/// Which Host the upstream sees.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum HostPolicy {
    /// The client's.
    #[default]
    Preserve,
    /// The endpoint's authority.
    Endpoint,
    Fixed(HeaderValue),
}
