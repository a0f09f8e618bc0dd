//! The store, and the certificates for its connections, which are read here.

use std::io;

use tollgate_limiter::store::redis::address::Address;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::{TlsError, TlsSpec};

use crate::config::file::store::{PemPath, RawStore, RawTls, RedisUrl};
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, Setting};

/// Bytes of a PEM file at most. Bundles of every public authority have a fifth of it.
const MAX_PEM: u64 = 1 << 20;

/// The store. `None`: a mistake was reported.
pub fn build(raw: &RawStore, report: &mut Report) -> Option<RedisSpec> {
    let tls = match &raw.tls {
        Setting::Absent => Some(TlsSpec::default()),
        Setting::Invalid => None,
        Setting::Valid(tls) => {
            check_use(raw, tls, report);
            certificates(tls, report)
        }
    };
    Some(RedisSpec {
        url: raw.redis.value()?.0,
        tls: tls?,
        timeout: raw.timeout.value()?.0,
        key_prefix: raw.key_prefix.value()?.0.into(),
        expected_nodes: u32::try_from(raw.expected_nodes.value()?.0).ok()?,
        autonomy: raw.autonomy.value()?.0,
    })
}

/// Reports certificates that nothing uses: the connection would be in the clear by mistake.
fn check_use(raw: &RawStore, tls: &RawTls, report: &mut Report) {
    let encrypted = |Located { value, .. }: &Located<RedisUrl>| {
        Address::parse(&value.0).is_none_or(|address| address.tls)
    };
    if !raw.redis.valid().is_none_or(encrypted) {
        let problem = ValueProblem::new(
            "the address of the store does not use TLS, so these certificates have no effect",
        );
        report.mistake(
            &tls.location,
            problem.hint("begin the address with rediss, or remove \"tls\""),
        );
    }
}

fn certificates(raw: &RawTls, report: &mut Report) -> Option<TlsSpec> {
    let tls = match &raw.ca {
        Setting::Absent => Some(TlsSpec::default()),
        Setting::Invalid => None,
        Setting::Valid(path) => pem(path, report).and_then(|pem| {
            TlsSpec::default()
                .trusting(pem)
                .map_err(|error| report.mistake(&path.location, unusable(path, error)))
                .ok()
        }),
    };
    match (&raw.cert, &raw.key) {
        (Setting::Absent, Setting::Absent) => tls,
        (Setting::Valid(cert), Setting::Valid(key)) => {
            let (cert_pem, key_pem) = (pem(cert, report), pem(key, report));
            tls?.showing(cert_pem?, key_pem?)
                .map_err(|error| {
                    let path = if error == TlsError::Certificate {
                        cert
                    } else {
                        key
                    };
                    report.mistake(&path.location, unusable(path, error));
                })
                .ok()
        }
        (Setting::Invalid, _) | (_, Setting::Invalid) => None,
        (Setting::Valid(_), _) | (_, Setting::Valid(_)) => {
            let problem = ValueProblem::new("\"cert\" and \"key\" are needed together");
            report.mistake(&raw.location, problem.hint("give both, or neither"));
            None
        }
    }
}

/// The content of a PEM file. `None`: a mistake was reported.
pub fn pem(Located { location, value }: &Located<PemPath>, report: &mut Report) -> Option<Vec<u8>> {
    let problem = |error: io::Error| {
        let path = quote(&value.0.to_string_lossy());
        ValueProblem::new(format!("cannot read {path}: {error}")).hint(
            "a path counts from the directory that the gateway is started in, and its user must be able to read it",
        )
    };
    let content = report.named_files.read(&value.0, MAX_PEM);
    content
        .map_err(|error| report.mistake(location, problem(error)))
        .ok()
}

fn unusable(path: &Located<PemPath>, error: TlsError) -> ValueProblem {
    let hint = match error {
        TlsError::Key => "write the path of a PEM file with an unencrypted private key",
        TlsError::Pair => "give the key that the certificate was made for",
        _ => "write the path of a PEM file that begins with -----BEGIN CERTIFICATE-----",
    };
    ValueProblem::new(format!(
        "{} cannot be used: {error}",
        quote(&path.value.0.to_string_lossy())
    ))
    .hint(hint)
}
