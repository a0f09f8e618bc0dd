//! The way of a request through the gateway, from the outside in:
//!
//! account ▸ panic guard ▸ route ▸ whole time ▸ [ CORS ▸ answer's changes ▸ clients ▸
//! authentication ▸ body's keys ▸ load shed ▸ rate limit ▸ body bound ▸ request's fields ▸ timeout
//! ▸ action ]
//!
//! [`serve`](super::serve::serve) takes the first four steps for every request. [`chain`] composes
//! the rest for each route, when a configuration is loaded. Read it top to bottom: each layer says
//! why it stands where it stands.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Response;
use tollgate_limiter::layer::{RateLimit, RateLimitLayer};
use tollgate_limiter::request::rule_set::RuleSet;
use tower::ServiceBuilder;
use tower::util::Either;
use tower_service::Service;

pub use super::answer::compression::Compression;
use super::body_keys::{BodyKeys, ErasedChain, WithBodyKeys};
use super::exchange::Exchange;
use super::layers::action::Act;
pub use super::layers::answer::AnswerLayer;
use super::layers::answer::ChangedAnswers;
use super::layers::authentication::Authenticated;
pub use super::layers::authentication::AuthenticationLayer;
use super::layers::body_bound::{BodyBound, BodyBoundLayer};
use super::layers::clients::ClientGuard;
pub use super::layers::clients::{ClientRule, ClientRuleLayer};
use super::layers::cors::CrossOrigin;
pub use super::layers::cors::CrossOriginLayer;
pub use super::layers::fields::RequestChanges;
use super::layers::fields::{RequestFields, RequestFieldsLayer};
use super::layers::rate_limit::WorkerLimiter;
pub use super::layers::shed::RequestBound;
use super::layers::shed::{Shed, ShedLayer};
use super::layers::timeout::{Timeout, TimeoutLayer};
use crate::body::Body;
use crate::error::Failure;

/// The layers between a route and its action. A layer that the route does not use is passed by.
pub type Chain = Either<OuterChain, ShedChain>;
/// Few routes use any of these: the others pass them by together.
type OuterChain = Either<CrossOrigin<AnsweredChain>, AnsweredChain>;
type AnsweredChain = Either<ChangedAnswers<GuardedChain>, GuardedChain>;
type GuardedChain = Either<ClientGuard<IdentifiedChain>, IdentifiedChain>;
type IdentifiedChain = Either<Authenticated<ReadChain>, ReadChain>;
/// The rest is behind a pointer: each layer around its types would name them twice.
type ReadChain = WithBodyKeys;
type ShedChain = Either<Shed<LimitedChain>, LimitedChain>;
type LimitedChain = Either<RateLimit<BoundedChain, WorkerLimiter>, BoundedChain>;
type BoundedChain = Either<BodyBound<ChangedChain>, ChangedChain>;
type ChangedChain = RequestFields<TimedChain>;
type TimedChain = Either<Timeout<Act>, Act>;

/// The layers that a route uses, or a listener for requests without a route.
#[derive(Default)]
pub struct ChainSpec {
    pub cors: Option<CrossOriginLayer>,
    pub answer: Option<AnswerLayer>,
    pub clients: Option<ClientRuleLayer>,
    pub authentication: Option<AuthenticationLayer>,
    pub body_keys: Option<Arc<BodyKeys>>,
    pub max_requests: Option<RequestBound>,
    pub rules: Option<Arc<RuleSet>>,
    pub max_body: Option<u64>,
    pub request_fields: Option<Arc<RequestChanges>>,
    pub head_time: Option<Duration>,
}

/// Composes the chain of one route behind one listener.
pub fn chain(spec: ChainSpec) -> Chain {
    let changes_answer = spec.cors.is_some() || spec.answer.is_some();
    let asks_first =
        spec.clients.is_some() || spec.authentication.is_some() || spec.body_keys.is_some();
    let outer = ServiceBuilder::new()
        // A page may read every answer, also those of the layers below. Browsers ask beforehand
        // without credentials, and are answered here: that costs no limit anything.
        .option_layer(spec.cors)
        // The route changes every answer as well: its fields, its coding. What browsers are told of
        // CORS is not its to change.
        .option_layer(spec.answer)
        // A client that is not served at all comes next: it takes no place and no tokens of those
        // that are. Nor is it asked who it is during maintenance: the service that knows may be
        // away too.
        .option_layer(spec.clients)
        // Limits count by who the client is, so that is found out before them. A client that does
        // not say so is refused, and charged to those of its listener alone: it takes no tokens of
        // clients that do.
        .option_layer(spec.authentication);
    let inner: ShedChain = ServiceBuilder::new()
        // Load is shed before limits are asked: a request that is not served must not be charged.
        .option_layer(spec.max_requests.map(ShedLayer))
        // Limits come before anything touches the body: a denied request costs no upstream
        // anything. This is the one layer that may wait, where a limit has a queue. A listener's
        // limits also count requests that no route takes, or nonsense would be free.
        .option_layer(
            spec.rules
                .map(|rules| RateLimitLayer::of_rules(WorkerLimiter, rules)),
        )
        // The bound on the body stands inside the limits: an oversized request is a request, and
        // counts.
        .option_layer(spec.max_body.map(BodyBoundLayer))
        // Limits count what the client sent, so fields change after them, and credentials go.
        .layer(RequestFieldsLayer(spec.request_fields))
        // The timeout is innermost, around the part that can take long. It ends at the answer's
        // head, so bodies may stream.
        .option_layer(spec.head_time.map(TimeoutLayer))
        // The action of the route, or the lesser one that a limit allows.
        .service(Act);
    if !changes_answer && !asks_first {
        return Either::Right(inner);
    }
    // Limits may count by a member of the body, which is then read before them: not for those who
    // were refused already.
    let read: ReadChain = WithBodyKeys::new(spec.body_keys, Arc::new(inner));
    Either::Left(outer.service(read))
}

impl ErasedChain for ShedChain {
    fn answer<'a, 'g>(
        &self,
        exchange: &'a mut Exchange<'g>,
    ) -> BoxFuture<'a, Result<Response<Body>, Failure>> {
        // Every layer is always ready.
        Box::pin(self.clone().call(exchange))
    }
}
