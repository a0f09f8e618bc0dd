//! `tls` of an upstream: its files are read here.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::pem::{PemPath, pem};
use crate::section::upstream::discovery::RawEndpointSources;
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use tollgate_proxy::upstream::tls::UpstreamTls;
use tollgate_proxy::upstream::url::EndpointScheme;
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsError, ClientTlsSpec, PeerName};

record! {
    /// TLS to an upstream. The files are PEM, and are read again when they change.
    RawUpstreamTls at location {
        /// The certificate authorities that its certificates may be of. Default: the system's.
        optional ca: Located<PemPath>,
        /// The name that its certificates must have and that it is asked for (SNI). Default: the
        /// endpoint's host.
        optional server_name: Located<ServerName>,
        /// The certificate that the gateway shows, with those between it and its authority.
        optional cert: Located<PemPath>,
        /// The private key of cert.
        optional key: Located<PemPath>,
        /// Whether certificates are verified. Without that, anybody on the way can read and change
        /// everything.
        default(true) verify: Located<bool>,
    }
}

/// The name of a server in its certificate.
#[derive(Clone)]
pub struct ServerName(pub PeerName);

impl Scalar for ServerName {
    const WHAT: &'static str = "the name of a server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        PeerName::parse(text).map(Self).ok_or_else(|| {
            ValueProblem::new(format!("{} is not the name of a server", quote(text)))
                .hint("write a host such as orders.internal, or an IP address, without a port")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// The TLS settings of an upstream; `Some(None)`: no endpoint uses TLS. `None`: a mistake was
/// reported.
pub fn build(
    sources: &RawEndpointSources,
    setting: &Setting<RawUpstreamTls>,
    report: &mut Report,
) -> Option<Option<UpstreamTls>> {
    if sources.endpoints.is_invalid() || sources.discover.is_invalid() {
        return None;
    }
    let mut secured = Vec::new();
    for endpoint in sources.endpoints.items() {
        if endpoint.url.value.scheme == EndpointScheme::Https {
            secured.push(&endpoint.url);
        }
    }
    let first = match (secured.first(), sources.dns_scheme()) {
        (Some(at), _) => Some(&at.location),
        (None, Some((EndpointScheme::Https, location))) => Some(location),
        (None, _) => None,
    };
    let tls = match (setting, first) {
        (Setting::Invalid, _) => None,
        (Setting::Valid(tls), None) if !sources.is_in_file() => {
            let problem =
                ValueProblem::new("no endpoint uses TLS, so these settings have no effect");
            report.mistake(
                &tls.location,
                problem.hint("begin an endpoint with https, or remove \"tls\""),
            );
            None
        }
        // Endpoints of a file or of DNS may be https only if the upstream has `tls`; an empty
        // mapping will do.
        (Setting::Absent, None) => return Some(None),
        (Setting::Absent, Some(location)) => settings(ClientTlsSpec::default(), location, report),
        (Setting::Valid(tls), _) => written(tls, report),
    }?;
    let name = sources.dns_name().and_then(PeerName::parse);
    let tls = UpstreamTls {
        server_name: tls.server_name.or(name),
        ..tls
    };
    let mut all_have_names = true;
    for at in secured {
        if tls.name_of(&at.value).is_none() {
            let problem = ValueProblem::new("its certificate has no name that could be verified");
            report.mistake(
                &at.location,
                problem.hint("give \"server_name\" under \"tls\""),
            );
            all_have_names = false;
        }
    }
    if all_have_names {
        Some(Some(tls))
    } else {
        None
    }
}

/// The settings as they are written. `None`: a mistake was reported.
fn written(raw: &RawUpstreamTls, report: &mut Report) -> Option<UpstreamTls> {
    let ca = raw.ca.build(|path| pem(path, report).map(Arc::from));
    let identity = match (&raw.cert, &raw.key) {
        (Setting::Absent, Setting::Absent) => Some(None),
        (Setting::Valid(cert), Setting::Valid(key)) => {
            let cert = pem(cert, report);
            let key = pem(key, report);
            Some(Some((cert?.into(), key?.into())))
        }
        (Setting::Invalid, _) | (_, Setting::Invalid) => None,
        (Setting::Valid(_), _) | (_, Setting::Valid(_)) => {
            let problem = ValueProblem::new("\"cert\" and \"key\" are needed together");
            report.mistake(&raw.location, problem.hint("give both, or neither"));
            None
        }
    };
    let verify = raw.verify.value()?;
    if !verify {
        let problem = ValueProblem::new(
            "certificates are not verified: anybody on the way can read and change everything",
        );
        let location = raw.verify.location_or(&raw.location);
        report.warning(location, problem.hint("give \"ca\" instead"));
    }
    let spec = ClientTlsSpec {
        ca: ca?,
        identity: identity?,
        verify,
    };
    let settings = match ClientTls::new(spec) {
        Ok(settings) => settings,
        Err(error) => {
            let path = match error {
                ClientTlsError::NoAuthority | ClientTlsError::Authority => &raw.ca,
                ClientTlsError::Certificate => &raw.cert,
                ClientTlsError::Key | ClientTlsError::Pair => &raw.key,
                ClientTlsError::System => &Setting::Absent,
            };
            match path.valid() {
                Some(path) => report.mistake(&path.location, unusable(path, error)),
                None => report.mistake(&raw.location, no_authorities(error)),
            }
            return None;
        }
    };
    let mut files = Vec::new();
    for setting in [&raw.ca, &raw.cert, &raw.key] {
        if let Setting::Valid(at) = setting {
            files.push(at.value.0.clone());
        }
    }
    Some(UpstreamTls {
        settings: Arc::new(settings),
        server_name: raw.server_name.build(|at| Some(at.value.0.clone()))?,
        files,
    })
}

fn settings(spec: ClientTlsSpec, location: &Location, report: &mut Report) -> Option<UpstreamTls> {
    match ClientTls::new(spec) {
        Ok(settings) => Some(UpstreamTls {
            settings: Arc::new(settings),
            server_name: None,
            files: Vec::new(),
        }),
        Err(error) => {
            report.mistake(location, no_authorities(error));
            None
        }
    }
}

fn no_authorities(error: ClientTlsError) -> ValueProblem {
    let hint = "install the package ca-certificates, or give \"ca\" under \"tls\"";
    ValueProblem::new(format!("TLS to the upstream cannot be set up: {error}")).hint(hint)
}

fn unusable(path: &Located<PemPath>, error: ClientTlsError) -> ValueProblem {
    let hint = match error {
        ClientTlsError::Key => "write the path of a PEM file with an unencrypted private key",
        ClientTlsError::Pair => "give the key that the certificate was made for",
        _ => "write the path of a PEM file that begins with -----BEGIN CERTIFICATE-----",
    };
    ValueProblem::new(format!(
        "{} cannot be used: {error}",
        quote(&path.value.0.to_string_lossy())
    ))
    .hint(hint)
}
