//! Reads request bodies ahead of the limits that count by a member of them.
//!
//! Guarantees that the upstream gets the body byte for byte as the client sent it, that no more of
//! it is held than the bounds of its memory allow, and that it is read only on routes whose limits
//! ask for it.

mod ahead;

use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use http::header::EXPECT;
use http_body::Body as _;
use metrics::{Counter, counter};
use tokio::time::timeout_at;
use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::{BodyFormat, BodyValues, KeyPart};
use tollgate_limiter::limit::plan::Plans;
use tollgate_spec::body_keys::BodyKeyBounds;

use self::ahead::{AheadError, BodyAhead};
use crate::exchange::Exchange;
use tollgate_limiter::clock;
use tollgate_wire::body::Body;
use tollgate_wire::body_memory::BodyMemory;
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::LONGEST_WAIT;

/// The members of bodies that the limits of a route count by.
pub struct BodyKeys {
    members: Vec<Arc<str>>,
    bounds: BodyKeyBounds,
    memory: Arc<BodyMemory>,
    found: Counter,
    missing: Counter,
    refused: Counter,
}

impl BodyKeys {
    /// The members for the `limits` of the route called `route`. `None`: they count by no body.
    pub fn new(
        limits: &[LimitUse],
        route: &str,
        bounds: BodyKeyBounds,
        memory: &Arc<BodyMemory>,
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
        let [found, missing, refused] = ["found", "missing", "refused"].map(|outcome| {
            let reads = counter!("tollgate_body_keys_total", "route" => route.to_owned(), "outcome" => outcome);
            reads.increment(0);
            reads
        });
        Some(Self {
            members,
            bounds,
            memory: memory.clone(),
            found,
            missing,
            refused,
        })
    }

    /// Reads the members of the request's body, if that can be read at all.
    ///
    /// # Errors
    /// When the body comes too late or breaks off, or others have taken the memory.
    pub async fn read(&self, exchange: &mut Exchange<'_>) -> Result<(), Failure> {
        let client = exchange.context.origin.client_ip;
        let values = match self.read_values(exchange.request, client).await {
            Ok(values) => values,
            Err(failure) => {
                self.refused.increment(1);
                return Err(failure);
            }
        };
        let mut members = self.members.iter();
        if members.all(|member| values.get(member).is_some()) {
            self.found.increment(1);
        } else {
            self.missing.increment(1);
        }
        exchange.request.extensions_mut().insert(values);
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
        // The client gets its 100 by this read, so no upstream is asked for one.
        request.headers_mut().remove(EXPECT);
        let deadline = clock::now() + self.bounds.timeout.min(LONGEST_WAIT);
        let read = timeout_at(deadline, body.read(most))
            .await
            .unwrap_or(Err(AheadError::Overdue));
        let is_whole = read.map_err(AheadError::into_failure)?;
        let values = if is_whole {
            BodyValues::read(&self.members, format, request.uri(), body.content())
        } else {
            BodyValues::default()
        };
        *request.body_mut() = body.into_body();
        Ok(values)
    }
}
