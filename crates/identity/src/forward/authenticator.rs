//! Asks the service about a request, unless an answer is kept.
//!
//! Guarantees that a request waits for the service no longer than its time limit.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Request};
use tokio::time::timeout_at;
use tollgate_limiter::limit::key::CallerIdentity;

use super::cache::{AnswerCache, CacheEntry};
use super::spec::{ForwardSpec, OnServiceFailure};
use super::{answer, subrequest};
use crate::authenticator::{Authenticator, BuildContext, Finding};
use crate::key_table::ApiKeyTable;
use crate::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use crate::source::CredentialSource;
use tollgate_limiter::clock;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::report::SentMark;
use tollgate_proxy::upstream::{Destination, Upstream};
use tollgate_proxy::{Proxy, RequestSource};
use tollgate_spec::route::{Forward, HostPolicy, Rewrite};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::transport::peer::SocketPair;

const LATE: &str = "the service that knows clients did not answer in time";
const ERROR: &str = "the service that knows clients answered with an error";
const BUSY: &str = "the service that knows clients has as many requests as it takes";
const UNASKABLE: AuthenticationRefusal = AuthenticationRefusal::Faulty(Failure::BadRequest(
    "the service that knows clients cannot be told of this request",
));
const AWAY: &str = "the service that knows clients cannot be reached";

/// Authenticates clients by what the service says.
pub struct ForwardAuthenticator {
    name: Arc<str>,
    spec: Arc<ForwardSpec>,
    /// The answers that are kept, if any are.
    answers: Option<Arc<AnswerCache>>,
}

/// A question to the service, with the parts of the exchange that it takes along.
struct Question {
    authenticator: Arc<str>,
    spec: Arc<ForwardSpec>,
    request: Request<Body>,
    upstream: Arc<Upstream>,
    proxy: Arc<Proxy>,
    origin: ClientOrigin,
    request_id: HeaderValue,
    sockets: Option<SocketPair>,
    /// Where a permission is kept.
    entry: Option<CacheEntry>,
}

impl ForwardAuthenticator {
    pub fn new(spec: &Arc<ForwardSpec>, context: BuildContext<'_>) -> Self {
        let answers = spec
            .cache
            .as_ref()
            .map(|cache| Arc::new(AnswerCache::new(cache, context.name)));
        Self {
            name: context.name.clone(),
            spec: spec.clone(),
            answers,
        }
    }

    /// The place of an answer to `question` in the cache, if answers are kept.
    fn cache_entry(
        &self,
        question: &Request<Body>,
        source: CredentialSource<'_>,
    ) -> Option<CacheEntry> {
        let cache = self.answers.as_ref()?;
        let origin = source.exchange.origin;
        let key = cache.key(question, origin, shown_server(&self.spec, source));
        Some(CacheEntry::new(cache, key, origin.client_ip))
    }
}

impl Authenticator for ForwardAuthenticator {
    /// Must run inside the worker's runtime.
    fn check(&self, source: CredentialSource<'_>, _: Option<&ApiKeyTable>) -> Finding {
        let Some(request) = subrequest::subrequest(&self.spec, &source) else {
            return Finding::refused(UNASKABLE);
        };
        let entry = self.cache_entry(&request, source);
        if let Some(client) = entry.as_ref().and_then(CacheEntry::find) {
            return Finding::Decided(Ok(client));
        }
        let Some(upstream) = source.exchange.upstreams.get(&self.spec.upstream) else {
            return Finding::refused(AuthenticationRefusal::Unavailable(AWAY));
        };
        let question = Question {
            authenticator: self.name.clone(),
            spec: self.spec.clone(),
            request,
            upstream: upstream.clone(),
            proxy: source.exchange.proxy.clone(),
            origin: source.exchange.origin.clone(),
            request_id: source.exchange.request_id.clone(),
            sockets: source.exchange.sockets.copied(),
            entry,
        };
        Finding::Waits(Box::pin(question.ask()))
    }
}

impl Question {
    async fn ask(mut self) -> AuthenticationResult {
        let begun = clock::now();
        let deadline = begun + self.spec.timeout;
        // Interim responses of the service are not for the client.
        let interim = InterimSlot::default();
        let rule = Forward {
            upstream: self.spec.upstream.clone(),
            rewrite: Rewrite::Keep,
            host: HostPolicy::Endpoint,
        };
        let source = RequestSource {
            origin: &self.origin,
            request_id: &self.request_id,
            interim: &interim,
            sockets: self.sockets.as_ref(),
            affinity: None,
            begun,
            deadline: Some(deadline),
            has_own_fields: true,
            sent: &SentMark::default(),
        };
        let destination = Destination {
            upstream: &self.upstream,
            spec: self.upstream.spec(),
        };
        let forwarding = self
            .proxy
            .forward(&mut self.request, &rule, destination, source);
        let response = match timeout_at(deadline, forwarding).await {
            Ok(Ok(response)) => response,
            Ok(Err(failure)) => return unanswered(&self.spec, failure),
            Err(_) => return unanswered(&self.spec, Failure::ResponseTimeout),
        };
        if response.status().is_server_error() {
            answer::drain(response.into_body());
            return failed(&self.spec, AuthenticationRefusal::Undecided(ERROR));
        }
        answer::verdict(
            &self.spec,
            &self.authenticator,
            response,
            deadline,
            |client, fields| {
                if let Some(entry) = &self.entry {
                    entry.keep(client, fields, begun);
                }
            },
        )
        .await
    }
}

/// The address that the client went to, if the service learns it by the header of the PROXY
/// protocol.
fn shown_server(spec: &ForwardSpec, source: CredentialSource<'_>) -> Option<SocketAddr> {
    let upstream = source.exchange.upstreams.get(&spec.upstream)?;
    if upstream.spec().proxy_protocol {
        Some(source.exchange.sockets?.server)
    } else {
        None
    }
}

/// The verdict on a request about which the service says nothing. The service has failed only if
/// the client could not be the cause.
fn unanswered(spec: &ForwardSpec, failure: Failure) -> AuthenticationResult {
    match failure {
        Failure::ConnectTimeout => failed(spec, AuthenticationRefusal::Unavailable(LATE)),
        Failure::ConnectFailed | Failure::TlsFailed | Failure::NoEndpoint | Failure::Exhausted => {
            failed(spec, AuthenticationRefusal::Unavailable(AWAY))
        }
        Failure::ResponseTimeout => failed(spec, AuthenticationRefusal::Undecided(LATE)),
        Failure::UpstreamClosed => failed(spec, AuthenticationRefusal::Undecided(AWAY)),
        Failure::UpstreamOverloaded | Failure::ConcurrencyLimited => {
            Err(AuthenticationRefusal::Undecided(BUSY))
        }
        Failure::HeadersTooLarge => Err(AuthenticationRefusal::Faulty(failure)),
        // A head that is too long, say, since it repeats what the client has sent.
        _ => Err(AuthenticationRefusal::Undecided(ERROR)),
    }
}

fn failed(spec: &ForwardSpec, refusal: AuthenticationRefusal) -> AuthenticationResult {
    match spec.on_failure {
        OnServiceFailure::Refuse => Err(refusal),
        OnServiceFailure::Allow => Ok(VerifiedClient::from(Arc::new(CallerIdentity::default()))),
    }
}
