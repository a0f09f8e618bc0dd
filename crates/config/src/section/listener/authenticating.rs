//! Which requests have an identity, by the listeners that ask for one.

use std::sync::Arc;

use crate::section::listener::definition::RawListener;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::Setting;
use tollgate_spec::route::Route;

/// Which of the requests of a route have an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifiedRequests {
    All,
    /// The requests of some listeners, and not those of this one.
    NotOf(Arc<str>),
    None,
}

/// Which listeners ask who a client is.
#[derive(Clone, Debug)]
pub struct AskingListeners {
    some: bool,
    /// The first that does not.
    open: Option<Arc<str>>,
}

impl AskingListeners {
    pub fn new(listeners: &Setting<NonEmptyList<RawListener>>) -> Self {
        let listeners = listeners.items();
        let open = listeners.iter().find(|raw| !raw.authenticate.is_present());
        Self {
            some: listeners.iter().any(|raw| raw.authenticate.is_present()),
            open: open.map(|raw| raw.location.path().into()),
        }
    }

    /// The requests that have an identity on a route with this list. An invalid one says nothing.
    pub fn identified<T>(&self, own: &Setting<Vec<T>>) -> IdentifiedRequests {
        match own {
            Setting::Absent => self.with_count(None),
            Setting::Invalid => IdentifiedRequests::All,
            Setting::Valid(listed) => self.with_count(Some(listed.len())),
        }
    }

    /// The requests of `route` that have an identity.
    pub fn identified_on(&self, route: &Route) -> IdentifiedRequests {
        self.with_count(route.authenticate.as_ref().map(Vec::len))
    }

    /// The requests that have an identity on a route that lists so many authenticators. `None`: the
    /// route has no list.
    fn with_count(&self, own: Option<usize>) -> IdentifiedRequests {
        match (own, &self.open) {
            (Some(0), _) => IdentifiedRequests::None,
            (Some(_), _) | (None, None) => IdentifiedRequests::All,
            (None, Some(open)) if self.some => IdentifiedRequests::NotOf(open.clone()),
            (None, Some(_)) => IdentifiedRequests::None,
        }
    }
}
