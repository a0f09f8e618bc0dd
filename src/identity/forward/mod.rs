//! Asks a service of the operator's about each request: `subrequest` is the question, `answer` what
//! becomes of the answer, `cache` the answers that are kept, in an `answer_table`.
//!
//! Guarantees that a request waits for it no longer than its time limit.

mod answer;
mod answer_table;
pub mod cache;
pub mod spec;
mod subrequest;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::HeaderMap;
use tokio::time::timeout_at;
use tollgate_limiter::limit::key::CallerIdentity;

use self::cache::AnswerCache;
use self::spec::{ForwardSpec, OnServiceFailure};
use super::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use super::source::CredentialSource;
use crate::clock;
use crate::error::Failure;
use crate::http::interim::InterimSlot;
use crate::proxy::RequestSource;
use crate::proxy::report::SentMark;
use crate::route::{Forward, HostPolicy, Rewrite};
use crate::upstream::Destination;

const LATE: &str = "the service that knows clients did not answer in time";
const ERROR: &str = "the service that knows clients answered with an error";
const BUSY: &str = "the service that knows clients has as many requests as it takes";
const UNASKABLE: AuthenticationRefusal = AuthenticationRefusal::Faulty(Failure::BadRequest(
    "the service that knows clients cannot be told of this request",
));
const AWAY: &str = "the service that knows clients cannot be reached";

/// Asks about the request of `source`, for the authenticator of this name, unless an answer is
/// kept. Must run inside the worker's runtime.
pub fn ask(
    spec: &Arc<ForwardSpec>,
    authenticator: &Arc<str>,
    cache: Option<&Arc<AnswerCache>>,
    source: CredentialSource<'_>,
) -> ControlFlow<VerifiedClient, impl Future<Output = AuthenticationResult> + Send + use<>> {
    let question = subrequest::subrequest(spec, &source);
    let cache = cache.zip(question.as_ref()).map(|(cache, question)| {
        let key = cache.key(
            question,
            source.exchange.origin,
            shown_server(spec, &source),
        );
        (cache.clone(), key)
    });
    if let Some(client) = cache.as_ref().and_then(|(cache, key)| cache.find(key)) {
        return ControlFlow::Break(client);
    }
    let asked = question.ok_or(UNASKABLE).and_then(|request| {
        let upstream = source.exchange.upstreams.get(&spec.upstream).cloned();
        Ok((
            request,
            upstream.ok_or(AuthenticationRefusal::Unavailable(AWAY))?,
        ))
    });
    let (proxy, origin) = (
        source.exchange.proxy.clone(),
        source.exchange.origin.clone(),
    );
    let (request_id, sockets) = (
        source.exchange.request_id.clone(),
        source.exchange.sockets.copied(),
    );
    let (spec, authenticator) = (spec.clone(), authenticator.clone());
    ControlFlow::Continue(async move {
        let (mut request, upstream) = asked?;
        let begun = clock::now();
        let deadline = begun + spec.timeout;
        // Its interim responses are not the client's.
        let interim = InterimSlot::default();
        let rule = Forward {
            upstream: spec.upstream.clone(),
            rewrite: Rewrite::Keep,
            host: HostPolicy::Endpoint,
        };
        let source = RequestSource {
            origin: &origin,
            request_id: &request_id,
            interim: &interim,
            sockets: sockets.as_ref(),
            affinity: None,
            begun,
            deadline: Some(deadline),
            has_own_fields: true,
            sent: &SentMark::default(),
        };
        let destination = Destination {
            upstream: &upstream,
            spec: upstream.spec(),
        };
        let keep = |client: &VerifiedClient, fields: &HeaderMap| {
            if let Some((cache, key)) = &cache {
                cache.keep(*key, origin.client_ip, client, (fields, begun));
            }
        };
        let answer = timeout_at(
            deadline,
            proxy.forward(&mut request, &rule, destination, source),
        )
        .await;
        match answer.unwrap_or(Err(Failure::ResponseTimeout)) {
            Ok(response) if response.status().is_server_error() => {
                answer::drain(response.into_body());
                failed(&spec, AuthenticationRefusal::Undecided(ERROR))
            }
            Ok(response) => answer::verdict(&spec, &authenticator, response, deadline, keep).await,
            Err(failure) => unanswered(&spec, failure),
        }
    })
}

/// The address that the client went to, if the service is told it: by the header of the PROXY
/// protocol.
fn shown_server(spec: &ForwardSpec, source: &CredentialSource<'_>) -> Option<SocketAddr> {
    let upstream = source.exchange.upstreams.get(&spec.upstream)?;
    upstream
        .spec()
        .proxy_protocol
        .then_some(source.exchange.sockets?.server)
}

/// The verdict on a request about which the service says nothing. It has failed only if the client
/// could not be the cause.
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
