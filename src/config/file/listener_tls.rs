//! `tls` of a listener: its certificates, and those of its clients.

use serde_json::{Value as Json, json};

use super::scalar::number::{BoundedDuration, DAY, WholeNumber};
use super::store::PemPath;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::transport::tls::server::spec::{ClientAuthRequirement, MinTlsVersion};

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
        /// It also holds for every host below this one.
        default(false) include_subdomains: Located<bool>,
        /// Asks for a place in the list that browsers are shipped with.
        default(false) preload: Located<bool>,
    }
}

words! {
    ClientAuthRequirement: "required or optional" { "required" => Required, "optional" => Optional }
    MinTlsVersion: "1.2 or 1.3" { "1.2" => Tls12, "1.3" => Tls13 }
}

/// The port of HTTPS that clients are sent to.
#[derive(Clone, Copy)]
pub struct HttpsPort(pub u16);

impl Scalar for HttpsPort {
    const WHAT: &'static str = "true or a port";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match (text, text.parse()) {
            ("true", _) => Ok(Self(443)),
            (_, Ok(port @ 1..)) => Ok(Self(port)),
            _ => Err(
                ValueProblem::new(format!("{} is neither true nor a port", quote(text)))
                    .hint("write true for port 443, another port, or leave the key out"),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "const": true }, { "type": "integer", "minimum": 1, "maximum": 65_535 }] })
    }
}
