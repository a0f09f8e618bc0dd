//! The endpoints of an upstream, and those of them that are picked from.
//!
//! Guarantees that picking takes no lock, and that the endpoints of an upstream which judges none
//! never change.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};

use super::balance::PickList;
use super::balance::order::{EACH_IN_TURN, TurnOrder};
use super::endpoints::Endpoint;
use super::health::condition::EndpointCondition;
use super::health::{Percentage, micros};

/// The percentage of its weight with which an endpoint begins that comes into service after others,
/// as in Envoy.
const FIRST_PERCENT: u64 = 10;

/// The steps in which its weight grows.
const STEPS: u64 = 20;

/// How an upstream makes its rotation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RotationRules {
    pub panic_threshold: Percentage,
    /// The time in which an endpoint that comes into service gets to its weight.
    pub slow_start: Option<Duration>,
}

/// The endpoints at one moment.
pub struct Rotation {
    all: Box<[Arc<Endpoint>]>,
    /// The endpoints that requests go to. Never empty, unless there is no endpoint at all.
    members: Box<[Arc<Endpoint>]>,
    order: TurnOrder,
    in_service: usize,
    /// More are out of service than the panic threshold lets: all are members.
    panicking: bool,
    /// When the first ejection ends, in microseconds of the monotonic clock. 0: there is none.
    returns_at: u64,
    /// When it is to be made anew, in microseconds of the monotonic clock. 0: not before something
    /// happens.
    review_at: u64,
    /// The condition of endpoints that have left, and whose requests may go on.
    left: Box<[Arc<EndpointCondition>]>,
}

/// The endpoints of an upstream.
pub enum Rotations {
    /// Nothing changes them.
    Fixed(Rotation),
    Changing(ChangingRotation),
}

/// Endpoints that health changes.
pub struct ChangingRotation {
    current: ArcSwap<Rotation>,
    /// Held while they are changed.
    changes: Mutex<()>,
}

/// The endpoints of an upstream as they are now.
pub enum CurrentRotation<'a> {
    Fixed(&'a Rotation),
    Changing(Guard<Arc<Rotation>>),
}

/// All endpoints of an upstream as they are now, in service or not.
pub struct CurrentEndpoints<'a>(pub(super) CurrentRotation<'a>);

impl Rotation {
    /// `all` at `now`, in microseconds of the monotonic clock. Members are those in service with
    /// the lowest priority that has any, and all of one kind where too few are.
    pub fn new(all: Box<[Arc<Endpoint>]>, rules: RotationRules, now: u64) -> Self {
        let (members, panicking) = members(&all, rules.panic_threshold);
        let weights: Vec<_> = members
            .iter()
            .map(|endpoint| weight(endpoint, rules.slow_start, now))
            .collect();
        let order = TurnOrder::from_weights(&weights);
        let returns_at = earliest_return(&all);
        let mut review_at = returns_at;
        if let Some(next_step) = next_step(&members, rules.slow_start, now)
            && (returns_at == 0 || next_step < returns_at)
        {
            review_at = next_step;
        }
        let in_service = all
            .iter()
            .filter(|endpoint| is_in_service(endpoint))
            .count();
        Self {
            all,
            members,
            order,
            in_service,
            panicking,
            returns_at,
            review_at,
            left: Box::default(),
        }
    }

    /// Remembers the endpoints of `before` that are gone now, as long as they have requests.
    #[must_use]
    pub fn following(mut self, before: &Self) -> Self {
        let stays: HashSet<_> = self
            .all
            .iter()
            .map(|endpoint| Arc::as_ptr(endpoint.condition()))
            .collect();
        // A request may be on its way to an endpoint that has left just now.
        let now = before.all.iter().map(|endpoint| endpoint.condition());
        let earlier = before
            .left
            .iter()
            .filter(|condition| condition.in_flight() > 0);
        self.left = now
            .chain(earlier)
            .filter(|condition| !stays.contains(&Arc::as_ptr(condition)))
            .cloned()
            .collect();
        self
    }

    /// Requests in flight, those of endpoints that have left among them.
    pub fn in_flight(&self) -> usize {
        let left: usize = self
            .left
            .iter()
            .map(|condition| condition.in_flight())
            .sum();
        self.all
            .iter()
            .map(|endpoint| endpoint.in_flight())
            .sum::<usize>()
            + left
    }

    /// Whether endpoints have changed since it was made, by an upstream that was reloaded
    /// meanwhile.
    pub fn is_stale(&self) -> bool {
        let in_service = self
            .all
            .iter()
            .filter(|endpoint| is_in_service(endpoint))
            .count();
        in_service != self.in_service || earliest_return(&self.all) != self.returns_at
    }

    pub fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }

    /// The endpoints that requests go to.
    pub fn members(&self) -> PickList<'_> {
        PickList {
            endpoints: &self.members,
            order: &self.order,
        }
    }

    /// All, for requests that no member takes.
    pub fn others(&self) -> PickList<'_> {
        PickList {
            endpoints: &self.all,
            order: &EACH_IN_TURN,
        }
    }

    /// Whether so few are in service that all get requests.
    pub fn is_panicking(&self) -> bool {
        self.panicking
    }

    /// Whether it is to be made anew at `now`, in microseconds of the monotonic clock.
    pub fn is_to_be_reviewed(&self, now: impl FnOnce() -> u64) -> bool {
        self.review_at != 0 && now() >= self.review_at
    }
}

/// The endpoints of `all` that requests go to, and whether too few of them are in service.
fn members(all: &[Arc<Endpoint>], panic_threshold: Percentage) -> (Box<[Arc<Endpoint>]>, bool) {
    let primaries: Vec<_> = all
        .iter()
        .filter(|endpoint| endpoint.role().priority == 0)
        .collect();
    let fit: Vec<_> = primaries
        .iter()
        .copied()
        .filter(|endpoint| is_in_service(endpoint))
        .collect();
    if !fit.is_empty() {
        let too_few =
            fit.len() < primaries.len() && panic_threshold.exceeds(fit.len(), primaries.len());
        let members = if too_few { primaries } else { fit };
        return (members.into_iter().cloned().collect(), too_few);
    }
    let next = all
        .iter()
        .filter(|endpoint| is_in_service(endpoint))
        .map(|endpoint| endpoint.role().priority)
        .min();
    let Some(next) = next else {
        return (all.into(), !all.is_empty());
    };
    let backups = all
        .iter()
        .filter(|endpoint| endpoint.role().priority == next && is_in_service(endpoint));
    (backups.cloned().collect(), false)
}

/// When the weight of a starting endpoint grows next. `None`: none is starting.
fn next_step(members: &[Arc<Endpoint>], slow_start: Option<Duration>, now: u64) -> Option<u64> {
    let is_starting = members
        .iter()
        .any(|endpoint| percent(endpoint, slow_start, now) < 100);
    if !is_starting {
        return None;
    }
    Some(now.saturating_add(micros(slow_start?) / STEPS).max(1))
}

/// The weight of an endpoint at `now`, in hundredths.
fn weight(endpoint: &Endpoint, slow_start: Option<Duration>, now: u64) -> u64 {
    endpoint
        .role()
        .weight
        .saturating_mul(percent(endpoint, slow_start, now))
}

/// The percentage of its weight that an endpoint has at `now`.
fn percent(endpoint: &Endpoint, slow_start: Option<Duration>, now: u64) -> u64 {
    let (Some(time), Some(started)) = (slow_start, endpoint.condition().started_at()) else {
        return 100;
    };
    let passed = now.saturating_sub(started).saturating_mul(100) / micros(time).max(1);
    passed.clamp(FIRST_PERCENT, 100)
}

fn is_in_service(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.condition().is_in_service()
}

/// When the first ejection ends, in microseconds of the monotonic clock. 0: there is none.
fn earliest_return(endpoints: &[Arc<Endpoint>]) -> u64 {
    endpoints
        .iter()
        .filter_map(|endpoint| endpoint.condition().ejection().until())
        .min()
        .unwrap_or(0)
}

impl Rotations {
    pub fn current(&self) -> CurrentRotation<'_> {
        match self {
            Self::Fixed(rotation) => CurrentRotation::Fixed(rotation),
            Self::Changing(changing) => CurrentRotation::Changing(changing.current.load()),
        }
    }
}

impl ChangingRotation {
    pub fn new(rotation: Rotation) -> Self {
        Self {
            current: ArcSwap::from_pointee(rotation),
            changes: Mutex::new(()),
        }
    }

    /// Keeps others from changing it. They wait for a moment: nothing is done meanwhile but
    /// arithmetic and a line in the log.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Like [`lock`](Self::lock). `None`: another is at it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.changes.try_lock()
    }

    pub fn load(&self) -> Arc<Rotation> {
        self.current.load_full()
    }

    pub fn store(&self, rotation: Rotation) {
        self.current.store(Arc::new(rotation));
    }
}

impl Deref for CurrentRotation<'_> {
    type Target = Rotation;

    fn deref(&self) -> &Rotation {
        match self {
            Self::Fixed(rotation) => rotation,
            Self::Changing(rotation) => rotation,
        }
    }
}

impl Deref for CurrentEndpoints<'_> {
    type Target = [Arc<Endpoint>];

    fn deref(&self) -> &[Arc<Endpoint>] {
        self.0.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::endpoints::{EndpointRole, PickedEndpoint};
    use crate::upstream::health::condition::ProbeThresholds;
    use crate::upstream::tls::Http2Policy;

    /// The places of those that are picked from, of endpoints with these priorities. Those that are
    /// ill are marked.
    fn members(endpoints: &[(u16, bool)]) -> Vec<usize> {
        let thresholds = ProbeThresholds {
            unhealthy_after: 1,
            healthy_after: 1,
        };
        let mut all = Vec::new();
        for (n, (priority, is_ill)) in endpoints.iter().enumerate() {
            let url = format!("http://10.0.0.{n}").parse().unwrap();
            let endpoint = Endpoint::new(&url, None, Http2Policy::Auto, None);
            if *is_ill {
                let probes = endpoint.condition().probes();
                probes.record(Err("ill".into()), thresholds);
            }
            all.push(Arc::new(endpoint.with_role(EndpointRole {
                priority: *priority,
                ..EndpointRole::default()
            })));
        }
        let rotation = Rotation::new(all.into(), RotationRules::default(), 0);
        let mut places = Vec::new();
        for member in rotation.members().endpoints {
            let mut all = rotation.all().iter();
            places.extend(all.position(|known| Arc::ptr_eq(known, member)));
        }
        places
    }

    #[test]
    fn requests_of_endpoints_that_have_left_count_until_they_end() {
        fn rotation(all: &[&Arc<Endpoint>]) -> Rotation {
            let all = all.iter().map(|endpoint| Arc::clone(endpoint)).collect();
            Rotation::new(all, RotationRules::default(), 0)
        }
        let [stays, leaves, comes] = [1, 2, 3].map(|n| {
            let url = format!("http://10.0.0.{n}").parse().unwrap();
            Arc::new(Endpoint::new(&url, None, Http2Policy::Auto, None))
        });
        let first = rotation(&[&stays, &leaves]);
        let requests = [&stays, &leaves, &leaves].map(PickedEndpoint::new);
        let second = rotation(&[&stays, &comes]).following(&first);
        assert_eq!((first.in_flight(), second.in_flight()), (3, 3));
        // Not those that stay twice, and the others for longer than one change.
        let third = rotation(&[&stays]).following(&second);
        assert_eq!((third.in_flight(), third.left.len()), (3, 2));
        let [of_stays, one_of_leaves, other_of_leaves] = requests;
        drop((one_of_leaves, other_of_leaves));
        assert_eq!(third.in_flight(), 1);
        drop(of_stays);
        let fourth = rotation(&[&stays]).following(&third);
        assert_eq!(
            (fourth.in_flight(), fourth.left.len()),
            (0, 0),
            "nothing is remembered for ever"
        );
    }

    #[test]
    fn priorities_are_used_in_their_order() {
        assert_eq!(
            members(&[(1, false), (0, false), (2, false), (0, false)]),
            [1, 3]
        );
        assert_eq!(
            members(&[(1, false), (0, true), (2, false), (0, false)]),
            [3]
        );
        assert_eq!(
            members(&[(2, false), (0, true), (1, false), (1, true), (3, false)]),
            [2]
        );
        assert_eq!(
            members(&[(2, false), (0, true), (1, true), (2, false), (3, false)]),
            [0, 3]
        );
        assert_eq!(
            members(&[(2, true), (0, true), (1, true)]),
            [0, 1, 2],
            "all, where none is fit"
        );
    }
}
