//! The limits of a configuration as things to look up: by name, with the bucket that a described request would take from.
//!
//! Guarantees the same keys as requests get, since the same code makes them. Knows nothing of routes and stores; for
//! operators, not for requests.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};

use super::bucket::{Shape, ShapeError};
use super::key::{Extracted, Facts, Key, KeyPart, KeySpec, OnMissing};
use super::policy::{Limit, LimitUse};
use super::rules::LargestCosts;
use crate::store::Ask;

/// All limits of a configuration, in its order.
#[derive(Debug, Default)]
pub struct Catalog(Vec<Listed>);

/// A limit with what its buckets are counted by.
#[derive(Clone, Debug)]
pub struct Listed {
    pub limit: Arc<Limit>,
    pub shape: Shape,
    /// The most tokens that any request takes of it.
    pub largest_cost: u64,
}

/// A request as far as somebody described it.
#[derive(Clone, Debug, Default)]
pub struct Described {
    pub client_ip: Option<IpAddr>,
    pub method: Option<Method>,
    /// In lower case, without a port.
    pub host: Option<String>,
    pub route: Option<String>,
    /// Only its query counts.
    pub uri: Uri,
    /// Cookies among them.
    pub headers: HeaderMap,
    pub params: Vec<(String, String)>,
}

/// The longest raw key that is looked up: more than the longest that [`KeySpec::extract`] makes of a sane limit.
const LONGEST_KEY: usize = 4096;

impl Catalog {
    /// Of `limits`, whose uses are `uses`.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn of<'l>(limits: &[Arc<Limit>], uses: impl Iterator<Item = &'l LimitUse>) -> Result<Self, ShapeError> {
        let costs = LargestCosts::over(uses);
        let list = |limit: &Arc<Limit>| {
            let shape = Shape::new(limit.rate.tokens, limit.rate.period_us, limit.burst)?;
            let largest_cost = costs.of_limit(&limit.name).max(limit.cost.get());
            Ok(Listed { limit: limit.clone(), shape, largest_cost })
        };
        limits.iter().map(list).collect::<Result<_, _>>().map(Self)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.0.iter()
    }

    pub fn find(&self, name: &str) -> Option<&Listed> {
        self.0.iter().find(|listed| *listed.limit.name == *name)
    }

    /// The limit that a bucket's key belongs to: its name stands before the first colon, and holds none.
    pub fn of_key(&self, key: &Key) -> Option<&Listed> {
        let name = key.as_bytes().split(|byte| *byte == b':').next()?;
        self.find(str::from_utf8(name).ok()?)
    }
}

impl Listed {
    /// The bucket of a described request.
    ///
    /// # Errors
    /// The parts of the key that the description lacks, as [`part_name`] calls them.
    pub fn key_of(&self, described: &Described) -> Result<Key, Vec<String>> {
        let parts = &self.limit.key.parts;
        let lacking: Vec<String> = parts.iter().filter(|part| !described.has(part)).map(part_name).collect();
        match described.extract(parts.clone(), &self.limit.name) {
            Extracted::Key(key) if lacking.is_empty() => Ok(key),
            _ => Err(lacking),
        }
    }

    /// A bucket by its key as it is shown. `None`: not a key of this limit.
    pub fn raw_key(&self, text: &str) -> Option<Key> {
        let rest = text.strip_prefix(&*self.limit.name)?.strip_prefix(':')?;
        // Whatever else stands in a key was escaped when it was made.
        let clean = rest.bytes().all(|byte| byte.is_ascii_graphic()) && text.len() <= LONGEST_KEY;
        clean.then(|| Key::from(text))
    }

    /// What a request of the limit's own cost asks of this bucket.
    pub fn ask(&self, key: Key) -> Ask {
        let Self { limit, shape, largest_cost } = self;
        let (cost, on_outage) = (limit.cost.get(), limit.on_outage);
        Ask { key, shape: *shape, cost, largest_cost: *largest_cost, on_outage }
    }
}

impl Described {
    fn has(&self, part: &KeyPart) -> bool {
        match part {
            KeyPart::Method => self.method.is_some(),
            KeyPart::Route => self.route.is_some(),
            other => matches!(self.extract(vec![other.clone()], ""), Extracted::Key(_)),
        }
    }

    fn extract(&self, parts: Vec<KeyPart>, limit: &str) -> Extracted {
        let param = |name: &str| self.params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let facts = Facts {
            method: self.method.as_ref().unwrap_or(&Method::GET),
            uri: &self.uri,
            headers: &self.headers,
            client_ip: self.client_ip,
            host: self.host.as_deref().unwrap_or_default(),
            route: self.route.as_deref().unwrap_or_default(),
            param: &param,
        };
        KeySpec { parts, on_missing: OnMissing::Refuse }.extract(limit, &facts)
    }
}

/// The parts of `spec` that a request lacks, by [`part_name`].
pub fn lacking(spec: &KeySpec, facts: &Facts<'_>) -> Vec<String> {
    let lacks = |part: &&KeyPart| {
        let alone = KeySpec { parts: vec![(*part).clone()], on_missing: OnMissing::Refuse };
        alone.extract("", facts) == Extracted::Refuse
    };
    spec.parts.iter().filter(lacks).map(part_name).collect()
}

/// What a part is called where an operator describes a request: `client_ip`, `header.x-tenant`.
pub fn part_name(part: &KeyPart) -> String {
    match part {
        KeyPart::ClientIp { .. } => "client_ip".to_owned(),
        KeyPart::Header(name) => format!("header.{name}"),
        KeyPart::Cookie(name) => format!("cookie.{name}"),
        KeyPart::Query(name) => format!("query.{name}"),
        KeyPart::PathParam(name) => format!("path.{name}"),
        KeyPart::Method => "method".to_owned(),
        KeyPart::Host => "host".to_owned(),
        KeyPart::Route => "route".to_owned(),
        KeyPart::Constant(_) => "constant".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use http::HeaderName;

    use super::*;
    use crate::rate_limit::policy::{OnOutage, Rate};

    fn listed(parts: Vec<KeyPart>) -> Listed {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        let rate = Rate { tokens: nonzero(10), period_us: nonzero(1_000_000) };
        let key = KeySpec { parts, on_missing: OnMissing::Share };
        let (name, on_outage) = ("per-tenant".into(), OnOutage::Local);
        let limit = Limit { name, key, rate, burst: nonzero(20), cost: nonzero(2), on_outage };
        Catalog::of(&[Arc::new(limit)], std::iter::empty()).unwrap().find("per-tenant").unwrap().clone()
    }

    fn tenant_and_route() -> Listed {
        listed(vec![KeyPart::Header(HeaderName::from_static("x-tenant")), KeyPart::Route, KeyPart::Method])
    }

    #[test]
    fn what_is_described_has_the_key_that_a_request_has() {
        let mut described =
            Described { route: Some("orders".to_owned()), method: Some(Method::POST), ..Described::default() };
        described.headers.insert("x-tenant", "a c".parse().unwrap());
        assert_eq!(tenant_and_route().key_of(&described), Ok(Key::from("per-tenant:a%20c|orders|POST")));
    }

    #[test]
    fn what_is_not_described_is_named_and_never_guessed() {
        let lacking = tenant_and_route().key_of(&Described::default());
        assert_eq!(lacking, Err(["header.x-tenant", "route", "method"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_raw_key_belongs_to_its_limit_and_holds_nothing_odd() {
        let limit = tenant_and_route();
        assert!(limit.raw_key("per-tenant:a|orders|GET").is_some());
        assert!(limit.raw_key("per-tenant:").is_some());
        for odd in ["a|orders|GET", "per-tenants:a", "per-tenant", "per-tenant:a b", "per-tenant:a\n", "per-tenant:é"]
        {
            assert_eq!(limit.raw_key(odd), None, "{odd}");
        }
        assert_eq!(limit.raw_key(&format!("per-tenant:{}", "x".repeat(LONGEST_KEY))), None);
    }

    #[test]
    fn a_key_leads_back_to_its_limit() {
        let limits = [tenant_and_route().limit];
        let catalog = Catalog::of(&limits, std::iter::empty()).unwrap();
        assert!(catalog.of_key(&Key::from("per-tenant:2001:db8::/64")).is_some());
        assert!(catalog.of_key(&Key::from("!probe")).is_none());
    }
}
