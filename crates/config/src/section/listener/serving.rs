//! The listeners that serve a route: whether they ask who a client is, and whether they ask for
//! certificates.

use std::sync::Arc;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::listener::definition::RawListener;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use tollgate_spec::route::Route;
use tollgate_wire::transport::listen_address::ListenAddress;

/// Which of the requests of a route have an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifiedRequests {
    All,
    /// The requests of some listeners, and not those of this one.
    NotOf(Arc<str>),
    None,
}

/// All listeners, as far as routes depend on them.
pub struct ServingListeners<'a> {
    raws: &'a [RawListener],
    /// The section could not be read: any name may have been in it.
    unreadable: bool,
}

impl<'a> ServingListeners<'a> {
    pub fn new(listeners: &'a Setting<NonEmptyList<RawListener>>) -> Self {
        Self {
            raws: listeners.items(),
            unreadable: listeners.is_invalid(),
        }
    }

    /// The listeners in a route's list. `None`: a mistake was reported.
    pub fn listed(
        &self,
        names: &[Located<DefinedName>],
        report: &mut Report,
    ) -> Option<Vec<Arc<str>>> {
        let mut found: Vec<Arc<str>> = Vec::new();
        let mut are_known = true;
        for Located { location, value } in names {
            let name = &value.0;
            if found.contains(name) {
                let problem = ValueProblem::new(format!("{} is listed twice", quote(name)));
                report.mistake(location, problem.hint("list each listener once"));
                are_known = false;
            }
            let known = self.raws.iter().filter_map(name_of);
            if !self.unreadable && !known.clone().any(|known| known == &**name) {
                let problem = ValueProblem::new(format!("no listener is called {}", quote(name)));
                let otherwise = "give a listener this \"name\"".to_owned();
                report.misnamed(location, problem, name, known, otherwise);
                are_known = false;
            }
            found.push(name.clone());
        }
        if are_known { Some(found) } else { None }
    }

    /// The listeners that serve a route which lists these. Empty: all do.
    fn serving(&self, listed: &[Arc<str>]) -> impl Iterator<Item = &'a RawListener> {
        self.raws.iter().filter(move |raw| {
            listed.is_empty()
                || name_of(raw).is_some_and(|name| listed.iter().any(|listed| **listed == *name))
        })
    }

    /// The listener, by its path, that counts every request of the route by `limit`.
    pub fn counting(&self, limit: &str, listed: &[Arc<str>]) -> Option<String> {
        let mut serving = self.serving(listed);
        let counting = serving.find(|raw| {
            let mut uses = raw.limits.valid().into_iter().flatten();
            uses.any(|used| used.limit.value().is_some_and(|name| *name.0 == *limit))
        });
        counting.map(|raw| raw.location.path())
    }

    /// The first listener, by its path, that serves the route and asks no client for a certificate.
    pub fn without_certificates(&self, listed: &[Arc<str>]) -> Option<String> {
        let mut serving = self.serving(listed);
        let open = serving.find(|raw| !asks_for_certificates(raw))?;
        Some(open.location.path())
    }

    /// Warns of a listener that asks for no certificate and serves `routes` beside one that does:
    /// those that take whoever comes were perhaps meant for the other.
    pub fn warn_of_open(&self, routes: &[Arc<Route>], report: &mut Report) {
        let Some(asking) = self.raws.iter().find(|raw| asks_for_certificates(raw)) else {
            return;
        };
        for open in self.raws {
            // A process of this machine is let in by the mode of the socket.
            let is_unix = matches!(open.address.value(), Some(ListenAddress::Unix(_)));
            if is_unix || asks_for_certificates(open) || open.redirect_to_https.is_present() {
                continue;
            }
            let name = name_of(open);
            let Some(route) = routes.iter().find(|route| {
                route.listeners.is_empty()
                    && route.is_served_by(name)
                    && route.networks.is_open()
                    && self.identified_on(route) != IdentifiedRequests::All
            }) else {
                continue;
            };
            let problem = ValueProblem::new(format!(
                "route {} is served here to whoever comes, and {} asks clients for certificates",
                quote(&route.name),
                asking.location.path()
            ));
            let hint = "give the listeners a \"name\", and list under \"listeners\" of each route those that serve it";
            report.warning(&open.location, problem.hint(hint));
        }
    }

    /// The requests that have an identity on a route with a list of authenticators of its `own`. An
    /// invalid one says nothing.
    pub fn identified<T>(&self, own: &Setting<Vec<T>>, listed: &[Arc<str>]) -> IdentifiedRequests {
        match own {
            Setting::Absent => self.with_count(None, listed),
            Setting::Invalid => IdentifiedRequests::All,
            Setting::Valid(own) => self.with_count(Some(own.len()), listed),
        }
    }

    /// The requests of `route` that have an identity.
    pub fn identified_on(&self, route: &Route) -> IdentifiedRequests {
        let own = route.authenticate.as_ref().map(Vec::len);
        self.with_count(own, &route.listeners)
    }

    /// The requests that have an identity on a route that lists so many authenticators. `None`: the
    /// route has no list.
    fn with_count(&self, own: Option<usize>, listed: &[Arc<str>]) -> IdentifiedRequests {
        let mut asking = self.serving(listed);
        let some = asking.any(|raw| raw.authenticate.is_present());
        let mut serving = self.serving(listed);
        let open = serving.find(|raw| !raw.authenticate.is_present());
        match (own, open) {
            (Some(0), _) => IdentifiedRequests::None,
            (Some(_), _) | (None, None) => IdentifiedRequests::All,
            (None, Some(open)) if some => IdentifiedRequests::NotOf(open.location.path().into()),
            (None, Some(_)) => IdentifiedRequests::None,
        }
    }
}

fn name_of(raw: &RawListener) -> Option<&str> {
    Some(&*raw.name.valid()?.value.0)
}

fn asks_for_certificates(raw: &RawListener) -> bool {
    raw.tls
        .valid()
        .is_some_and(|tls| tls.client_ca.is_present())
}
