//! The TLS settings of a listener.

use std::time::Duration;

use http::HeaderValue;

use crate::config::file::listener_tls::{RawCertificate, RawHsts, RawListenerTls};
use crate::config::report::{Report, ValueProblem};
use crate::config::yaml::decode::Setting;
use crate::transport::tls::server::spec::{CertificateFiles, ClientAuthSpec, TlsServerSpec};

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
    let requirement = raw
        .client_auth
        .build(|at| Some(at.value))?
        .unwrap_or_default();
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

/// The value of `Strict-Transport-Security`. `None`: a mistake was reported.
pub fn hsts(raw: &RawHsts, report: &mut Report) -> Option<HeaderValue> {
    let (age, subdomains, preload) = (
        raw.max_age.value()?.0,
        raw.include_subdomains.value()?,
        raw.preload.value()?,
    );
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
    text.push_str(if subdomains {
        "; includeSubDomains"
    } else {
        ""
    });
    text.push_str(if preload { "; preload" } else { "" });
    HeaderValue::try_from(text).ok()
}
