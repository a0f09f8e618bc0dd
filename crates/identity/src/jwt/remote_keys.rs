//! The keys of an issuer behind a URL. The control plane fetches them again now and then, and when
//! a token names a key that is not known.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};

use super::fetch::fetch;
use super::issuer::IssuerFetches;
use super::key_set::{KeySet, KeySetOrigin};
use super::spec::KeySetUrl;
use crate::authenticator::BuildContext;
use crate::metrics::AuthenticatorMetrics;

/// The first wait after a fetch that failed. It doubles up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The keys of one issuer.
pub struct RemoteKeys {
    url: KeySetUrl,
    set: ArcSwapOption<KeySet>,
    fetches: Arc<IssuerFetches>,
    authenticator: Arc<str>,
    metrics: Arc<AuthenticatorMetrics>,
}

/// The fetches of an issuer's keys. The keys are referenced weakly: a reload may take their
/// authenticator away.
struct Upkeep {
    keys: Weak<RemoteKeys>,
    url: KeySetUrl,
    fetches: Arc<IssuerFetches>,
}

impl RemoteKeys {
    /// The keys behind `url`: those of `predecessor` for now, if its issuer is the same.
    pub fn new(url: &KeySetUrl, context: BuildContext<'_>, predecessor: Option<&Self>) -> Self {
        let mut keys = Self {
            url: url.clone(),
            set: ArcSwapOption::empty(),
            fetches: Arc::default(),
            authenticator: context.name.clone(),
            metrics: context.metrics.clone(),
        };
        if let Some(before) = predecessor
            && before.url == *url
        {
            keys.set.store(before.set.load_full());
            keys.fetches = Arc::new(before.fetches.successor());
        }
        keys
    }

    /// The keys as they were fetched last. `None`: never yet.
    pub fn set(&self) -> &ArcSwapOption<KeySet> {
        &self.set
    }

    /// Whether the keys were fetched lately enough to be used.
    pub fn are_fresh(&self) -> bool {
        self.fetches.is_fresh(self.url.stale)
    }

    /// The wait of a request from `ip` for a fetch that begins later. `None`: too many requests
    /// wait.
    pub fn next_fetch(&self, ip: IpAddr) -> Option<BoxFuture<'static, ()>> {
        self.fetches.next(self.url.timeout, ip)
    }

    /// The wait of a request from `ip` for the fetch under way. `None`: there is none, or too many
    /// requests wait.
    pub fn current_fetch(&self, ip: IpAddr) -> Option<BoxFuture<'static, ()>> {
        self.fetches.current(self.url.timeout, ip)
    }

    /// The fetches on the control plane, until these keys are dropped. `None`: they have begun
    /// already.
    pub fn follow(self: &Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        if !self.fetches.follow() {
            return None;
        }
        let upkeep = Upkeep {
            keys: Arc::downgrade(self),
            url: self.url.clone(),
            fetches: self.fetches.clone(),
        };
        Some(Box::pin(upkeep.run()))
    }

    /// Takes fetched keys over, or says why not.
    fn take_over(&self, fetched: Result<KeySet, String>, failed_before: bool) {
        let name = &self.authenticator;
        let host = &self.url.authority;
        match fetched {
            Ok(set) => {
                self.metrics.reloaded(Some(set.len()));
                self.set.store(Some(Arc::new(set)));
                if failed_before {
                    tracing::info!(authenticator = %name, host, "the issuer's keys are back");
                }
            }
            Err(why) => {
                self.metrics.reloaded(None);
                tracing::warn!(authenticator = %name, host, why, "cannot fetch the issuer's keys: the last ones hold on");
            }
        }
    }
}

impl Upkeep {
    async fn run(self) {
        let mut backoff = None;
        while self.keys.strong_count() > 0 {
            self.fetches.begin();
            let fetched = fetch_set(&self.url).await;
            let Some(keys) = self.keys.upgrade() else {
                return;
            };
            let succeeded = fetched.is_ok();
            keys.take_over(fetched, backoff.is_some());
            self.fetches.end(succeeded);
            drop(keys);
            backoff = next_backoff(succeeded, backoff);
            tokio::select! {
                () = sleep(backoff.unwrap_or(self.url.refresh)) => {}
                () = self.fetches.wanted() => {}
            }
        }
    }
}

async fn fetch_set(url: &KeySetUrl) -> Result<KeySet, String> {
    let Ok(answer) = timeout(url.timeout, fetch(url)).await else {
        return Err("the issuer did not answer in time".to_owned());
    };
    KeySet::read(&answer?, KeySetOrigin::Url).map_err(|error| error.to_string())
}

fn next_backoff(succeeded: bool, last: Option<Duration>) -> Option<Duration> {
    if succeeded {
        return None;
    }
    match last {
        None => Some(FIRST_BACKOFF),
        Some(last) => Some((last * 2).min(LONGEST_BACKOFF)),
    }
}
