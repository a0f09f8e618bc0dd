//! What an operator writes under `routes`, as the gateway uses it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
pub use tollgate_limiter::limit::fixed_response::FixedResponse;
use tollgate_limiter::limit::spec::LimitUse;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub name: Arc<str>,
    pub matches: Match,
    pub action: Action,
    /// The route's own; the listener's come before them.
    pub limits: Vec<LimitUse>,
    /// A request body longer than this is refused with 413. `None`: no bound.
    pub max_body: Option<u64>,
    /// From the request's header section to the response's. `None`: only the upstream's own timeouts.
    pub timeout: Option<Duration>,
}

/// Which requests a route takes: all conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    pub host: HostMatch,
    pub path: PathPattern,
    /// Empty: any method.
    pub methods: Vec<Method>,
    pub headers: Vec<HeaderMatch>,
}

/// Lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    Any,
    Exact(Arc<str>),
    /// `*.example.com`, kept as `.example.com`.
    Suffix(Arc<str>),
}

/// `/exact`, `/users/{id}`, `/prefix/*`: segments, and whether anything may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub segments: Vec<Segment>,
    /// Ends in `/*`: the prefix itself and everything below it.
    pub rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Literal(Arc<str>),
    /// `{name}`: one segment, not empty.
    Param(Arc<str>),
}

/// A header that must be there, with this value or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    pub name: HeaderName,
    pub value: Option<HeaderValue>,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward(Forward),
    Respond(FixedResponse),
    /// Answers with a description of the request.
    Echo,
}

/// Forwarding to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub upstream: Arc<str>,
    pub rewrite: Rewrite,
    pub host: HostPolicy,
}

/// What becomes of the path; the query stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Rewrite {
    #[default]
    Keep,
    /// Removes this prefix (whole segments); what is left starts with `/`.
    StripPrefix(Arc<str>),
    /// Replaces the prefix `from` by `to`.
    ReplacePrefix { from: Arc<str>, to: Arc<str> },
    /// Replaces the whole path.
    Replace(Arc<str>),
}

/// The Host that the upstream sees.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum HostPolicy {
    /// The client's.
    #[default]
    Preserve,
    /// The endpoint's authority.
    Endpoint,
    Fixed(HeaderValue),
}
