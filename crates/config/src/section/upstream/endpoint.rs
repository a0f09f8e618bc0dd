//! `endpoints` of an upstream: its servers, in the file itself or in one of their own.

use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::Setting;

use serde_json::{Value as Json, json};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::WholeNumber;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_proxy::upstream::discovery::MOST_ENDPOINTS;
use tollgate_proxy::upstream::endpoints::EndpointSpec;
use tollgate_proxy::upstream::health::check::HealthCheck;
use tollgate_proxy::upstream::url::{EndpointScheme, EndpointUrl, InvalidEndpointUrl};

/// An endpoint: its URL alone, or with more.
pub struct RawEndpoint {
    pub url: Located<EndpointUrl>,
    pub weight: u64,
    pub backup: bool,
}

record! {
    /// An endpoint with its part among the others.
    RawEndpointOptions {
        /// Where it is.
        required url: Located<EndpointUrl>,
        /// The endpoint's share of the requests beside those of others.
        default(1) weight: Located<WholeNumber<1, 1000>>,
        /// Whether it gets requests only while no other endpoint is in service.
        default(false) backup: Located<bool>,
    }
}

impl Decode for RawEndpoint {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return Located::decode(node, report).map(|url| Self {
                url,
                weight: 1,
                backup: false,
            });
        }
        let options = RawEndpointOptions::decode(node, report)?;
        Some(Self {
            weight: options.weight.value()?.0,
            backup: options.backup.value()?,
            url: options.url.take(Some)??,
        })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<EndpointUrl>::schema(definitions), RawEndpointOptions::schema(definitions)] })
    }
}

impl Scalar for EndpointUrl {
    const WHAT: &'static str = "the address of a server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        const FORMS: &str =
            "write http://host:port, https://host:port, h2c://host:port or unix:/path";
        text.parse().map_err(|error| {
            let hint = match error {
                InvalidEndpointUrl::Path => {
                    "a route's strip_prefix, replace_prefix or replace_path changes paths"
                }
                _ => FORMS,
            };
            ValueProblem::new(format!("{} {error}", quote(text))).hint(hint)
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable(r"(https?|h2c)://[^/?#@]+/?|((https|h2c)\+)?unix:/.*[^/]") })
    }
}

pub fn endpoint(raw: &RawEndpoint) -> EndpointSpec {
    EndpointSpec {
        url: raw.url.value.clone(),
        weight: raw.weight,
        priority: u16::from(raw.backup),
        host: None,
    }
}

/// The endpoints of `upstream` that a file lists. `None`: a mistake was reported.
pub fn checked_endpoints(
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
    check_first_rank(raws, report)?;
    if are_fine {
        Some(raws.iter().map(endpoint).collect())
    } else {
        None
    }
}

/// Reports endpoints that are all backups. `None`: a mistake was reported.
pub fn check_backups(
    endpoints: &Setting<NonEmptyList<RawEndpoint>>,
    report: &mut Report,
) -> Option<()> {
    match endpoints {
        Setting::Valid(NonEmptyList(raws)) => check_first_rank(raws, report),
        Setting::Absent | Setting::Invalid => Some(()),
    }
}

/// Some endpoint, if there is any, is no backup. `None`: a mistake was reported.
fn check_first_rank(raws: &[RawEndpoint], report: &mut Report) -> Option<()> {
    let Some(first) = raws.first() else {
        return Some(());
    };
    if raws.iter().any(|raw| !raw.backup) {
        return Some(());
    }
    let problem = ValueProblem::new(
        "every endpoint is a backup, and there is none that it could stand in for",
    );
    report.mistake(
        &first.url.location,
        problem.hint("remove \"backup\" from the endpoints that are used first"),
    );
    None
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
