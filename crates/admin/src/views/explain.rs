//! An explanation as JSON: for `GET /explain`, with the present level of each bucket, and for
//! `tollgate explain`.
//!
//! Repeats no value of a header field, neither of the request nor of a route's conditions.

use serde::{Deserialize, Serialize};
use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::on_limit::{Degrade, OnLimit};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::limit::units::{show_duration, show_size};
use tollgate_limiter::request::explanation::{AppliedLimit, CountedBy};

use super::bucket::show;
use super::policy::{LevelView, PolicyView};
use crate::bucket_service::{BucketReading, LevelSource};
use tollgate_gateway::explain::{
    ConsideredRoute, DescribedRequest, Explanation, ForwardedRequest, Outcome, RouteMatch, Routed,
};
use tollgate_spec::route::{Action, HeaderMatch, HostMatch, Match, PathMatch, Route};
use tollgate_wire::error::Failure;

/// The way of a request through the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExplainView {
    pub request: RequestView,
    /// The route that applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The refusal by the gateway itself, before any limit is asked or because of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedView>,
    /// In the order in which they are asked.
    pub limits: Vec<LimitView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratelimit_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionView>,
    /// Every route: those that host and path allow first, most specific first.
    pub routes: Vec<RouteView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RequestView {
    pub method: String,
    /// In the form that routes are matched by.
    pub host: String,
    pub path: String,
    /// The client that limits count.
    pub client_ip: String,
    pub listener: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RefusedView {
    pub status: u16,
    pub problem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LimitView {
    pub limit: String,
    pub policy: PolicyView,
    /// The key in the store, less the store's prefix. None: it does not apply, or refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Parts of the key that the request lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// The consequence of a lacking part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the limit does not act on this request, or not on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
    /// The treatment of a request that it denies.
    pub on_limit: String,
    /// The decision while the store is away.
    pub outage: String,
    /// Only of a running gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<LevelSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ActionView {
    Forward {
        upstream: String,
        endpoints: Vec<String>,
        target: String,
        /// The Host that the upstream sees.
        host: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_body: Option<String>,
    },
    Respond {
        status: u16,
    },
    Redirect {
        status: u16,
        /// With its variables.
        to: String,
    },
    Echo,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteView {
    pub route: String,
    /// The conditions of the route, in words.
    pub takes: String,
    pub why: WhyView,
}

/// Whether a route takes the request, as a word of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyView {
    Applies,
    LessSpecific,
    OtherMethod,
    OtherHeader,
    OtherPath,
    OtherHost,
    OtherListener,
}

impl ExplainView {
    /// `explanation` is of `described`.
    pub fn new(described: &DescribedRequest, explanation: &Explanation) -> Self {
        let request = RequestView {
            method: described.method.to_string(),
            host: explanation.host.clone(),
            path: explanation.path.clone(),
            client_ip: explanation.client_ip.to_string(),
            listener: described.listener,
        };
        let limits = &explanation.limits;
        let mut refusing = limits.limits.iter();
        let refusing = refusing.find(|limit| limit.bucket == CountedBy::Refused);
        let key_missing = refusing.map(|limit| Failure::Denied(limit.key_missing()));
        let bare = Self {
            request,
            route: None,
            refused: key_missing.as_ref().map(Into::into),
            limits: limits.limits.iter().map(LimitView::new).collect(),
            ratelimit_policy: match &limits.policy {
                Some(policy) => policy.to_str().ok().map(str::to_owned),
                None => None,
            },
            action: None,
            routes: explanation.routes.iter().map(RouteView::new).collect(),
        };
        match &explanation.outcome {
            Outcome::Routed(routed) => bare.routed(routed),
            Outcome::Refused(failure) | Outcome::Malformed(failure) => bare.refused(failure),
            Outcome::Forbidden { route, failure } => {
                let route = route.as_ref().map(|route| route.name.to_string());
                Self { route, ..bare }.refused(failure)
            }
        }
    }

    fn routed(self, routed: &Routed) -> Self {
        let view = Self {
            route: Some(routed.route.name.to_string()),
            action: Some(ActionView::new(&routed.route, routed.sent.as_ref())),
            ..self
        };
        match &routed.sent {
            Some(ForwardedRequest {
                target: Err(malformed),
                ..
            }) => view.refused(malformed),
            Some(_) | None => view,
        }
    }

    /// Limits come first, and so does what they refuse.
    fn refused(self, failure: &Failure) -> Self {
        Self {
            refused: self.refused.or_else(|| Some(failure.into())),
            ..self
        }
    }
}

impl From<&Failure> for RefusedView {
    fn from(failure: &Failure) -> Self {
        let allow = match failure {
            Failure::MethodNotAllowed(allow) => allow.to_str().ok().map(str::to_owned),
            _ => None,
        };
        Self {
            status: failure.status().as_u16(),
            problem: failure.name().to_owned(),
            allow,
        }
    }
}

impl LimitView {
    fn new(applied: &AppliedLimit) -> Self {
        let AppliedLimit {
            limit,
            lacking,
            bucket,
            ..
        } = applied;
        let policy = PolicyView::new(applied);
        let (bucket, note) = match bucket {
            CountedBy::Enforced(key) | CountedBy::Shadow(key) if lacking.is_empty() => {
                (Some(show(key)), None)
            }
            CountedBy::Enforced(key) | CountedBy::Shadow(key) => (
                Some(show(key)),
                Some("shared with all requests that lack it"),
            ),
            CountedBy::Exempt => (None, None),
            CountedBy::Skipped => (None, Some("does not apply without it")),
            CountedBy::Refused => (None, Some("refuses the request without it")),
        };
        let outage = match policy.on_outage.as_str() {
            "allow" => "every request passes",
            "deny" => "every request is denied",
            timed if timed.ends_with("then deny") => {
                "each node enforces its share for that time, then denies every request"
            }
            timed if timed.ends_with("then allow") => {
                "each node enforces its share for that time, then every request passes"
            }
            _ => "each node enforces its share: the limit divided by the nodes alive",
        };
        Self {
            limit: limit.name.to_string(),
            policy,
            bucket,
            lacking: if applied.bucket == CountedBy::Exempt {
                Vec::new()
            } else {
                lacking.clone()
            },
            enforced: enforced(limit, &applied.bucket).map(str::to_owned),
            on_limit: over(&limit.on_limit),
            note: note.map(str::to_owned),
            outage: outage.to_owned(),
            level: None,
            source: None,
            store: None,
        }
    }

    /// Adds the present level of its bucket.
    pub fn set_level(&mut self, reading: BucketReading) {
        self.level = Some(reading.level.into());
        self.source = Some(reading.source);
        self.store = reading.away;
    }
}

/// Why the limit does not act. `None`: it acts on every request.
fn enforced(limit: &Limit, bucket: &CountedBy) -> Option<&'static str> {
    match bucket {
        CountedBy::Exempt => Some("not on this request, which is exempt"),
        CountedBy::Shadow(_) if limit.rollout == Rollout::NONE => {
            Some("not at all: it counts, and lets everything pass")
        }
        CountedBy::Shadow(_) => Some("not on this key yet: it counts, and lets it pass"),
        CountedBy::Enforced(_) if limit.rollout != Rollout::ALL => {
            Some("on this key already, and not on all")
        }
        CountedBy::Enforced(_) | CountedBy::Skipped | CountedBy::Refused => None,
    }
}

/// The treatment of a request over the limit, in words.
pub fn over(on_limit: &OnLimit) -> String {
    match on_limit {
        OnLimit::Reject => "refused with 429".to_owned(),
        OnLimit::Answer(answer) => format!("refused with {}", answer.status.as_u16()),
        OnLimit::Queue(bounds) => format!(
            "waits up to {}, with at most {} others on this node; then refused with 429",
            show_duration(bounds.max_wait),
            bounds.max_waiting.get() - 1
        ),
        OnLimit::Degrade(Degrade::Upstream(name)) => format!("passes, and goes to {name}"),
        OnLimit::Degrade(Degrade::Respond(answer)) => {
            format!("passes, and is answered {}", answer.status.as_u16())
        }
    }
}

impl ActionView {
    fn new(route: &Route, sent: Option<&ForwardedRequest>) -> Self {
        match (&route.action, sent) {
            (Action::Respond(respond), _) => Self::Respond {
                status: respond.status.as_u16(),
            },
            (Action::Redirect(redirect), _) => Self::Redirect {
                status: redirect.status.as_u16(),
                to: redirect.to.to_string(),
            },
            (Action::Forward(_) | Action::Distribute(_), Some(sent)) => Self::Forward {
                upstream: sent.upstream.to_string(),
                endpoints: sent.endpoints.clone(),
                target: sent.target.clone().unwrap_or_default(),
                host: match &sent.host {
                    Some(host) => host.to_str().unwrap_or("(not text)").to_owned(),
                    None => "the endpoint's".to_owned(),
                },
                timeout: route.answer_time.head.map(show_duration),
                max_body: route.max_body.map(show_size),
            },
            (Action::Echo | Action::Forward(_) | Action::Distribute(_), _) => Self::Echo,
        }
    }
}

impl RouteView {
    fn new(considered: &ConsideredRoute) -> Self {
        let why = match considered.why {
            RouteMatch::Applies => WhyView::Applies,
            RouteMatch::LessSpecific => WhyView::LessSpecific,
            RouteMatch::Method => WhyView::OtherMethod,
            RouteMatch::Header => WhyView::OtherHeader,
            RouteMatch::Path => WhyView::OtherPath,
            RouteMatch::Host => WhyView::OtherHost,
            RouteMatch::Listener => WhyView::OtherListener,
        };
        Self {
            route: considered.route.name.to_string(),
            takes: conditions(&considered.route.matches),
            why,
        }
    }
}

/// Pairs of a host and a path that are shown of a route: all of them may be megabytes.
const MOST_PLACES: usize = 8;

/// Characters that are shown of a pair.
const MOST_OF_PLACE: usize = 200;

/// The conditions of a route: `api.example.com/users/{id}, GET or POST, with x-canary`.
pub fn conditions(matches: &Match) -> String {
    let mut places = Vec::new();
    for host in &matches.hosts {
        for path in &matches.paths {
            if places.len() < MOST_PLACES {
                places.push(place(host, path));
            }
        }
    }
    let mut text = places.join(" or ");
    let more = (matches.hosts.len() * matches.paths.len()).saturating_sub(MOST_PLACES);
    if more > 0 {
        text = format!("{text} or {more} more");
    }
    if !matches.methods.is_empty() {
        let methods: Vec<_> = matches.methods.iter().map(ToString::to_string).collect();
        text = format!("{text}, {}", methods.join(" or "));
    }
    if !matches.headers.is_empty() {
        let headers: Vec<_> = matches.headers.iter().map(condition).collect();
        text = format!("{text}, with {}", headers.join(" and "));
    }
    text
}

/// The start of a host and a path.
fn place(host: &HostMatch, path: &PathMatch) -> String {
    let place = match host {
        HostMatch::Any => path.to_string(),
        HostMatch::Exact(host) => format!("{host}{path}"),
        HostMatch::Suffix(suffix) => format!("*{suffix}{path}"),
    };
    match place.char_indices().nth(MOST_OF_PLACE) {
        Some((end, _)) => format!("{}…", &place[..end]),
        None => place,
    }
}

fn condition(header: &HeaderMatch) -> String {
    match header.value {
        Some(_) => format!("a certain {}", header.name),
        None => format!("any {}", header.name),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_config as config;

    /// The conditions of a route with this `match`.
    fn takes(conditions: &str) -> String {
        let text = format!(
            "listeners: [{{address: \"127.0.0.1:8080\"}}]\nroutes: [{{name: a, match: {{{conditions}}}, echo: true}}]\n"
        );
        let loaded = config::parse("routes.yaml", &text, &|_| None).ok().unwrap();
        super::conditions(&loaded.config.routes[0].matches)
    }

    #[test]
    fn a_route_shows_so_much_of_what_it_takes_and_no_value_of_a_header() {
        assert_eq!(
            takes(
                "host: '*.b.example', path: '/users/{id}', methods: [GET, POST], headers: {x-key: hunter2, x-b: {present: true}}"
            ),
            "*.b.example/users/{id}, GET or POST, with a certain x-key and any x-b"
        );
        let hosts: Vec<_> = (0..4).map(|number| format!("h{number}.example")).collect();
        let shown = takes(&format!(
            "host: [{}], path: [/a, /b, /c/{}]",
            hosts.join(", "),
            "x".repeat(300)
        ));
        assert!(
            shown.contains("x… or h1") && shown.ends_with("/b or 4 more") && shown.len() < 8 * 220,
            "{shown}"
        );
    }
}
