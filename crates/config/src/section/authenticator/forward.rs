//! `forward` of an authenticator: the service that judges requests, what it gets, and what is taken
//! from its answers.

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE, WWW_AUTHENTICATE};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, DAY};
use crate::scalar::path::ProbePath;
use crate::scalar::text::DefinedName;
use crate::section::common::header::refused_in_requests;
use crate::section::common::named::NamedSection;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::Located;
use crate::yaml::record::record;
use crate::yaml::words::words;
use tollgate_identity::forward::spec::{
    AnswerCacheSpec, ForwardSpec, IgnoredPart, OnServiceFailure,
};
use tollgate_proxy::upstream::UpstreamSpec;

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

/// Fields that have credentials, and do not say who a client is.
const CREDENTIALS: [HeaderName; 4] = [AUTHORIZATION, COOKIE, SET_COOKIE, WWW_AUTHENTICATE];

/// A service that judges requests. `None`: a mistake was reported.
pub fn forward(
    raw: &RawForwardAuth,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<ForwardSpec> {
    let upstream = raw.upstream.valid();
    let found = upstream.and_then(|name| upstreams.find(name, report));
    let mut are_sound = true;
    for at in raw.copy_headers.items() {
        are_sound &= check_forwarded(at, report);
        if at.value == SET_COOKIE {
            let problem =
                ValueProblem::new("\"set-cookie\" goes on to the upstream, and to no client");
            let hint = "leave it out: a service sets cookies where it answers clients itself, on a route of its own";
            report.warning(&at.location, problem.hint(hint));
        }
    }
    for setting in [&raw.id_header, &raw.plan_header] {
        if let Some(at) = setting.valid() {
            are_sound &= check_forwarded(at, report);
        }
    }
    for setting in [&raw.id_header, &raw.plan_header] {
        if let Some(at) = setting.valid() {
            are_sound &= check_identifying(at, report);
        }
    }
    let cache = raw.cache.build(|cache| {
        if !raw.request_headers.is_present() {
            let problem = ValueProblem::new(
                "an answer is kept for requests with the same fields, whichever they are",
            );
            let hint = "list those that the service goes by in \"request_headers\", such as [authorization, cookie]";
            report.warning(&cache.location, problem.hint(hint));
        }
        let ignore = cache.ignore.values();
        Some(AnswerCacheSpec {
            max_age: cache.max_age.value()?.0,
            ignore: ignore?.unwrap_or_default(),
        })
    });
    if found.is_none() || !are_sound {
        return None;
    }
    Some(ForwardSpec {
        upstream: upstream?.value.0.clone(),
        path: raw.path.value()?.0,
        request_headers: raw.request_headers.values()?,
        copy_headers: raw.copy_headers.values()?.unwrap_or_default(),
        id_header: raw.id_header.optional()?,
        plan_header: raw.plan_header.optional()?,
        timeout: raw.timeout.value()?.0,
        on_failure: raw.on_failure.value()?,
        cache: cache?,
    })
}

/// Whether a field of the service's answers may go on to upstreams. Else a mistake was reported.
fn check_forwarded(at: &Located<HeaderName>, report: &mut Report) -> bool {
    let Some(hint) = refused_in_requests(&at.value) else {
        return true;
    };
    let problem = ValueProblem::new(format!(
        "{} cannot go on to upstreams",
        quote(at.value.as_str())
    ));
    report.mistake(&at.location, problem.hint(hint));
    false
}

/// Whether a field may say who a client is. Else a mistake was reported.
fn check_identifying(at: &Located<HeaderName>, report: &mut Report) -> bool {
    if !CREDENTIALS.contains(&at.value) {
        return true;
    }
    let problem = ValueProblem::new(format!("{} has credentials", quote(at.value.as_str())));
    report.mistake(
        &at.location,
        problem.hint("choose a field of its own, such as x-user"),
    );
    false
}
