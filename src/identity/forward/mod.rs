//! Asks a service of the operator's about each request: `subrequest` is the question, `answer` what becomes of the answer.
//!
//! Guarantees that a request waits for it no longer than its time limit.

mod answer;
pub mod spec;
mod subrequest;

use std::sync::Arc;

use tokio::time::timeout_at;
use tollgate_limiter::limit::key::CallerIdentity;

use self::spec::{ForwardSpec, OnServiceFailure};
use super::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use super::source::CredentialSource;
use crate::clock;
use crate::error::Failure;
use crate::http::interim::InterimSlot;
use crate::proxy::RequestSource;
use crate::route::{Forward, HostPolicy, Rewrite};
use crate::upstream::Destination;

const LATE: &str = "the service that knows clients did not answer in time";
const AWAY: &str = "the service that knows clients cannot be reached";

/// Asks about the request of `source`, for the authenticator of this name. Must run inside the worker's runtime.
pub fn ask(
    spec: &Arc<ForwardSpec>,
    authenticator: &Arc<str>,
    source: CredentialSource<'_>,
) -> impl Future<Output = AuthenticationResult> + Send + use<> {
    let asked = subrequest::subrequest(spec, &source).zip(source.exchange.upstreams.get(&spec.upstream).cloned());
    let (proxy, origin) = (source.exchange.proxy.clone(), source.exchange.origin.clone());
    let (request_id, sockets) = (source.exchange.request_id.clone(), source.exchange.sockets.copied());
    let (spec, authenticator) = (spec.clone(), authenticator.clone());
    async move {
        let Some((mut request, upstream)) = asked else {
            return failed(&spec, AuthenticationRefusal::Unavailable(AWAY));
        };
        let begun = clock::now();
        let deadline = begun + spec.timeout;
        // Its interim responses are not the client's.
        let interim = InterimSlot::default();
        let rule = Forward { upstream: spec.upstream.clone(), rewrite: Rewrite::Keep, host: HostPolicy::Endpoint };
        let source = RequestSource {
            origin: &origin,
            request_id: &request_id,
            interim: &interim,
            sockets: sockets.as_ref(),
            affinity: None,
            begun,
            deadline: Some(deadline),
            has_own_fields: true,
        };
        let destination = Destination { upstream: &upstream, spec: upstream.spec() };
        let answer = async {
            match proxy.forward(&mut request, &rule, destination, source).await {
                Ok(response) => answer::verdict(&spec, &authenticator, response).await,
                Err(Failure::ResponseTimeout | Failure::ConnectTimeout) => {
                    Err(AuthenticationRefusal::Unavailable(LATE))
                }
                Err(_) => Err(AuthenticationRefusal::Unavailable(AWAY)),
            }
        };
        let late = |_| Err(AuthenticationRefusal::Unavailable(LATE));
        match timeout_at(deadline, answer).await.unwrap_or_else(late) {
            Err(refusal @ AuthenticationRefusal::Unavailable(_)) => failed(&spec, refusal),
            result => result,
        }
    }
}

fn failed(spec: &ForwardSpec, refusal: AuthenticationRefusal) -> AuthenticationResult {
    match spec.on_failure {
        OnServiceFailure::Refuse => Err(refusal),
        OnServiceFailure::Allow => Ok(VerifiedClient::from(Arc::new(CallerIdentity::default()))),
    }
}
