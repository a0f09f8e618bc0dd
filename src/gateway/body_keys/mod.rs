//! Reads request bodies ahead of the limits that count by a member of them.
//!
//! Guarantees that the upstream gets the body byte for byte as the client sent it, that no more of
//! it is held than the bounds of its memory allow, and that it is read only on routes whose limits
//! ask for it.

mod ahead;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::EXPECT;
use http::{Request, Response};
use http_body::Body as _;
use metrics::{Counter, counter};
use tokio::time::timeout_at;
use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::{BodyFormat, BodyValues, KeyPart};
use tollgate_limiter::limit::plan::Plans;
use tower_service::Service;

use self::ahead::{AheadError, BodyAhead};
use crate::body::Body;
use crate::body_memory::BodyMemory;
use crate::clock;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::gateway::layers::shed::RequestBound;
use crate::http::deadline::LONGEST_WAIT;

/// The bounds on what is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyKeyBounds {
    /// Bytes of one body.
    pub max_body: NonZeroUsize,
    /// Bytes of all bodies together.
    pub max_memory: NonZeroUsize,
    /// From a request's head to the end of its body.
    pub timeout: Duration,
}

impl Default for BodyKeyBounds {
    fn default() -> Self {
        let kib = |count: usize| {
            NonZeroUsize::MIN.saturating_mul(NonZeroUsize::MIN.saturating_add(count * 1024 - 1))
        };
        Self {
            max_body: kib(64),
            max_memory: kib(64 * 1024),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The members of bodies that the limits of a route count by.
pub struct BodyKeys {
    members: Vec<Arc<str>>,
    bounds: BodyKeyBounds,
    memory: Arc<BodyMemory>,
    /// Load is shed before: a request that is not served must not be read.
    max_requests: Option<RequestBound>,
    found: Counter,
    missing: Counter,
    refused: Counter,
}

/// A service whose requests come with the members of their bodies.
#[derive(Clone)]
pub struct WithBodyKeys {
    keys: Option<Arc<BodyKeys>>,
    inner: Arc<dyn ErasedChain>,
}

/// The rest of a chain, without its types.
pub trait ErasedChain: Send + Sync {
    fn answer<'a, 'g>(
        &self,
        exchange: &'a mut Exchange<'g>,
    ) -> BoxFuture<'a, Result<Response<Body>, Failure>>;
}

impl BodyKeys {
    /// Those of the limits of the route called `route`. `None`: they count by no body.
    pub fn of(
        limits: &[LimitUse],
        route: &str,
        bounds: BodyKeyBounds,
        memory: &Arc<BodyMemory>,
        max_requests: Option<RequestBound>,
    ) -> Option<Self> {
        let mut members: Vec<Arc<str>> = Vec::new();
        for used in limits {
            let parts = used
                .limit
                .key
                .parts
                .iter()
                .chain(used.limit.plans.iter().map(|plans: &Plans| &plans.by));
            for part in parts {
                if let KeyPart::Body(member) = part
                    && !members.contains(&member.name)
                {
                    members.push(member.name.clone());
                }
            }
        }
        if members.is_empty() {
            return None;
        }
        let count = |outcome: &'static str| {
            let reads = counter!("tollgate_body_keys_total", "route" => route.to_owned(), "outcome" => outcome);
            reads.increment(0);
            reads
        };
        let (found, missing, refused) = (count("found"), count("missing"), count("refused"));
        Some(Self {
            members,
            bounds,
            memory: memory.clone(),
            max_requests,
            found,
            missing,
            refused,
        })
    }

    /// Reads the members of the request's body, if that can be read at all.
    async fn read(&self, request: &mut Request<Body>, ip: IpAddr) -> Result<(), Failure> {
        let values = self
            .read_values(request, ip)
            .await
            .inspect_err(|_| self.refused.increment(1))?;
        let is_whole = self
            .members
            .iter()
            .all(|member| values.get(member).is_some());
        if is_whole { &self.found } else { &self.missing }.increment(1);
        request.extensions_mut().insert(values);
        Ok(())
    }

    async fn read_values(
        &self,
        request: &mut Request<Body>,
        ip: IpAddr,
    ) -> Result<BodyValues, Failure> {
        let most = self.bounds.max_body.get();
        let fits =
            !request.body().is_end_stream() && request.body().size_hint().lower() <= most as u64;
        let Some(format) = BodyFormat::from_headers(request.headers()).filter(|_| fits) else {
            return Ok(BodyValues::default());
        };
        let mut body = BodyAhead::new(
            std::mem::replace(request.body_mut(), Body::empty()),
            &self.memory,
            ip,
        );
        // A client that waited for it has its 100.
        request.headers_mut().remove(EXPECT);
        let deadline = clock::now() + self.bounds.timeout.min(LONGEST_WAIT);
        let read = timeout_at(deadline, body.read(most))
            .await
            .unwrap_or(Err(AheadError::Overdue));
        let is_whole = read.map_err(AheadError::into_failure)?;
        let values = match is_whole {
            true => BodyValues::read(&self.members, format, request.uri(), body.content()),
            false => BodyValues::default(),
        };
        *request.body_mut() = body.into_body();
        Ok(values)
    }
}

impl WithBodyKeys {
    pub fn new(keys: Option<Arc<BodyKeys>>, inner: Arc<dyn ErasedChain>) -> Self {
        Self { keys, inner }
    }
}

impl<'a, 'g> Service<&'a mut Exchange<'g>> for WithBodyKeys {
    type Response = Response<Body>;
    type Error = Failure;
    /// Boxed: few routes read bodies ahead, and the others would carry the room for it.
    type Future = BoxFuture<'a, Result<Response<Body>, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        let Self { keys, inner } = self.clone();
        let Some(keys) = keys else {
            return inner.answer(exchange);
        };
        Box::pin(async move {
            if keys
                .max_requests
                .is_some_and(|bound| bound.is_reached(exchange))
            {
                return Err(Failure::Overloaded);
            }
            keys.read(exchange.request, exchange.context.origin.client_ip)
                .await?;
            inner.answer(exchange).await
        })
    }
}
