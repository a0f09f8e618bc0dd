//! Sticky sessions: the endpoint that a client's cookie names. Clients without one go round robin.

use http::HeaderValue;
use tollgate_limiter::limit::key::Facts;

use super::pick::{PickEndpoint, PickList, Tried, Turn};
use super::round_robin::RoundRobin;
use crate::upstream::affinity::{self, Affinity};
use crate::upstream::spec::balance::StickyCookie;

/// Picks the endpoint that a cookie names.
#[derive(Debug)]
pub struct StickySessions {
    cookie: StickyCookie,
    others: RoundRobin,
}

impl StickySessions {
    pub fn new(cookie: &StickyCookie) -> Self {
        Self {
            cookie: cookie.clone(),
            others: RoundRobin::default(),
        }
    }
}

impl PickEndpoint for StickySessions {
    fn pick(&self, list: PickList<'_>, tried: &Tried, turn: Turn) -> Option<usize> {
        if let Some(affinity) = tried.affinity() {
            let named = list
                .endpoints
                .iter()
                .position(|endpoint| endpoint.role().is_named(affinity));
            if let Some(named) = named
                && list.is_fit(named, tried)
            {
                return Some(named);
            }
        }
        self.others.pick(list, tried, turn)
    }

    fn affinity(&self, facts: &Facts<'_>) -> Option<Affinity> {
        Affinity::from_cookie(&self.cookie, facts.headers)
    }

    fn asks_for_affinity(&self) -> bool {
        true
    }

    fn mark(&self, upstream: &str, url: &str) -> Option<(Affinity, HeaderValue)> {
        let affinity = Affinity::for_endpoint(&self.cookie, upstream, url);
        let field = affinity::set_cookie(&self.cookie, affinity)?;
        Some((affinity, field))
    }
}
