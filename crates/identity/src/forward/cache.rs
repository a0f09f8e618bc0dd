//! The answers of the service that let requests pass, kept for a while.
//!
//! Guarantees that an answer serves only requests about which the service would have got the same
//! question, save the parts that the operator names, that nothing but a permission is kept, and
//! bounds on what is held. Credentials are held as hashes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use metrics::{Counter, counter};
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tollgate_limiter::limit::client_address::X_FORWARDED_FOR;

use super::answer_table::AnswerTable;
use super::spec::{AnswerCacheSpec, IgnoredPart};
use super::subrequest::{X_FORWARDED_METHOD, X_FORWARDED_URI};
use crate::key_table::CredentialHash;
use crate::refusal::VerifiedClient;
use tollgate_limiter::clock::{self, Instant};
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_wire::body::Body;
use tollgate_wire::http::request_id::REQUEST_ID;

/// Bytes of the fields of an answer that is kept.
const MAX_FIELDS: usize = 4_096;

/// The answers that are kept.
pub struct AnswerCache {
    spec: AnswerCacheSpec,
    answers: RwLock<AnswerTable<Arc<KeptAnswer>>>,
    found: Counter,
    missed: Counter,
}

/// The place of the answer about one request in the cache.
pub struct CacheEntry {
    cache: Arc<AnswerCache>,
    key: CredentialHash,
    client_ip: IpAddr,
}

struct KeptAnswer {
    client: VerifiedClient,
    until: Instant,
}

/// A hash of parts, each with its length: no two lists of parts are one text.
#[derive(Default)]
struct PartsHash(Sha256);

impl PartsHash {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }
}

impl AnswerCache {
    /// The cache of the authenticator called `name`. Metrics go to the recorder that is installed
    /// by now.
    pub fn new(spec: &AnswerCacheSpec, name: &str) -> Self {
        let [found, missed] = ["found", "none"].map(|outcome| {
            let counter = counter!("tollgate_forward_auth_lookups_total", "authenticator" => name.to_owned(), "outcome" => outcome);
            counter.increment(0);
            counter
        });
        Self {
            spec: spec.clone(),
            answers: RwLock::default(),
            found,
            missed,
        }
    }

    /// The hash of all that the service learns by `question` about a request from `origin`, less
    /// the parts that are ignored. The id of the request is in none. `server` is the address that
    /// the client went to, where the service learns that.
    pub fn key(
        &self,
        question: &Request<Body>,
        origin: &ClientOrigin,
        server: Option<SocketAddr>,
    ) -> CredentialHash {
        let mut hash = PartsHash::default();
        let fields = question.headers();
        hash.add(origin.forwarded_scheme(fields).as_bytes());
        hash.add(origin.scheme.as_str().as_bytes());
        hash.add(&[u8::from(origin.peer_trusted)]);
        if !self.ignores(IgnoredPart::ClientIp) {
            hash.add(origin.client_ip.to_string().as_bytes());
            hash.add(origin.peer.to_string().as_bytes());
        }
        match &origin.client {
            Some(client) => hash.add(client.forwarded.as_bytes()),
            None => hash.add(b""),
        }
        match server {
            Some(server) => hash.add(server.to_string().as_bytes()),
            None => hash.add(b""),
        }
        for (name, value) in fields {
            if !self.leaves_out(name) {
                hash.add(name.as_str().as_bytes());
                hash.add(value.as_bytes());
            }
        }
        hash.0.finalize().into()
    }

    fn ignores(&self, part: IgnoredPart) -> bool {
        self.spec.ignore.contains(&part)
    }

    /// Whether answers do not depend on this field of the question.
    fn leaves_out(&self, name: &HeaderName) -> bool {
        *name == REQUEST_ID
            || (*name == X_FORWARDED_URI && self.ignores(IgnoredPart::Uri))
            || (*name == X_FORWARDED_METHOD && self.ignores(IgnoredPart::Method))
            || (*name == X_FORWARDED_FOR && self.ignores(IgnoredPart::ClientIp))
    }
}

impl CacheEntry {
    /// The entry at `key` for an answer about the client at `client_ip`.
    pub fn new(cache: &Arc<AnswerCache>, key: CredentialHash, client_ip: IpAddr) -> Self {
        Self {
            cache: cache.clone(),
            key,
            client_ip,
        }
    }

    /// The client that the service has let pass a moment ago.
    pub fn find(&self) -> Option<VerifiedClient> {
        let kept = self.cache.answers.read().get(&self.key).cloned();
        match kept {
            Some(kept) if clock::now() < kept.until => {
                self.cache.found.increment(1);
                Some(kept.client.clone())
            }
            _ => {
                self.cache.missed.increment(1);
                None
            }
        }
    }

    /// Keeps an answer with these `fields`, which the service was asked for at `asked_at`, for as
    /// long as it may be.
    pub fn keep(&self, client: &VerifiedClient, fields: &HeaderMap, asked_at: Instant) {
        if client.fields.as_deref().is_some_and(is_large) {
            return;
        }
        let Some(lifetime) = lifetime(self.cache.spec.max_age, fields) else {
            return;
        };
        let answer = KeptAnswer {
            client: VerifiedClient {
                identity: client.identity.clone(),
                fields: client.fields.as_deref().map(|own| Box::new(detached(own))),
            },
            until: asked_at + lifetime,
        };
        let mut answers = self.cache.answers.write();
        let forgotten = answers.insert(self.key, self.client_ip, Arc::new(answer));
        // Forgotten answers are dropped behind the lock, for which all workers may wait.
        drop(answers);
        drop(forgotten);
    }
}

fn is_large(fields: &HeaderMap) -> bool {
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    sizes.sum::<usize>() > MAX_FIELDS
}

/// Copies of fields: as they came, they would hold all of the buffer that their response was read
/// into.
fn detached(fields: &HeaderMap) -> HeaderMap {
    let mut copies = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
        copy.set_sensitive(value.is_sensitive());
        copies.append(name, copy);
    }
    copies
}

/// How long an answer with these fields may be kept, `most` at most (RFC 9111 §4.2, §5.2.2).
/// `None`: not at all.
fn lifetime(most: Duration, fields: &HeaderMap) -> Option<Duration> {
    let mut lifetime = most;
    for value in fields.get_all(CACHE_CONTROL) {
        // A field that cannot be read may forbid it.
        for directive in value.to_str().ok()?.split(',') {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" | "no-cache" | "private" => return None,
                "max-age" | "s-maxage" => {
                    lifetime = lifetime.min(Duration::from_secs(
                        argument.trim().trim_matches('"').parse().ok()?,
                    ));
                }
                _ => {}
            }
        }
    }
    if fields
        .get_all(VARY)
        .iter()
        .any(|value| value.as_bytes().contains(&b'*'))
    {
        return None;
    }
    let age = fields
        .get(AGE)
        .map_or(Some(0), |age| age.to_str().ok()?.trim().parse().ok())?;
    lifetime
        .checked_sub(Duration::from_secs(age))
        .filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use http::header::{AUTHORIZATION, COOKIE};
    use tollgate_limiter::limit::key::CallerIdentity;

    use super::*;
    use tollgate_wire::transport::peer::TrustedPeers;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const MINUTE: Duration = Duration::from_secs(60);

    fn cache(ignore: &[IgnoredPart]) -> Arc<AnswerCache> {
        Arc::new(AnswerCache::new(
            &AnswerCacheSpec {
                max_age: MINUTE,
                ignore: ignore.to_vec(),
            },
            "sso",
        ))
    }

    /// The entry of the usual question.
    fn entry() -> CacheEntry {
        let cache = cache(&[]);
        let key = cache.key(&question(), &origin("192.0.2.1"), None);
        CacheEntry::new(&cache, key, CLIENT)
    }

    fn fields(lines: &[(&str, &str)]) -> HeaderMap {
        let parsed = lines
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        let mut fields = HeaderMap::new();
        for (name, value) in parsed {
            let name: HeaderName = name;
            fields.append(name, value);
        }
        fields
    }

    fn origin(ip: &str) -> ClientOrigin {
        ClientOrigin::resolve(
            &HeaderMap::new(),
            ip.parse().unwrap(),
            &TrustedPeers::default().proxies,
        )
    }

    fn question() -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = fields(&[
            ("host", "a"),
            ("authorization", "Bearer t"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "/a"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-request-id", "one"),
        ]);
        request
    }

    fn ada() -> VerifiedClient {
        Arc::new(CallerIdentity::new("sso", "ada")).into()
    }

    #[test]
    fn an_answer_is_for_requests_of_which_the_service_is_told_the_same() {
        fn key(change: impl FnOnce(&mut HeaderMap)) -> CredentialHash {
            let mut question = question();
            change(question.headers_mut());
            cache(&[]).key(&question, &origin("192.0.2.1"), None)
        }
        fn set(name: &'static str, value: &'static str) -> CredentialHash {
            let name = HeaderName::from_static(name);
            key(|fields| drop(fields.insert(name, HeaderValue::from_static(value))))
        }
        let everything = cache(&[]);
        let same = key(|_| {});
        assert_eq!(set("x-request-id", "two"), same);
        let others = [
            set("host", "b"),
            set("authorization", "Bearer u"),
            set("authorization", "Bearer "),
            set("cookie", "a=1"),
            set("cookie", "a=1; b=2"),
            set("x-forwarded-method", "POST"),
            set("x-forwarded-uri", "/b"),
            set("x-forwarded-for", "10.0.0.8"),
            set("x-new", ""),
            key(|fields| drop(fields.remove(AUTHORIZATION))),
            key(|fields| drop(fields.remove(COOKIE))),
            everything.key(&question(), &origin("192.0.2.2"), None),
            everything.key(
                &question(),
                &origin("192.0.2.1"),
                Some(([10, 0, 0, 1], 8443).into()),
            ),
            everything.key(
                &question(),
                &origin("192.0.2.1"),
                Some(([10, 0, 0, 1], 8080).into()),
            ),
            everything.key(
                &question(),
                &ClientOrigin {
                    peer_trusted: true,
                    ..origin("192.0.2.1")
                },
                None,
            ),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(*other != same && !others[..at].contains(other), "{at}");
        }
    }

    #[test]
    fn a_part_that_is_ignored_makes_no_difference_and_the_others_do() {
        use IgnoredPart::{ClientIp, Method, Uri};
        let changes = [
            ("x-forwarded-uri", "/b"),
            ("x-forwarded-method", "POST"),
            ("authorization", "Bearer u"),
        ];
        for (ignored, same) in [
            (&[Uri][..], [true, false, false]),
            (&[Method], [false, true, false]),
            (&[Uri, Method], [true, true, false]),
        ] {
            let cache = cache(ignored);
            let is_same = changes.map(|(name, value)| {
                let mut other = question();
                other.headers_mut().insert(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
                cache.key(&other, &origin("192.0.2.1"), None)
                    == cache.key(&question(), &origin("192.0.2.1"), None)
            });
            assert_eq!(is_same, same, "{ignored:?}");
        }
        let cache = cache(&[ClientIp]);
        let mut other = question();
        other
            .headers_mut()
            .insert(X_FORWARDED_FOR, HeaderValue::from_static("10.0.0.8"));
        let one = cache.key(&other, &origin("192.0.2.1"), None);
        assert_eq!(one, cache.key(&question(), &origin("192.0.2.2"), None));
    }

    #[test]
    fn an_answer_is_kept_no_longer_than_it_says() {
        fn seconds(lines: &[(&str, &str)]) -> Option<u64> {
            lifetime(MINUTE, &fields(lines)).map(|lifetime| lifetime.as_secs())
        }
        assert_eq!(seconds(&[]), Some(60));
        for (value, kept) in [
            ("max-age=5", Some(5)),
            ("public, Max-Age = \"5\"", Some(5)),
            ("max-age=3600", Some(60)),
            ("max-age=50, s-maxage=7", Some(7)),
            ("max-age=0", None),
            ("max-age=-1", None),
            ("max-age=soon", None),
            ("max-age", None),
            ("max-age=5, no-store", None),
            ("no-cache=\"set-cookie\"", None),
            ("private", None),
            ("must-revalidate", Some(60)),
        ] {
            assert_eq!(seconds(&[("cache-control", value)]), kept, "{value}");
        }
        assert_eq!(
            seconds(&[
                ("cache-control", "max-age=9"),
                ("cache-control", "no-store")
            ]),
            None
        );
        assert_eq!(
            seconds(&[("cache-control", "max-age=9"), ("age", "4")]),
            Some(5)
        );
        assert_eq!(
            (seconds(&[("age", "60")]), seconds(&[("age", "old")])),
            (None, None)
        );
        assert_eq!(
            (
                seconds(&[("vary", "accept, *")]),
                seconds(&[("vary", "cookie")])
            ),
            (None, Some(60))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_found_until_it_is_too_old_and_a_large_one_is_not_kept() {
        let entry = entry();
        let asked_at = clock::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        entry.keep(&ada(), &HeaderMap::new(), asked_at);
        tokio::time::advance(Duration::from_secs(49)).await;
        assert_eq!(entry.find().unwrap().identity.id(), "ada");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            entry.find().is_none(),
            "its time began when the service was asked"
        );
        let value = "x".repeat(MAX_FIELDS);
        let large = VerifiedClient {
            fields: Some(Box::new(fields(&[("x-role", &value)]))),
            ..ada()
        };
        entry.keep(&large, &HeaderMap::new(), clock::now());
        assert!(entry.find().is_none());
    }

    #[test]
    fn an_answer_that_is_kept_holds_nothing_of_its_response() {
        let entry = entry();
        let response = Bytes::from(vec![b'a'; 1 << 20]);
        let mut value = HeaderValue::from_maybe_shared(response.slice(..5)).unwrap();
        value.set_sensitive(true);
        let fields = HeaderMap::from_iter([(HeaderName::from_static("x-role"), value)]);
        let client = VerifiedClient {
            fields: Some(Box::new(fields)),
            ..ada()
        };
        entry.keep(&client, &HeaderMap::new(), clock::now());
        drop(client);
        assert!(response.is_unique());
        let kept = entry.find().unwrap().fields.unwrap();
        assert!(kept["x-role"] == "aaaaa" && kept["x-role"].is_sensitive());
    }
}
