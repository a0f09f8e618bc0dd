//! `store`: where Redis is, and the certificates for its connections, which are read here.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::store::redis::address::Address;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::{TlsError, TlsSpec};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, WholeNumber};
use crate::scalar::pem::{PemPath, pem};
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

record! {
    /// The memory that all nodes share.
    RawStore {
        /// The address of Redis 6.2 or newer, or Valkey:
        /// redis://[user:password@]host[:port][/database].
        required redis: Located<RedisUrl>,
        /// The longest a request may wait for the store; then the limit's on_outage decides. 1ms to
        /// 10s.
        default("20ms") timeout: Located<BoundedDuration<10_000>>,
        /// The beginning of every key in Redis. Gateways with the same prefix share their limits.
        default("tollgate:") key_prefix: Located<KeyPrefix>,
        /// The number of nodes to assume until Redis has the real one.
        default(1) expected_nodes: Located<WholeNumber<1, 100_000>>,
        /// The longest that nodes which reach Redis hold back the share of one that fell silent. 3s
        /// to 1h.
        default("15s") autonomy: Located<BoundedDuration<3_600_000, 3_000>>,
        /// Certificates for a TLS address.
        optional tls: RawTls,
    }
}

record! {
    /// Certificates, as PEM files. They are read when the gateway starts.
    RawTls at location {
        /// The certificate authorities that Redis's certificate may be of. Default: the system's.
        optional ca: Located<PemPath>,
        /// The certificate that the gateway shows, with those between it and its authority.
        optional cert: Located<PemPath>,
        /// The private key of cert.
        optional key: Located<PemPath>,
    }
}

/// The address of the store, credentials included. Not printable, and never quoted in a mistake.
#[derive(Clone)]
pub struct RedisUrl(pub Arc<str>);

/// The beginning of every key in the store.
#[derive(Clone)]
pub struct KeyPrefix(pub String);

const ADDRESS_FORMS: &str = "write redis://[user:password@]host[:port][/database] or rediss://…, with special characters of the password percent-encoded; docs/configuration/store.md has the forms for sockets, Sentinel and Cluster";

impl Scalar for RedisUrl {
    const WHAT: &'static str = "the address of a store";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if Address::parse(text).is_some() {
            return Ok(Self(text.into()));
        }
        let problem = ValueProblem::new("this is not the address of a Redis");
        Err(problem.hint(ADDRESS_FORMS))
    }

    fn schema() -> Json {
        let forms = r"(rediss?(-sentinel|-cluster)?|redis\+unix)://.+";
        json!({ "type": "string", "pattern": or_variable(forms) })
    }
}

impl Scalar for KeyPrefix {
    const WHAT: &'static str = "a key prefix";

    /// Braces would make a hash tag and put all keys on one node of a Redis Cluster.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        let is_sound = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'{' && byte != b'}');
        if is_sound && text.len() <= 64 {
            return Ok(Self(text.to_owned()));
        }
        Err(
            ValueProblem::new(format!("{} is not a key prefix", quote(text)))
                .hint("at most 64 visible ASCII characters, without spaces and braces"),
        )
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

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
    let Some(url) = raw.redis.valid() else {
        return;
    };
    if Address::parse(&url.value.0).is_some_and(|address| !address.tls) {
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
        Setting::Valid(path) => trusting(path, report),
    };
    match (&raw.cert, &raw.key) {
        (Setting::Absent, Setting::Absent) => tls,
        (Setting::Valid(cert), Setting::Valid(key)) => {
            let cert_pem = pem(cert, report);
            let key_pem = pem(key, report);
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

/// The settings with the authorities of a file. `None`: a mistake was reported.
fn trusting(path: &Located<PemPath>, report: &mut Report) -> Option<TlsSpec> {
    let pem = pem(path, report)?;
    match TlsSpec::default().trusting(pem) {
        Ok(tls) => Some(tls),
        Err(error) => {
            report.mistake(&path.location, unusable(path, error));
            None
        }
    }
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
