//! `api_key` of an authenticator: where a request has its key, and where the keys are.

use std::sync::Arc;

use http::HeaderName;

use crate::report::{Location, Report, ValueProblem};
use crate::scalar::number::{BoundedDuration, DAY};
use crate::scalar::path::FilePath;
use crate::scalar::text::{DefinedName, OnlyTrue, PlainText};
use crate::section::authenticator::basic::{RawFailedAttempts, failed_attempts};
use crate::section::authenticator::credential_field::field;
use crate::section::limit::key::CookieName;
use crate::yaml::decode::{Located, only_one};
use crate::yaml::record::record;
use tollgate_identity::api_key::spec::{ApiKeySource, ApiKeySpec, StoredKeySpec};
use tollgate_identity::credential::CredentialPlace;

record! {
    /// API keys. Exactly one of header, query and cookie, and one of keys, redis and policies.
    RawApiKeys at location {
        /// The header field that has the key.
        optional header: Located<HeaderName>,
        /// The query parameter that has the key.
        optional query: Located<PlainText>,
        /// The cookie that has the key.
        optional cookie: Located<CookieName>,
        /// The file of keys, which is read again when it changes; `tollgate key new` makes an
        /// entry.
        optional keys: Located<FilePath>,
        /// A hash in Redis that has the keys.
        optional redis: RawStoredKeys,
        /// The keys of policies: a route takes those of the application that it is of.
        optional policies: Located<OnlyTrue>,
    }
}

record! {
    /// API keys in a hash of the store: clients, as JSON, by the SHA-256 of their keys.
    RawStoredKeys at location {
        /// The name of the hash, behind the store's key_prefix.
        required hash: Located<DefinedName>,
        /// How long a key that was read is not read again.
        default("30s") remember: Located<BoundedDuration<DAY>>,
        /// How long a key is taken after that while the store is away.
        default("10m") grace: Located<BoundedDuration<DAY, 0>>,
        /// How many unknown keys of a client address are looked up. Default: {rate: 10/m, burst:
        /// 10}.
        optional failed_attempts: RawFailedAttempts,
    }
}

/// The places, besides files, that the file of the gateway names and that may have keys.
#[derive(Clone, Copy)]
pub struct KeySources {
    /// Whether there is a store.
    pub has_store: bool,
    /// Whether there is a database of policies.
    pub has_policies: bool,
}

/// Where a request has its key, and where the keys are. `None`: a mistake was reported.
pub fn api_key(raw: &RawApiKeys, sources: KeySources, report: &mut Report) -> Option<ApiKeySpec> {
    let places = [
        raw.header
            .build(|name| field(name, report).map(CredentialPlace::Header)),
        raw.query
            .build(|name| parameter(name, report).map(CredentialPlace::Query)),
        raw.cookie
            .build(|name| Some(CredentialPlace::Cookie(name.value.0.clone()))),
    ];
    let place = only_one(places).unwrap_or_else(|_| {
        let problem = ValueProblem::new("a key is in exactly one of header, query and cookie");
        report.mistake(
            &raw.location,
            problem.hint("write {header: x-api-key, keys: /etc/tollgate/keys.yaml}"),
        );
        None
    });
    let choices = [
        raw.keys
            .build(|file| Some(ApiKeySource::File(file.value.0.clone()))),
        raw.redis
            .build(|raw| stored(raw, sources, report))
            .map(|spec| spec.map(ApiKeySource::Redis)),
        raw.policies
            .build(|at| from_policies(&at.location, sources, report)),
    ];
    let keys = only_one(choices).unwrap_or_else(|_| {
        let problem = ValueProblem::new(
            "keys are in exactly one of \"keys\", a file, \"redis\" and \"policies\"",
        );
        report.mistake(
            &raw.location,
            problem.hint("write {header: x-api-key, keys: /etc/tollgate/keys.yaml}"),
        );
        None
    });
    Some(ApiKeySpec {
        place: place?,
        keys: keys?,
    })
}

fn from_policies(at: &Location, sources: KeySources, report: &mut Report) -> Option<ApiKeySource> {
    if sources.has_policies {
        return Some(ApiKeySource::Policies);
    }
    let problem =
        ValueProblem::new("the keys are in policies, but the file has no database of them");
    report.mistake(
        at,
        problem.hint("add policies: {database: \"sqlite:///…\"}, or write the keys into a file"),
    );
    None
}

fn stored(raw: &RawStoredKeys, sources: KeySources, report: &mut Report) -> Option<StoredKeySpec> {
    if !sources.has_store {
        let problem = ValueProblem::new("the keys are in Redis, but the file has no store");
        report.mistake(
            &raw.location,
            problem.hint("add store: {redis: \"redis://…\"}, or write the keys into a file"),
        );
    }
    let failed_attempts = failed_attempts(&raw.failed_attempts, report);
    Some(StoredKeySpec {
        hash: raw.hash.value()?.0,
        remember: raw.remember.value()?.0,
        grace: raw.grace.value()?.0,
        failed_attempts: failed_attempts?,
    })
}

/// The query parameter of a key. `None`: a mistake was reported.
fn parameter(at: &Located<PlainText>, report: &mut Report) -> Option<Arc<str>> {
    if !at.value.0.is_empty() {
        return Some(at.value.0.clone());
    }
    let problem = ValueProblem::new("the name is empty");
    report.mistake(
        &at.location,
        problem.hint("write the name of a query parameter, such as api_key"),
    );
    None
}
