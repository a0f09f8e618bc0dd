//! A file of endpoints, against the upstream that it belongs to.

use crate::config::file::balance::RawEndpoint;
use crate::config::report::{Location, Report, ValueProblem};
use crate::upstream::UpstreamSpec;
use crate::upstream::discovery::MOST_ENDPOINTS;
use crate::upstream::endpoints::EndpointSpec;
use crate::upstream::health::check::HealthCheck;
use crate::upstream::url::{EndpointScheme, EndpointUrl};

/// The endpoints of `upstream` that a file lists. `None`: a mistake was reported.
pub fn endpoints(
    start: &Location,
    raws: &[RawEndpoint],
    upstream: &UpstreamSpec,
    report: &mut Report,
) -> Option<Vec<EndpointSpec>> {
    if raws.len() > MOST_ENDPOINTS {
        let problem = ValueProblem::new(format!("{} endpoints are too many", raws.len()));
        report.mistake(
            start,
            problem.hint(format!("list {MOST_ENDPOINTS} at most")),
        );
        return None;
    }
    let mut are_fine = true;
    for (index, raw) in raws.iter().enumerate() {
        if raws[..index]
            .iter()
            .any(|before| before.url.value == raw.url.value)
        {
            let problem = ValueProblem::new("the endpoint is listed twice");
            report.mistake(
                &raw.url.location,
                problem.hint("give it a weight of 2 instead"),
            );
            are_fine = false;
        }
        if let Some(problem) = problem(&raw.url.value, upstream) {
            report.mistake(&raw.url.location, problem);
            are_fine = false;
        }
    }
    if let (true, Some(first)) = (raws.iter().all(|raw| raw.backup), raws.first()) {
        let problem = ValueProblem::new(
            "every endpoint is a backup, and there is none that it could stand in for",
        );
        report.mistake(
            &first.url.location,
            problem.hint("remove \"backup\" from the endpoints that are used first"),
        );
        are_fine = false;
    }
    let endpoint = |raw: &RawEndpoint| EndpointSpec {
        url: raw.url.value.clone(),
        weight: raw.weight,
        priority: u16::from(raw.backup),
        host: None,
    };
    are_fine.then(|| raws.iter().map(endpoint).collect())
}

/// Why an endpoint with this URL cannot be one of `upstream`.
fn problem(url: &EndpointUrl, upstream: &UpstreamSpec) -> Option<ValueProblem> {
    let is_grpc = upstream
        .health
        .as_ref()
        .is_some_and(|health| matches!(health.check, HealthCheck::Grpc { .. }));
    match (url.scheme, &upstream.tls) {
        (EndpointScheme::Https, None) => Some(
            ValueProblem::new("the upstream says nothing of TLS")
                .hint("write \"tls: {}\" under the upstream"),
        ),
        (EndpointScheme::Https, Some(tls)) if tls.name_of(url).is_none() => {
            let problem = ValueProblem::new("its certificate has no name that could be verified");
            Some(problem.hint("give \"server_name\" under the upstream's \"tls\""))
        }
        (EndpointScheme::H2c, _) if upstream.proxy_protocol => {
            let problem = ValueProblem::new(
                "with proxy_protocol, a connection carries one request, over HTTP/1.1",
            );
            Some(problem.hint("write http:// or https://"))
        }
        (EndpointScheme::Http, _) if is_grpc => {
            let problem = ValueProblem::new("it is probed by gRPC, which needs HTTP/2");
            Some(problem.hint("write h2c:// or https://, or probe by path or tcp"))
        }
        _ => None,
    }
}
