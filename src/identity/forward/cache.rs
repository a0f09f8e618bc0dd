//! The answers of the service that let requests pass, kept for a while.
//!
//! Guarantees that an answer serves only requests about which the service would have been told the
//! same, save the parts that the operator names, that nothing but a permission is kept, and bounds
//! on what is held. Credentials are held as hashes.

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
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::http::request_id::REQUEST_ID;
use crate::identity::api_key::CredentialHash;
use crate::identity::refusal::VerifiedClient;
use crate::proxy::message::forwarded::ClientOrigin;

/// Bytes of the fields of an answer that is kept.
const MAX_FIELDS: usize = 4_096;

/// The answers that are kept.
pub struct AnswerCache {
    spec: AnswerCacheSpec,
    answers: RwLock<AnswerTable<Arc<KeptAnswer>>>,
    found: Counter,
    missed: Counter,
}

struct KeptAnswer {
    client: VerifiedClient,
    until: Instant,
}

impl AnswerCache {
    /// Of the authenticator called `name`. Metrics go to the recorder that is installed by now.
    pub fn new(spec: &AnswerCacheSpec, name: &str) -> Self {
        let lookups = |outcome: &'static str| {
            let name = name.to_owned();
            let counter = counter!("tollgate_forward_auth_lookups_total", "authenticator" => name, "outcome" => outcome);
            counter.increment(0);
            counter
        };
        let (found, missed) = (lookups("found"), lookups("none"));
        Self {
            spec: spec.clone(),
            answers: RwLock::default(),
            found,
            missed,
        }
    }

    /// The hash of all that the service is told by `question` about a request from `origin`, less
    /// what is ignored. The id of the request is in none. `server` is the address that the client
    /// went to, where the service is told that.
    pub fn key(
        &self,
        question: &Request<Body>,
        origin: &ClientOrigin,
        server: Option<SocketAddr>,
    ) -> CredentialHash {
        let ignores = |part| self.spec.ignore.contains(&part);
        let left_out: [(HeaderName, bool); 4] = [
            (REQUEST_ID, true),
            (X_FORWARDED_URI, ignores(IgnoredPart::Uri)),
            (X_FORWARDED_METHOD, ignores(IgnoredPart::Method)),
            (X_FORWARDED_FOR, ignores(IgnoredPart::ClientIp)),
        ];
        let mut hash = Sha256::new();
        // Each part with its length: no two lists of parts are one text.
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        let fields = question.headers();
        add(origin.forwarded_scheme(fields).as_bytes());
        add(origin.scheme.as_str().as_bytes());
        add(&[u8::from(origin.peer_trusted)]);
        if !ignores(IgnoredPart::ClientIp) {
            add(origin.client_ip.to_string().as_bytes());
            add(origin.peer.to_string().as_bytes());
        }
        add(origin
            .client
            .as_ref()
            .map_or(&b""[..], |client| client.forwarded.as_bytes()));
        add(server
            .map_or_else(String::new, |server| server.to_string())
            .as_bytes());
        for (name, value) in fields {
            if !left_out
                .iter()
                .any(|(other, is_left_out)| *is_left_out && name == other)
            {
                add(name.as_str().as_bytes());
                add(value.as_bytes());
            }
        }
        hash.finalize().into()
    }

    /// The client that the service has let pass a moment ago.
    pub fn find(&self, key: &CredentialHash) -> Option<VerifiedClient> {
        let kept = self.answers.read().get(key).cloned();
        let kept = kept.filter(|kept| clock::now() < kept.until);
        if kept.is_some() {
            self.found.increment(1)
        } else {
            self.missed.increment(1)
        }
        kept.map(|kept| kept.client.clone())
    }

    /// Keeps an answer with these fields to a question about the client at `ip` that was asked at
    /// `asked_at`, for as long as it may be.
    pub fn keep(
        &self,
        key: CredentialHash,
        ip: IpAddr,
        client: &VerifiedClient,
        (fields, asked_at): (&HeaderMap, Instant),
    ) {
        let size = |fields: &HeaderMap| {
            fields
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len())
                .sum::<usize>()
        };
        let is_small = client
            .fields
            .as_ref()
            .is_none_or(|fields| size(fields) <= MAX_FIELDS);
        let Some(lifetime) = lifetime(self.spec.max_age, fields).filter(|_| is_small) else {
            return;
        };
        let fields = client
            .fields
            .as_deref()
            .map(|fields| Box::new(detached(fields)));
        let client = VerifiedClient {
            identity: client.identity.clone(),
            fields,
        };
        let forgotten = self.answers.write().insert(
            key,
            ip,
            Arc::new(KeptAnswer {
                client,
                until: asked_at + lifetime,
            }),
        );
        // Behind the lock, for which all workers may wait.
        drop(forgotten);
    }
}

/// Copies of fields: as they came, they would hold all of the buffer that their response was read
/// into.
fn detached(fields: &HeaderMap) -> HeaderMap {
    let copy = |value: &HeaderValue| {
        let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
        copy.set_sensitive(value.is_sensitive());
        copy
    };
    fields
        .iter()
        .map(|(name, value)| (name.clone(), copy(value)))
        .collect()
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
    use crate::transport::peer::TrustedPeers;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const MINUTE: Duration = Duration::from_secs(60);

    fn cache(ignore: &[IgnoredPart]) -> AnswerCache {
        AnswerCache::new(
            &AnswerCacheSpec {
                max_age: MINUTE,
                ignore: ignore.to_vec(),
            },
            "sso",
        )
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
        let everything = cache(&[]);
        let key = |change: &dyn Fn(&mut HeaderMap)| {
            let mut question = question();
            change(question.headers_mut());
            everything.key(&question, &origin("192.0.2.1"), None)
        };
        let same = key(&|_| {});
        assert_eq!(
            key(&|fields| drop(fields.insert(REQUEST_ID, HeaderValue::from_static("two")))),
            same
        );
        let set = |name: &'static str, value: &'static str| {
            key(&|fields| {
                drop(fields.insert(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                ))
            })
        };
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
            key(&|fields| drop(fields.remove(AUTHORIZATION))),
            key(&|fields| drop(fields.remove(COOKIE))),
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
            let told = changes.map(|(name, value)| {
                let mut other = question();
                other.headers_mut().insert(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
                cache.key(&other, &origin("192.0.2.1"), None)
                    == cache.key(&question(), &origin("192.0.2.1"), None)
            });
            assert_eq!(told, same, "{ignored:?}");
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
        let of = |lines: &[(&str, &str)]| {
            lifetime(MINUTE, &fields(lines)).map(|lifetime| lifetime.as_secs())
        };
        assert_eq!(of(&[]), Some(60));
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
            assert_eq!(of(&[("cache-control", value)]), kept, "{value}");
        }
        assert_eq!(
            of(&[
                ("cache-control", "max-age=9"),
                ("cache-control", "no-store")
            ]),
            None
        );
        assert_eq!(of(&[("cache-control", "max-age=9"), ("age", "4")]), Some(5));
        assert_eq!((of(&[("age", "60")]), of(&[("age", "old")])), (None, None));
        assert_eq!(
            (of(&[("vary", "accept, *")]), of(&[("vary", "cookie")])),
            (None, Some(60))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_found_until_it_is_too_old_and_a_large_one_is_not_kept() {
        let cache = cache(&[]);
        let (key, asked_at) = (
            cache.key(&question(), &origin("192.0.2.1"), None),
            clock::now(),
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        cache.keep(key, CLIENT, &ada(), (&HeaderMap::new(), asked_at));
        tokio::time::advance(Duration::from_secs(49)).await;
        assert_eq!(cache.find(&key).unwrap().identity.id(), "ada");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            cache.find(&key).is_none(),
            "its time began when the service was asked"
        );
        let value = "x".repeat(MAX_FIELDS);
        let large = VerifiedClient {
            fields: Some(Box::new(fields(&[("x-role", &value)]))),
            ..ada()
        };
        cache.keep(key, CLIENT, &large, (&HeaderMap::new(), clock::now()));
        assert!(cache.find(&key).is_none());
    }

    #[test]
    fn an_answer_that_is_kept_holds_nothing_of_its_response() {
        let cache = cache(&[]);
        let response = Bytes::from(vec![b'a'; 1 << 20]);
        let mut value = HeaderValue::from_maybe_shared(response.slice(..5)).unwrap();
        value.set_sensitive(true);
        let fields = HeaderMap::from_iter([(HeaderName::from_static("x-role"), value)]);
        let client = VerifiedClient {
            fields: Some(Box::new(fields)),
            ..ada()
        };
        let key = cache.key(&question(), &origin("192.0.2.1"), None);
        cache.keep(key, CLIENT, &client, (&HeaderMap::new(), clock::now()));
        drop(client);
        assert!(response.is_unique());
        let kept = cache.find(&key).unwrap().fields.unwrap();
        assert!(kept["x-role"] == "aaaaa" && kept["x-role"].is_sensitive());
    }
}
