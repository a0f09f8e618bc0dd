//! `forward` of an authenticator: the service that is asked, what it gets, and what is taken from
//! its answers.

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE, WWW_AUTHENTICATE};

use crate::config::report::{Report, ValueProblem, quote};
use crate::config::scalar::number::{BoundedDuration, DAY};
use crate::config::scalar::path::ProbePath;
use crate::config::scalar::text::DefinedName;
use crate::config::section::common::header::refused_in_requests;
use crate::config::section::common::named::NamedSection;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting};
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::identity::forward::spec::{AnswerCacheSpec, ForwardSpec, IgnoredPart, OnServiceFailure};
use crate::upstream::UpstreamSpec;

record! {
    /// A service that is asked about each request.
    RawForwardAuth {
        /// The upstream that the service is.
        required upstream: Located<DefinedName>,
        /// The path that is asked for, with a query if it has one.
        default("/") path: Located<ProbePath>,
        /// The fields of requests that the service gets. Default: all but those of a connection and
        /// of a body.
        optional request_headers: NonEmptyList<Located<HeaderName>>,
        /// The fields of its answers that go upstream with the request. Clients cannot set them.
        optional copy_headers: NonEmptyList<Located<HeaderName>>,
        /// The field of its answers that has the client's id.
        optional id_header: Located<HeaderName>,
        /// The field of its answers that has the client's plan.
        optional plan_header: Located<HeaderName>,
        /// For its whole answer.
        default("5s") timeout: Located<BoundedDuration<DAY>>,
        /// Requests while the service fails: refuse them (503), or allow them, without an identity.
        default("refuse") on_failure: Located<OnServiceFailure>,
        /// Keeps answers that let a request pass. Default: the service is asked about every
        /// request.
        optional cache: RawAnswerCache,
    }
}

record! {
    /// How answers of a service are kept.
    RawAnswerCache at location {
        /// How long at most, such as 30s. The answer's Cache-Control may say less.
        required max_age: Located<BoundedDuration<3_600_000, 100>>,
        /// Parts of a request that the answer does not depend on: uri, method, client_ip. Default:
        /// it depends on all that the service gets.
        optional ignore: NonEmptyList<Located<IgnoredPart>>,
    }
}

words! {
    IgnoredPart: "a part of a request" { "uri" => Uri, "method" => Method, "client_ip" => ClientIp }
}

words! {
    OnServiceFailure: "refuse or allow" { "refuse" => Refuse, "allow" => Allow }
}

/// Fields that say how somebody authenticates itself, and not who that is.
const CREDENTIALS: [HeaderName; 4] = [AUTHORIZATION, COOKIE, SET_COOKIE, WWW_AUTHENTICATE];

/// A service that is asked. `None`: a mistake was reported.
pub fn forward(
    raw: &RawForwardAuth,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<ForwardSpec> {
    let upstream = raw.upstream.valid();
    let found = upstream.and_then(|name| upstreams.find(name, report));
    let copied = raw
        .copy_headers
        .valid()
        .into_iter()
        .flat_map(|names| &names.0);
    let taken = copied
        .chain(raw.id_header.valid())
        .chain(raw.plan_header.valid());
    let mut sound = true;
    for at in taken {
        if let Some(hint) = refused_in_requests(&at.value) {
            let problem = ValueProblem::new(format!(
                "{} cannot go on to upstreams",
                quote(at.value.as_str())
            ));
            report.mistake(&at.location, problem.hint(hint));
            sound = false;
        }
    }
    for at in raw
        .id_header
        .valid()
        .into_iter()
        .chain(raw.plan_header.valid())
    {
        if CREDENTIALS.contains(&at.value) {
            let problem =
                ValueProblem::new(format!("{} has credentials", quote(at.value.as_str())));
            report.mistake(
                &at.location,
                problem.hint("choose a field of its own, such as x-user"),
            );
            sound = false;
        }
    }
    let (request_headers, copy_headers) = (names(&raw.request_headers), names(&raw.copy_headers));
    let (id_header, plan_header) = (name(&raw.id_header), name(&raw.plan_header));
    let (path, timeout, on_failure) = (
        raw.path.value(),
        raw.timeout.value(),
        raw.on_failure.value(),
    );
    let cache = raw.cache.build(|raw_cache| {
        if !raw.request_headers.is_present() {
            let problem = ValueProblem::new("an answer is kept for requests with the same fields, whichever they are");
            let hint = "list those that the service goes by in \"request_headers\", such as [authorization, cookie]";
            report.warning(&raw_cache.location, problem.hint(hint));
        }
        let ignore = raw_cache.ignore.build(|parts| Some(parts.0.iter().map(|at| at.value).collect()));
        Some(AnswerCacheSpec { max_age: raw_cache.max_age.value()?.0, ignore: ignore?.unwrap_or_default() })
    });
    found.filter(|_| sound)?;
    Some(ForwardSpec {
        upstream: upstream?.value.0.clone(),
        path: path?.0,
        request_headers: request_headers?,
        copy_headers: copy_headers?.unwrap_or_default(),
        id_header: id_header?,
        plan_header: plan_header?,
        timeout: timeout?.0,
        on_failure: on_failure?,
        cache: cache?,
    })
}

fn names(setting: &Setting<NonEmptyList<Located<HeaderName>>>) -> Option<Option<Vec<HeaderName>>> {
    setting.build(|names| Some(names.0.iter().map(|at| at.value.clone()).collect()))
}

fn name(setting: &Setting<Located<HeaderName>>) -> Option<Option<HeaderName>> {
    setting.build(|at| Some(at.value.clone()))
}
