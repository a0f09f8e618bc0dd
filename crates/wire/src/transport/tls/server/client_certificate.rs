//! The parts of a client's certificate that keys and upstreams see.
//!
//! Guarantees that two subjects are never written alike: characters with a meaning in RFC 4514 are
//! escaped.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tollgate_limiter::limit::key::ClientCertificate;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// A client that has authenticated itself.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: ClientCertificate,
    /// The element of `X-Forwarded-Client-Cert` for upstreams.
    pub forwarded: HeaderValue,
}

impl ClientIdentity {
    /// The identity that a verified certificate gives. A part that cannot be read is left out.
    pub fn from_certificate(der: &CertificateDer<'_>) -> Self {
        let fingerprint = hexadecimal(&Sha256::digest(der));
        let mut certificate = ClientCertificate {
            fingerprint,
            ..ClientCertificate::default()
        };
        let mut forwarded = format!("Hash={}", certificate.fingerprint);
        if let Ok((_, parsed)) = X509Certificate::from_der(der) {
            certificate.subject = distinguished_name(parsed.subject());
            push_quoted(&mut forwarded, "Subject", &certificate.subject);
            if let Ok(Some(extension)) = parsed.subject_alternative_name() {
                let mut names = Vec::new();
                for name in &extension.value.general_names {
                    if let Some((label, name)) = alternative_name(name) {
                        push_quoted(&mut forwarded, label, &name);
                        names.push(labelled(label, &name));
                    }
                }
                certificate.alternative_names = names.join(",");
            }
        }
        let bytes = HeaderValue::try_from(forwarded.into_bytes());
        Self {
            certificate,
            forwarded: bytes.unwrap_or_else(|_| HeaderValue::from_static("")),
        }
    }
}

/// Appends a part in Envoy's form: `;URI="spiffe://example/a"`.
fn push_quoted(text: &mut String, label: &str, value: &str) {
    let _ = write!(
        text,
        ";{label}=\"{}\"",
        value.replace('\\', "\\\\").replace('"', "\\\"")
    );
}

/// The kind of a name and the name, for the kinds that name clients. A name with control characters
/// names nobody.
fn alternative_name(name: &GeneralName<'_>) -> Option<(&'static str, String)> {
    let (label, name) = match name {
        GeneralName::DNSName(name) => ("DNS", (*name).to_owned()),
        GeneralName::URI(name) => ("URI", (*name).to_owned()),
        GeneralName::RFC822Name(name) => ("email", (*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            ("IP", address.ok()?.to_string())
        }
        _ => return None,
    };
    if name.chars().any(char::is_control) {
        return None;
    }
    Some((label, name))
}

/// A name with its kind: `DNS:a.example`. A comma within a name is escaped: one name never reads as
/// two.
fn labelled(label: &str, name: &str) -> String {
    format!("{label}:{}", name.replace('\\', "\\\\").replace(',', "\\,"))
}

/// A name as RFC 4514 writes it: the most specific part first.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name
        .iter_rdn()
        .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"))
        .collect();
    parts.reverse();
    parts.join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let kind = oid2abbrev(attribute.attr_type(), oid_registry());
    let kind = kind.map_or_else(|_| attribute.attr_type().to_id_string(), str::to_owned);
    match attribute.as_str() {
        Ok(value) => format!("{kind}={}", escaped(value)),
        Err(_) => format!("{kind}=#{}", hexadecimal(attribute.as_slice())),
    }
}

/// A value with the characters escaped that have a meaning in a name (RFC 4514 §2.4).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        match char {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', char]),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            '#' if at == 0 => text.push_str("\\#"),
            _ if char.is_control() => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\{byte:02x}");
                }
            }
            _ => text.push(char),
        }
    }
    text
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_alternative_names_never_read_as_one() {
        assert_eq!(labelled("DNS", "a,DNS:b"), "DNS:a\\,DNS:b");
    }

    #[test]
    fn values_cannot_pass_for_other_parts_of_a_name() {
        assert_eq!(escaped("a,O=b+c"), "a\\,O=b\\+c");
        assert_eq!(escaped(" #x "), "\\ #x\\ ");
        assert_eq!(escaped("#x\"\\\n"), "\\#x\\\"\\\\\\0a");
    }
}
