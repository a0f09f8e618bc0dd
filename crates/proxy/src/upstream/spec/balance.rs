//! The ways to balance requests over endpoints, as data. Each is registered here with its settings.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::limit::key::KeyPart;

/// How the next endpoint is picked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The less loaded of two endpoints drawn at random.
    LeastRequests,
    /// An endpoint for all requests that are alike in these parts. Requests that lack a part go
    /// round robin.
    Hash(Arc<[KeyPart]>),
    /// The endpoint that a client's cookie names. Clients without one go round robin.
    Sticky(StickyCookie),
}

/// The cookie by which clients stay with an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct StickyCookie {
    pub name: Arc<str>,
    /// How long clients keep it. `None`: until they are closed.
    pub ttl: Option<Duration>,
    /// Clients send it over TLS only.
    pub secure: bool,
    /// Signs it: without this, nobody can tell which value stands for which endpoint.
    pub secret: Arc<str>,
}

impl Balance {
    /// The ways without settings, by their word in the file.
    pub const WORDS: [(&str, Self); 2] = [
        ("round_robin", Self::RoundRobin),
        ("least_requests", Self::LeastRequests),
    ];
}

impl std::fmt::Debug for StickyCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StickyCookie")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
