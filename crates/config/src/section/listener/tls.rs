//! `tls` of a listener or of the admin server: its certificates, and those of its clients.

use std::time::Duration;

use http::HeaderValue;

use crate::report::{Report, ValueProblem};
use crate::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::scalar::pem::PemPath;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use crate::yaml::words::words;
use tollgate_wire::transport::tls::server::spec::{
    CertificateFiles, ClientAuthRequirement, ClientAuthSpec, MinTlsVersion, TlsServerSpec,
};

/// Milliseconds of the longest policy: ten years.
const TEN_YEARS: u64 = 3_650 * DAY;

record! {
    /// TLS on a listener. The files are read again when they change.
    RawListenerTls {
        /// Certificates; a client gets the one for the name it asks for, or else the first.
        required certificates: NonEmptyList<RawCertificate>,
        /// A PEM file of the authorities that clients' certificates may be of. Without it, clients
        /// are asked for none.
        optional client_ca: Located<PemPath>,
        /// Whether a client must have a certificate: required or optional. Default: required.
        optional client_auth: Located<ClientAuthRequirement>,
        /// The oldest version that is spoken: "1.2" or "1.3".
        default("1.2") min_version: Located<MinTlsVersion>,
        /// Handshakes that compute at once, all workers together; further ones wait for their turn.
        default(16) max_handshakes: Located<WholeNumber<1, 1_000_000>>,
        /// Tells browsers to come by HTTPS only, with Strict-Transport-Security in every answer.
        optional hsts: RawHsts,
    }
}

record! {
    /// A certificate with its private key.
    RawCertificate {
        /// A PEM file: the certificate, then those between it and its authority.
        required cert: Located<PemPath>,
        /// A PEM file: the private key of cert.
        required key: Located<PemPath>,
    }
}

record! {
    /// HTTP Strict Transport Security (RFC 6797).
    RawHsts at location {
        /// How long browsers remember it; 0s makes them forget it.
        default("365d") max_age: Located<BoundedDuration<TEN_YEARS, 0>>,
        /// Whether it also holds for every host below this one.
        default(false) include_subdomains: Located<bool>,
        /// Asks for a place in the list that browsers are shipped with.
        default(false) preload: Located<bool>,
    }
}

words! {
    ClientAuthRequirement: "required or optional" { "required" => Required, "optional" => Optional }
    MinTlsVersion: "1.2 or 1.3" { "1.2" => Tls12, "1.3" => Tls13 }
}

/// The age that browsers ask of a policy before they take it into their lists: a year
/// (hstspreload.org).
const PRELOAD_AGE: Duration = Duration::from_secs(31_536_000);

/// The TLS settings. `None`: a mistake was reported.
pub fn tls(raw: &RawListenerTls, report: &mut Report) -> Option<TlsServerSpec> {
    let certificates: Vec<_> = raw
        .certificates
        .valid()?
        .0
        .iter()
        .map(certificate)
        .collect();
    if let (Setting::Absent, Some(auth)) = (&raw.client_ca, raw.client_auth.valid()) {
        let problem = ValueProblem::new("client_auth has no client_ca to check certificates by");
        report.mistake(
            &auth.location,
            problem.hint("add client_ca, a file of the authorities that sign clients"),
        );
        return None;
    }
    let requirement = raw.client_auth.optional()?.unwrap_or_default();
    let client_auth = raw.client_ca.build(|at| {
        Some(ClientAuthSpec {
            ca: at.value.0.clone(),
            requirement,
        })
    })?;
    Some(TlsServerSpec {
        certificates: certificates.into_iter().collect::<Option<_>>()?,
        client_auth,
        min_version: raw.min_version.value()?,
        max_handshakes: raw.max_handshakes.value()?.count().get(),
    })
}

fn certificate(raw: &RawCertificate) -> Option<CertificateFiles> {
    Some(CertificateFiles {
        cert: raw.cert.valid()?.value.0.clone(),
        key: raw.key.valid()?.value.0.clone(),
    })
}

/// The value of `Strict-Transport-Security`, if there is one. `None`: a mistake was reported.
pub fn hsts(setting: &Setting<RawListenerTls>, report: &mut Report) -> Option<Option<HeaderValue>> {
    match setting {
        Setting::Valid(raw) => raw.hsts.build(|raw| transport_security(raw, report)),
        Setting::Absent | Setting::Invalid => Some(None),
    }
}

fn transport_security(raw: &RawHsts, report: &mut Report) -> Option<HeaderValue> {
    let age = raw.max_age.value()?.0;
    let subdomains = raw.include_subdomains.value()?;
    let preload = raw.preload.value()?;
    if preload && (age < PRELOAD_AGE || !subdomains) {
        let problem =
            ValueProblem::new("preload needs include_subdomains and a max_age of 365d or more");
        report.mistake(
            &raw.location,
            problem.hint("browsers take no other policy into their lists: hstspreload.org"),
        );
        return None;
    }
    let mut text = format!("max-age={}", age.as_secs());
    if subdomains {
        text.push_str("; includeSubDomains");
    }
    if preload {
        text.push_str("; preload");
    }
    HeaderValue::try_from(text).ok()
}
