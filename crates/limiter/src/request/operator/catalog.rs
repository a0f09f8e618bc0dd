//! The limits of a configuration, looked up by name, with the bucket that a described request would
//! take from.
//!
//! Guarantees the keys that requests get, since the same code makes them.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, Uri};

use crate::decide::plans::cache::PlanCaches;
use crate::limit::algorithm::QuotaError;
use crate::limit::definition::Limit;
use crate::limit::key::host::RequestHost;
use crate::limit::key::{
    CallerIdentity, ClientCertificate, ExtractedKey, Facts, Key, KeyPart, KeySpec, OnMissing,
};
use crate::request::compiled_limit::{CompiledLimit, LargestCosts};
use crate::request::operator::explanation::{AppliedLimit, BucketUse};

/// All limits of a configuration, in its order.
#[derive(Debug, Default)]
pub struct Catalog(Vec<CatalogEntry>);

/// A limit of the catalog.
#[derive(Clone, Debug)]
pub struct CatalogEntry(CompiledLimit);

/// A request as far as an operator described it.
#[derive(Clone, Debug, Default)]
pub struct RequestDescription {
    pub client_ip: Option<IpAddr>,
    /// A part that is empty was not described.
    pub client_certificate: ClientCertificate,
    /// A part that is empty was not described.
    pub client_identity: CallerIdentity,
    pub method: Option<Method>,
    /// In lower case, without a port.
    pub host: Option<String>,
    pub route: Option<String>,
    /// Only its query counts.
    pub uri: Uri,
    /// Cookies among them.
    pub headers: HeaderMap,
    pub params: Vec<(String, String)>,
    /// The members of the body among them.
    pub extensions: Extensions,
}

/// The longest raw key that is looked up: more than the longest that [`KeySpec::extract`] makes of
/// a sane limit.
const LONGEST_KEY: usize = 4096;

impl Catalog {
    /// A catalog of `limits`, whose uses cost `costs`. Plans in the shared store are those that
    /// `plans` has.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn new(
        limits: &[Arc<Limit>],
        costs: &LargestCosts,
        plans: &PlanCaches,
    ) -> Result<Self, QuotaError> {
        limits
            .iter()
            .map(|limit| CompiledLimit::for_any_use(limit, costs, plans).map(CatalogEntry))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn iter(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.0.iter()
    }

    pub fn find(&self, name: &str) -> Option<&CatalogEntry> {
        self.0.iter().find(|entry| *entry.limit().name == *name)
    }

    /// The limit that a bucket's key belongs to: its name stands before the first colon, and holds
    /// none.
    pub fn of_key(&self, key: &Key) -> Option<&CatalogEntry> {
        let name = key.as_bytes().split(|byte| *byte == b':').next()?;
        self.find(str::from_utf8(name).ok()?)
    }
}

impl CatalogEntry {
    pub fn limit(&self) -> &Arc<Limit> {
        &self.0.limit
    }

    /// The bucket of the request that an operator described.
    ///
    /// # Errors
    /// The parts of the key that the description lacks, as [`KeyPart::name`] calls them.
    pub fn key_of(&self, description: &RequestDescription) -> Result<Key, Vec<String>> {
        let parts = &self.limit().key.parts;
        let lacking: Vec<String> = parts
            .iter()
            .filter(|part| !description.has(part))
            .map(KeyPart::name)
            .collect();
        match description.extract(parts.clone(), &self.limit().name) {
            ExtractedKey::Key(key) if lacking.is_empty() => Ok(key),
            _ => Err(lacking),
        }
    }

    /// A bucket by its key as it is shown. `None`: not a key of this limit.
    pub fn raw_key(&self, text: &str) -> Option<Key> {
        let rest = text.strip_prefix(&*self.limit().name)?.strip_prefix(':')?;
        // Any other byte was escaped when the key was made.
        let clean = rest.bytes().all(|byte| byte.is_ascii_graphic()) && text.len() <= LONGEST_KEY;
        clean.then(|| Key::from(text))
    }

    /// The part of a request that names its plan, by [`KeyPart::name`].
    pub fn plans_by(&self) -> Option<String> {
        self.limit().plans.as_ref().map(|plans| plans.by.name())
    }

    /// The bucket with this key, as a request of the usual cost from the client described uses it.
    pub fn meet(&self, key: Key, description: &RequestDescription) -> (BucketUse, AppliedLimit) {
        let mut applied = description.with_facts(|facts| AppliedLimit::new(&self.0, facts));
        applied.cost = applied.scale.typical_cost;
        (applied.use_of(key), applied)
    }

    /// The bucket with this key, as a usual request of a client without a plan would use it.
    pub fn ask(&self, key: Key) -> BucketUse {
        self.meet(key, &RequestDescription::default()).0
    }
}

impl RequestDescription {
    fn has(&self, part: &KeyPart) -> bool {
        match part {
            KeyPart::Method => self.method.is_some(),
            KeyPart::Route => self.route.is_some(),
            other => matches!(self.extract(vec![other.clone()], ""), ExtractedKey::Key(_)),
        }
    }

    fn extract(&self, parts: Vec<KeyPart>, limit: &str) -> ExtractedKey {
        self.with_facts(|facts| {
            KeySpec {
                parts,
                on_missing: OnMissing::Refuse,
            }
            .extract(limit, facts)
        })
    }

    fn with_facts<T>(&self, read: impl FnOnce(&Facts<'_>) -> T) -> T {
        read(&Facts {
            method: self.method.as_ref().unwrap_or(&Method::GET),
            uri: &self.uri,
            headers: &self.headers,
            extensions: Some(&self.extensions),
            body_length: Some(0),
            client_ip: self.client_ip,
            client_certificate: Some(&self.client_certificate),
            client_identity: Some(&self.client_identity),
            host: RequestHost::Known(self.host.as_deref().unwrap_or_default()),
            route: self.route.as_deref().unwrap_or_default(),
            param: &|name| self.param(name),
        })
    }

    /// The path's parameter of this name.
    fn param(&self, name: &str) -> Option<&str> {
        for (known, value) in &self.params {
            if known == name {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use http::HeaderName;

    use super::*;
    use crate::limit::algorithm::Rate;
    use crate::limit::cost::Cost;

    fn entry(parts: Vec<KeyPart>) -> CatalogEntry {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        let rate = Rate {
            tokens: nonzero(10),
            period_us: nonzero(1_000_000),
        };
        let key = KeySpec {
            parts,
            on_missing: OnMissing::Share,
        };
        let limit = Limit {
            cost: Cost::Fixed(nonzero(2)),
            ..Limit::new("per-tenant", key, rate, nonzero(20))
        };
        Catalog::new(
            &[Arc::new(limit)],
            &LargestCosts::default(),
            &PlanCaches::default(),
        )
        .unwrap()
        .find("per-tenant")
        .unwrap()
        .clone()
    }

    fn tenant_and_route() -> CatalogEntry {
        entry(vec![
            KeyPart::Header(HeaderName::from_static("x-tenant")),
            KeyPart::Route,
            KeyPart::Method,
        ])
    }

    #[test]
    fn what_is_described_has_the_key_that_a_request_has() {
        let mut description = RequestDescription {
            route: Some("orders".to_owned()),
            method: Some(Method::POST),
            ..RequestDescription::default()
        };
        description
            .headers
            .insert("x-tenant", "a c".parse().unwrap());
        assert_eq!(
            tenant_and_route().key_of(&description),
            Ok(Key::from("per-tenant:a%20c|orders|POST"))
        );
    }

    #[test]
    fn what_is_not_described_is_named_and_never_guessed() {
        let lacking = tenant_and_route().key_of(&RequestDescription::default());
        assert_eq!(
            lacking,
            Err(["header.x-tenant", "route", "method"]
                .map(str::to_owned)
                .to_vec())
        );
    }

    #[test]
    fn a_raw_key_belongs_to_its_limit_and_has_no_invalid_byte() {
        let limit = tenant_and_route();
        assert!(limit.raw_key("per-tenant:a|orders|GET").is_some());
        assert!(limit.raw_key("per-tenant:").is_some());
        for odd in [
            "a|orders|GET",
            "per-tenants:a",
            "per-tenant",
            "per-tenant:a b",
            "per-tenant:a\n",
            "per-tenant:é",
        ] {
            assert_eq!(limit.raw_key(odd), None, "{odd}");
        }
        assert_eq!(
            limit.raw_key(&format!("per-tenant:{}", "x".repeat(LONGEST_KEY))),
            None
        );
    }

    #[test]
    fn a_key_leads_back_to_its_limit() {
        let limits = [tenant_and_route().limit().clone()];
        let catalog =
            Catalog::new(&limits, &LargestCosts::default(), &PlanCaches::default()).unwrap();
        assert!(
            catalog
                .of_key(&Key::from("per-tenant:2001:db8::/64"))
                .is_some()
        );
        assert!(catalog.of_key(&Key::from("!probe")).is_none());
    }
}
