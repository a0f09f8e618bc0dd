//! The endpoints of an upstream, and those of them that are picked from.
//!
//! Guarantees that picking takes no lock, and that the endpoints of an upstream which judges none never change.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};

use super::endpoints::Endpoint;
use super::health::Percentage;

/// The endpoints at one moment.
pub struct Rotation {
    all: Box<[Arc<Endpoint>]>,
    /// Those that requests go to. Never empty, unless there is no endpoint at all.
    members: Box<[Arc<Endpoint>]>,
    in_service: usize,
    /// More are out of service than the panic threshold lets: all are members.
    panicking: bool,
    /// When an ejection ends, in microseconds of the monotonic clock. 0: there is none.
    review_at: u64,
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
    /// Held by whoever changes them.
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
    /// `all`, of which those in service are members, unless fewer are than `panic_threshold`.
    pub fn new(all: Box<[Arc<Endpoint>]>, panic_threshold: Percentage) -> Self {
        let fit: Box<[_]> = all.iter().filter(|endpoint| is_in_service(endpoint)).cloned().collect();
        let in_service = fit.len();
        let panicking = in_service < all.len() && (in_service == 0 || panic_threshold.exceeds(in_service, all.len()));
        let review_at = earliest_return(&all);
        let members = if panicking { all.clone() } else { fit };
        Self { all, members, in_service, panicking, review_at }
    }

    /// Whether endpoints have changed since it was made, by an upstream that was reloaded meanwhile.
    pub fn is_stale(&self) -> bool {
        let in_service = self.all.iter().filter(|endpoint| is_in_service(endpoint)).count();
        in_service != self.in_service || earliest_return(&self.all) != self.review_at
    }

    pub fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }

    /// Those that requests go to.
    pub fn members(&self) -> &[Arc<Endpoint>] {
        &self.members
    }

    /// Whether so few are in service that all get requests.
    pub fn is_panicking(&self) -> bool {
        self.panicking
    }

    /// Whether an ejection is over at `now`, in microseconds of the monotonic clock.
    pub fn is_to_be_reviewed(&self, now: impl FnOnce() -> u64) -> bool {
        self.review_at != 0 && now() >= self.review_at
    }
}

fn is_in_service(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.condition().is_in_service()
}

/// When the first ejection ends, in microseconds of the monotonic clock. 0: there is none.
fn earliest_return(endpoints: &[Arc<Endpoint>]) -> u64 {
    endpoints.iter().filter_map(|endpoint| endpoint.condition().ejection().until()).min().unwrap_or(0)
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
        Self { current: ArcSwap::from_pointee(rotation), changes: Mutex::new(()) }
    }

    /// Keeps others from changing it. They wait for a moment: nothing is done meanwhile but arithmetic and a line in the log.
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
