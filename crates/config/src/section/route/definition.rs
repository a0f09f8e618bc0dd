//! `routes`: each for itself, then all together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::limit::definition::Limit;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::address::Cidr;
use crate::scalar::number::{BoundedDuration, ByteSize, DAY};
use crate::scalar::text::DefinedName;
use crate::section::authenticator::definition::listed;
use crate::section::common::named::NamedSection;
use crate::section::common::networks::network_rules;
use crate::section::error_pages::{RawErrorPage, error_pages};
use crate::section::limit::uses::{CheckedUse, RawLimitUse, path_params, uses};
use crate::section::listener::serving::{IdentifiedRequests, ServingListeners};
use crate::section::route::action::{self, RawActionKeys};
use crate::section::route::certificates::{CertificateUses, warn_without_certificates};
use crate::section::route::compress::RawCompress;
use crate::section::route::cors::RawCors;
use crate::section::route::fields::RawFieldChanges;
use crate::section::route::identified::{check_limit, check_route};
use crate::section::route::maintenance::RawMaintenance;
use crate::section::route::matching::ambiguity::{MatchedRoute, report_ambiguities};
use crate::section::route::matching::conditions::{RawMatch, matches};
use crate::section::route::matching::hidden::warn_of_hidden;
use crate::section::route::matching::kept::{AmbiguousPaths, warn_of_kept, warn_of_refused};
use crate::section::route::retry::RawRetry;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use tollgate_identity::spec::AuthenticatorSpec;
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_spec::route::table::overlap::MatchIndex;
use tollgate_spec::route::template::{Template, Variable};
use tollgate_spec::route::timeouts::{AnswerTimeLimits, UpstreamTimeLimits};
use tollgate_spec::route::{Match, Route};

record! {
    /// Which requests, and what becomes of them.
    RawRoute at location {
        /// How the route is called in metrics, logs and keys. Unique.
        required name: Located<DefinedName>,
        /// Which requests. Default: all.
        optional r#match: RawMatch,
        /// The names of the listeners that serve it. Default: all.
        optional listeners: NonEmptyList<Located<DefinedName>>,
        /// Paths that some servers read as others: with %2F, %5C, a backslash or ;parameters.
        /// refuse: 400, if another route takes what they read, or if the {names} in the path have
        /// other values there. keep: they are forwarded.
        default("refuse") ambiguous_paths: Located<AmbiguousPaths>,
        /// The keys of its action.
        group action: RawActionKeys,
        /// Only clients in these networks are served; others get 403. Default: all.
        optional allow: NonEmptyList<Located<Cidr>>,
        /// Clients in these networks get 403, also those of allow.
        optional deny: NonEmptyList<Located<Cidr>>,
        /// Maintenance, during which all clients but some get 503: true, false, or how. Default:
        /// false.
        optional maintenance: RawMaintenance,
        /// The authenticators that are asked who the client is, in this order; a client that none
        /// knows gets 401. An empty list: none. Default: those of the listener.
        optional authenticate: Vec<Located<DefinedName>>,
        /// Which pages of other origins may read the answers. Default: those that the upstream
        /// lets.
        optional cors: RawCors,
        /// Changes of the header fields of requests, after the limits have counted them.
        optional request_headers: RawFieldChanges,
        /// Changes of the header fields of all answers, the gateway's own included.
        optional response_headers: RawFieldChanges,
        /// Compresses answers for clients that take it: true, or how. Default: answers are sent as
        /// they come.
        optional compress: RawCompress,
        /// Pages in place of errors. Default: those of the gateway as a whole.
        optional error_pages: NonEmptyList<RawErrorPage>,
        /// Limits that count the route's requests: names, or {limit, cost}.
        optional limits: Vec<RawLimitUse>,
        /// Whether its requests have lines in the access log, if there is one.
        default(true) access_log: Located<bool>,
        /// A request body longer than this is refused with 413. Default: no bound.
        optional max_body: Located<ByteSize<1, { u64::MAX }>>,
        /// From when the limits let the request pass to the response's header section; then 504.
        /// Default: the upstream's timeouts only.
        optional timeout: Located<BoundedDuration<DAY>>,
        /// Time limits of the route, each in place of its upstream's.
        optional timeouts: RawRouteTimeouts,
        /// When requests are sent to the upstream again. Default: only where that can do no harm.
        optional retry: RawRetry,
    }
}

record! {
    /// Time limits of a route.
    RawRouteTimeouts {
        /// To open a connection, and to wait for one at the bounds. Default: the upstream's
        /// connect_timeout.
        optional connect: Located<BoundedDuration<DAY>>,
        /// To the response's header section, each time that the request is sent. Default: the
        /// upstream's response_timeout.
        optional response: Located<BoundedDuration<DAY>>,
        /// Between two pieces of a body. Default: the upstream's idle_timeout.
        optional idle: Located<BoundedDuration<DAY>>,
        /// A tunnel that carries nothing either way is closed after this. Default: the upstream's
        /// tunnel_idle_timeout.
        optional tunnel_idle: Located<BoundedDuration<DAY>>,
        /// From the request's header section until the answer is read from the upstream; then 504,
        /// or the answer is cut. Clients that read slowly are bounded by min_body_rate and
        /// body_timeout. Default: none.
        optional request: Located<BoundedDuration<DAY>>,
    }
}

/// The rest of the file, where a route refers to it.
struct RouteContext<'a> {
    serving: &'a ServingListeners<'a>,
    sections: NamedSections<'a>,
}

/// All routes of the file.
pub struct CheckedRoutes {
    all: Vec<CheckedRoute>,
    /// Their places, by name.
    by_name: HashMap<Arc<str>, usize>,
    /// The requests of each.
    pub matches: MatchIndex,
}

/// A route without a mistake.
pub struct CheckedRoute {
    pub location: Location,
    pub route: Arc<Route>,
    /// Which of its requests have an identity.
    identified: IdentifiedRequests,
    /// The limits that count every request of a listener that serves it, each with the listener's
    /// path.
    listener_limits: HashMap<Arc<str>, String>,
}

/// The sections that routes refer to.
#[derive(Clone, Copy)]
pub struct NamedSections<'a> {
    pub limits: &'a NamedSection<Limit>,
    pub upstreams: &'a NamedSection<UpstreamSpec>,
    pub authenticators: &'a NamedSection<AuthenticatorSpec>,
}

/// All routes. `None`: a mistake was reported.
pub fn build(
    routes: &Setting<NonEmptyList<RawRoute>>,
    serving: &ServingListeners<'_>,
    sections: NamedSections<'_>,
    report: &mut Report,
) -> Option<CheckedRoutes> {
    let raws = &routes.valid()?.0;
    check_names(raws, report);
    let context = RouteContext { serving, sections };
    let mut all_matches = Vec::with_capacity(raws.len());
    for raw in raws {
        all_matches.push(matches(&raw.r#match, report));
    }
    let mut matched = Vec::new();
    let mut built = Vec::new();
    for (raw, matches) in raws.iter().zip(&all_matches) {
        let listeners = raw
            .listeners
            .build(|names| serving.listed(&names.0, report))
            .map(Option::unwrap_or_default);
        let of_listeners = listeners.clone().unwrap_or_default();
        let identified = serving.identified(&raw.authenticate, &of_listeners);
        let conditions = RouteConditions { matches, listeners };
        if let Some(route) = route(raw, conditions, &context, report) {
            let route = Arc::new(route);
            if !route.takes_ambiguous_paths {
                warn_of_refused(&raw.location, &route, report);
            }
            built.push(CheckedRoute {
                location: raw.location.clone(),
                listener_limits: serving.counted(&of_listeners),
                identified,
                route,
            });
        }
        if let Some(matches) = matches {
            matched.push(MatchedRoute {
                name: raw.name.valid().map(|name| &*name.value.0),
                location: &raw.location,
                matches,
                listeners: of_listeners,
            });
        }
    }
    report_ambiguities(&matched, report);
    warn_of_hidden(&matched, report);
    for kept in built
        .iter()
        .filter(|checked| checked.route.takes_ambiguous_paths)
    {
        let others = built.iter().map(|checked| &checked.route);
        warn_of_kept(&kept.location, &kept.route, others, report);
    }
    if built.len() < raws.len() {
        return None;
    }
    let mut by_name = HashMap::new();
    let mut routes = Vec::with_capacity(built.len());
    for (place, checked) in built.iter().enumerate() {
        by_name.insert(checked.route.name.clone(), place);
        routes.push(checked.route.clone());
    }
    Some(CheckedRoutes {
        all: built,
        by_name,
        matches: MatchIndex::new(routes),
    })
}

impl CheckedRoutes {
    pub fn iter(&self) -> impl Iterator<Item = &CheckedRoute> {
        self.all.iter()
    }

    /// The place of the route called `name`.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn get(&self, place: usize) -> Option<&CheckedRoute> {
        self.all.get(place)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|checked| &*checked.route.name)
    }

    pub fn routes(&self) -> Vec<Arc<Route>> {
        let mut routes = Vec::with_capacity(self.all.len());
        for checked in &self.all {
            routes.push(checked.route.clone());
        }
        routes
    }

    /// Reports that a limit cannot count the requests of `route`, or of the part of it that takes
    /// those of `matches`.
    pub fn check_added(
        &self,
        added: &CheckedUse,
        route: &CheckedRoute,
        matches: &Match,
        report: &mut Report,
    ) {
        check_limit(added, &route.identified, report);
        check_params(added, Some(matches), report);
        check_listeners(added, &route.listener_limits, report);
    }
}

fn check_names(raws: &[RawRoute], report: &mut Report) {
    let mut lines = HashMap::new();
    for raw in raws {
        let Setting::Valid(Located { location, value }) = &raw.name else {
            continue;
        };
        match lines.entry(value.0.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(location.clone());
            }
            Entry::Occupied(line) => {
                let name = quote(&value.0);
                let line = line.get().line_beside(location);
                let problem =
                    ValueProblem::new(format!("another route is called {name}, on {line}"));
                report.mistake(location, problem.hint("give each route a name of its own"));
            }
        }
    }
}

/// The conditions of a route. `None`: a mistake was reported.
struct RouteConditions<'a> {
    matches: &'a Option<Match>,
    listeners: Option<Vec<Arc<str>>>,
}

fn route(
    raw: &RawRoute,
    conditions: RouteConditions<'_>,
    context: &RouteContext<'_>,
    report: &mut Report,
) -> Option<Route> {
    let matches = conditions.matches.as_ref();
    let listeners = conditions.listeners;
    let served_by = listeners.as_deref().unwrap_or_default();
    let action = action::build(&raw.action, matches, context.sections.upstreams, report);
    let used = uses(&raw.limits, context.sections.limits, report);
    let authenticate = raw
        .authenticate
        .build(|names| listed(names, context.sections.authenticators, report));
    let identified = context.serving.identified(&raw.authenticate, served_by);
    check_route(
        &raw.action,
        used.as_deref().unwrap_or_default(),
        templates(raw),
        &identified,
        report,
    );
    let listener_limits = context.serving.counted(served_by);
    for used in used.iter().flatten() {
        check_params(used, matches, report);
        check_listeners(used, &listener_limits, report);
    }
    if let Some(listener) = context.serving.without_certificates(served_by) {
        let certificate_uses = CertificateUses {
            authenticate: &raw.authenticate,
            authenticators: context.sections.authenticators,
            limits: used.as_deref().unwrap_or_default(),
        };
        warn_without_certificates(&certificate_uses, templates(raw), &listener, report);
    }
    let max_body = raw.max_body.build(|at| Some(at.value.0));
    let head = raw.timeout.build(|at| Some(at.value.0));
    let times = raw.timeouts.build(time_limits);
    let request_fields = raw.request_headers.build(|raw| raw.for_requests(report));
    let response_fields = raw.response_headers.build(|raw| raw.for_answers(report));
    for at in templates(raw) {
        check_template(at, matches, report);
    }
    let cors = raw.cors.build(|raw| raw.build(report).map(Arc::new));
    let compression = raw.compress.build(|raw| raw.build(report).map(Arc::new));
    let error_pages = raw.error_pages.build(|raw| error_pages(raw, report));
    let retry = raw.retry.build(|raw| raw.build(report).map(Arc::new));
    let networks = network_rules(&raw.allow, &raw.deny, report);
    let maintenance = raw.maintenance.build(|raw| raw.build(report));
    let name = raw.name.value()?.0;
    let (upstream_time, whole_time) = match times? {
        Some(times) => (times.upstream, times.request),
        None => (UpstreamTimeLimits::default(), None),
    };
    Some(Route {
        counted_as: name.clone(),
        name,
        matches: matches?.clone(),
        listeners: listeners?,
        takes_ambiguous_paths: raw.ambiguous_paths.value()? == AmbiguousPaths::Keep,
        action: action?,
        networks: networks?,
        maintenance: maintenance?.flatten(),
        authenticate: authenticate?,
        cors: cors?,
        request_fields: request_fields?.unwrap_or_default().into(),
        response_fields: response_fields?.unwrap_or_default().into(),
        compression: compression?,
        error_pages: error_pages?,
        limits: used?.into_iter().map(|used| used.limit_use).collect(),
        is_logged: raw.access_log.value()?,
        max_body: max_body?,
        answer_time: AnswerTimeLimits {
            head: head?,
            whole: whole_time,
        },
        upstream_time,
        retry: retry?,
    })
}

/// The time limits that the route has itself. `None`: a mistake was
/// reported.
fn time_limits(raw: &RawRouteTimeouts) -> Option<RouteTimeLimits> {
    let RawRouteTimeouts {
        connect,
        response,
        idle,
        tunnel_idle,
        request,
    } = raw;
    Some(RouteTimeLimits {
        upstream: UpstreamTimeLimits {
            connect: time_limit(connect)?,
            response: time_limit(response)?,
            idle: time_limit(idle)?,
            tunnel_idle: time_limit(tunnel_idle)?,
        },
        request: time_limit(request)?,
    })
}

fn time_limit(setting: &Setting<Located<BoundedDuration<DAY>>>) -> Option<Option<Duration>> {
    setting.build(|at| Some(at.value.0))
}

/// The time limits of a route.
struct RouteTimeLimits {
    /// The limits in place of those of its upstream.
    upstream: UpstreamTimeLimits,
    /// The limit of the whole request.
    request: Option<Duration>,
}

/// Every text of the route that may have variables.
fn templates(raw: &RawRoute) -> impl Iterator<Item = &Located<Template>> {
    let changes = [&raw.request_headers, &raw.response_headers]
        .into_iter()
        .filter_map(Setting::valid);
    let redirect = raw.action.redirect.valid().and_then(|raw| raw.to.valid());
    changes.flat_map(RawFieldChanges::templates).chain(redirect)
}

fn check_template(at: &Located<Template>, matches: Option<&Match>, report: &mut Report) {
    let Some(matches) = matches else { return };
    for variable in at.value.variables() {
        if let Variable::PathParam(param) = variable
            && !matches.has_param(param)
        {
            let problem = ValueProblem::new(format!("this route's path does not have {{{param}}}"));
            report.mistake(
                &at.location,
                problem.hint(format!("put {{{param}}} into the route's path")),
            );
        }
    }
}

fn check_params(used: &CheckedUse, matches: Option<&Match>, report: &mut Report) {
    let Some(matches) = matches else { return };
    for param in path_params(&used.limit_use.limit) {
        if matches.has_param(param) {
            continue;
        }
        let limit = quote(&used.limit_use.limit.name);
        let problem = ValueProblem::new(format!(
            "limit {limit} counts by {{{param}}}, which this route's path does not have"
        ));
        report.mistake(
            &used.location,
            problem.hint(format!(
                "put {{{param}}} into the route's path, or use another limit"
            )),
        );
    }
}

/// A request takes from each bucket once.
fn check_listeners(used: &CheckedUse, listeners: &HashMap<Arc<str>, String>, report: &mut Report) {
    if let Some(listener) = listeners.get(&used.limit_use.limit.name) {
        let limit = quote(&used.limit_use.limit.name);
        let problem = ValueProblem::new(format!(
            "{listener} counts every request by limit {limit} already"
        ));
        report.mistake(
            &used.location,
            problem.hint("list the limit in one of the two places"),
        );
    }
}
