//! `key`: the parts of a request that a limit counts by. Each part of a key is spelt here and
//! nowhere else in the configuration.

use std::sync::Arc;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::{
    BodyMember, CertificatePart, IdentityPart, KeyPart, OnMissing, is_same_variable,
};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::WholeNumber;
use crate::scalar::text::PlainText;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch, only_one};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::{Record, record};
use crate::yaml::schema::or_variable;
use crate::yaml::words::{Words, words};
use tollgate_identity::credential::CredentialPlace;

record! {
    /// The client's address, by its leading bits.
    RawClientIp {
        /// Leading bits of an IPv4 address that count.
        default(32) ipv4_prefix: Located<WholeNumber<1, 32>>,
        /// Leading bits of an IPv6 address that count.
        default(64) ipv6_prefix: Located<WholeNumber<1, 128>>,
    }
}

record! {
    /// A part of a key that needs a name or options. Exactly one of these keys.
    RawPartOptions at location {
        /// The client's address, by other prefixes than /32 and /64.
        optional client_ip: RawClientIp,
        /// A part of the certificate by which the client has authenticated itself: subject, san or
        /// fingerprint.
        optional client_certificate: Located<CertificatePart>,
        /// A part of the identity that an authenticator found: id, plan or label.NAME.
        optional identity: Located<IdentityPart>,
        /// A claim of the client's token, by name: a text or a whole number.
        optional claim: Located<PlainText>,
        /// A header field by name.
        optional header: Located<HeaderName>,
        /// A cookie by name.
        optional cookie: Located<CookieName>,
        /// A query parameter by name.
        optional query: Located<PlainText>,
        /// A {name} of the route's path.
        optional path: Located<PlainText>,
        /// A member of the body, a form or JSON: its name, or {name, ignore_case}.
        optional body: RawBodyMember,
        /// A fixed text, equal for all requests.
        optional constant: Located<PlainText>,
    }
}

record! {
    /// A member of a form or of JSON.
    RawBodyMemberOptions {
        /// The name of a field, or of a member of a JSON object; dots lead into objects.
        required name: Located<PlainText>,
        /// Whether values that differ only in case count as one.
        default(false) ignore_case: Located<bool>,
    }
}

/// A member of the body: its name alone, or with more.
pub struct RawBodyMember(BodyMember);

/// The parts of a key.
pub struct RawKey(pub Vec<RawKeyPart>);

/// A part of a key. `None`: a mistake in it was reported.
#[derive(Clone)]
pub struct RawKeyPart(pub Option<KeyPart>);

/// The name of a cookie (RFC 6265 §4.1.1: a token).
#[derive(Clone)]
pub struct CookieName(pub Arc<str>);

/// A part of a key that needs no option: a word.
#[derive(Clone, Copy)]
enum WordPart {
    ClientIp,
    Identity,
    Method,
    Host,
    Route,
}

words! {
    WordPart: "a part of a key" {
        "client_ip" => ClientIp,
        "identity" => Identity,
        "method" => Method,
        "host" => Host,
        "route" => Route,
    }
}

impl RawKey {
    /// The parts. `None`: a mistake was reported.
    pub fn parts(&self) -> Option<Vec<KeyPart>> {
        self.0.iter().map(|RawKeyPart(part)| part.clone()).collect()
    }
}

impl Decode for RawKey {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let parts = match &node.value {
            YamlValue::List(_) => NonEmptyList::decode(node, report)?.0,
            _ => vec![RawKeyPart::decode(node, report)?],
        };
        Some(Self(parts))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [RawKeyPart::schema(definitions), NonEmptyList::<RawKeyPart>::schema(definitions)] })
    }
}

impl Decode for RawKeyPart {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let part = match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => word_part(text)
                .map_err(|problem| report.mistake(&node.location, problem))
                .ok(),
            YamlValue::Map(_) => {
                RawPartOptions::decode(node, report).and_then(|options| options.part(report))
            }
            _ => {
                let words = WordPart::WORDS.join(", ");
                let hint = format!(
                    "write {words}, or {{header: x-tenant}}, {{cookie: sid}}, {{query: api_key}}"
                );
                mismatch(node, WordPart::WHAT, Some(&hint), report);
                None
            }
        };
        Some(Self(part))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": WordPart::WORDS }, RawPartOptions::schema(definitions)] })
    }
}

/// The part that a word stands for.
fn word_part(text: &str) -> Result<KeyPart, ValueProblem> {
    match WordPart::read(text) {
        Ok(WordPart::ClientIp) => Ok(KeyPart::ClientIp {
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }),
        Ok(WordPart::Identity) => Ok(KeyPart::Identity(IdentityPart::Qualified)),
        Ok(WordPart::Method) => Ok(KeyPart::Method),
        Ok(WordPart::Host) => Ok(KeyPart::Host),
        Ok(WordPart::Route) => Ok(KeyPart::Route),
        Err(_) if RawPartOptions::keys().contains(&text) => {
            Err(ValueProblem::new(format!("\"{text}\" needs a value"))
                .hint(format!("write {{{text}: …}}")))
        }
        Err(unknown) => Err(match unspaced(text) {
            Some(mapping) => unknown.hint(format!("write {mapping}")),
            None => unknown,
        }),
    }
}

/// `{header: x-tenant}` where somebody has written `header:x-tenant`, which YAML takes for a word.
fn unspaced(text: &str) -> Option<String> {
    let (option, value) = text.split_once([':', '=', '.'])?;
    let is_option = RawPartOptions::keys().contains(&option);
    (is_option && !value.is_empty()).then(|| format!("{{{option}: {value}}}"))
}

/// Warns of a field that has another value for each spelling, or whatever a client writes.
fn warn_of_field(name: &Located<HeaderName>, report: &mut Report) {
    let (problem, hint) = match name.value.as_str() {
        "host" => (
            "each spelling of a host, and each port, has a bucket of its own",
            "write host, which is one value for all of them",
        ),
        "forwarded" | "x-forwarded-for" | "x-real-ip" => (
            "a client writes into this field what it likes, and has a bucket for each value",
            "write client_ip, and name the proxies in front in trusted_proxies",
        ),
        _ => return,
    };
    report.warning(&name.location, ValueProblem::new(problem).hint(hint));
}

impl RawPartOptions {
    fn part(&self, report: &mut Report) -> Option<KeyPart> {
        let parts = [
            self.client_ip.build(RawClientIp::part),
            self.client_certificate
                .build(|part| Some(KeyPart::ClientCertificate(part.value))),
            self.identity
                .build(|part| Some(KeyPart::Identity(part.value.clone()))),
            self.claim
                .build(|name| Some(KeyPart::Identity(IdentityPart::Claim(name.value.0.clone())))),
            self.header.build(|name| {
                warn_of_field(name, report);
                Some(KeyPart::Header(name.value.clone()))
            }),
            self.cookie
                .build(|name| Some(KeyPart::Cookie(name.value.0.clone()))),
            self.query
                .build(|text| Some(KeyPart::Query(text.value.0.clone()))),
            self.path
                .build(|text| Some(KeyPart::PathParam(text.value.0.clone()))),
            self.body
                .build(|member| Some(KeyPart::Body(member.0.clone()))),
            self.constant
                .build(|text| Some(KeyPart::Constant(text.value.0.clone()))),
        ];
        only_one(parts).unwrap_or_else(|_| {
            let options = Self::keys().join(", ");
            let problem =
                ValueProblem::new(format!("a part of a key needs exactly one of {options}"));
            report.mistake(
                &self.location,
                problem.hint("several parts are a list: [{header: x-tenant}, {path: id}]"),
            );
            None
        })
    }
}

impl Decode for RawBodyMember {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let name;
        let ignore_case;
        if let YamlValue::Map(_) = &node.value {
            let options = RawBodyMemberOptions::decode(node, report)?;
            ignore_case = options.ignore_case.value()?;
            name = options.name.take(Some)??;
        } else {
            ignore_case = false;
            name = Located::<PlainText>::decode(node, report)?;
        }
        if name.value.0.split('.').any(str::is_empty) {
            let problem = ValueProblem::new(format!("{} has an empty name", quote(&name.value.0)));
            report.mistake(
                &name.location,
                problem.hint("write a name such as username, or names with a dot between them"),
            );
            return None;
        }
        Some(Self(BodyMember {
            name: name.value.0,
            ignore_case,
        }))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<PlainText>::schema(definitions), RawBodyMemberOptions::schema(definitions)] })
    }
}

impl RawClientIp {
    fn part(&self) -> Option<KeyPart> {
        let ipv4_prefix = u8::try_from(self.ipv4_prefix.value()?.0).ok()?;
        let ipv6_prefix = u8::try_from(self.ipv6_prefix.value()?.0).ok()?;
        Some(KeyPart::ClientIp {
            ipv4_prefix,
            ipv6_prefix,
        })
    }
}

impl Scalar for IdentityPart {
    const WHAT: &'static str = "a part of an identity";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text.split_once('.') {
            None if text == "id" => Ok(Self::Qualified),
            None if text == "plan" => Ok(Self::Plan),
            Some(("label", name)) if !name.is_empty() => Ok(Self::Label(name.into())),
            _ => Err(
                ValueProblem::new(format!("{} is no part of an identity", quote(text)))
                    .hint("write id, plan or label.NAME"),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable(r"id|plan|label\..+") })
    }
}

impl Scalar for CookieName {
    const WHAT: &'static str = "the name of a cookie";

    /// Has the characters of a field name, but keeps its case.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(_) => Ok(Self(Arc::from(text))),
            Err(_) => Err(ValueProblem::new(format!(
                "{} is not the name of a cookie",
                quote(text)
            ))
            .hint("letters, digits, dashes and underscores, such as sid")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

words! {
    CertificatePart: "subject, san or fingerprint" {
        "subject" => Subject,
        "san" => AlternativeNames,
        "fingerprint" => Fingerprint,
    }
}

words! {
    OnMissing: "share, skip or refuse" { "share" => Share, "skip" => Skip, "refuse" => Refuse }
}

/// `part`, as a secret if an authenticator finds a credential there.
pub fn hashed(part: KeyPart, credentials: &[CredentialPlace]) -> KeyPart {
    let is_credential = credentials.iter().any(|place| match (place, &part) {
        (CredentialPlace::Header(place), KeyPart::Header(name)) => {
            is_same_variable(place.as_str(), name.as_str())
        }
        (CredentialPlace::Query(place), KeyPart::Query(name)) => place == name,
        _ => false,
    });
    if is_credential {
        KeyPart::Secret(Box::new(part))
    } else {
        part
    }
}

/// The first part of a key that is a part of an identity, as operators call it.
pub fn part_of_identity<'p>(parts: impl IntoIterator<Item = &'p KeyPart>) -> Option<String> {
    for part in parts {
        if let KeyPart::Identity(part) = part {
            return Some(part.name());
        }
    }
    None
}

/// `parts`, those as secrets in which an authenticator finds a credential.
pub fn hashed_parts(parts: Vec<KeyPart>, credentials: &[CredentialPlace]) -> Vec<KeyPart> {
    parts
        .into_iter()
        .map(|part| hashed(part, credentials))
        .collect()
}
