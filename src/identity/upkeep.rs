//! Follows the keys of issuers on the control plane: fetches them again now and then, and when a
//! token names one that is not known.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::authenticator::{Authenticator, Material};
use super::jwt::fetch::fetch;
use super::jwt::key_set::{KeySet, KeySetOrigin};
use super::jwt::spec::KeySetUrl;

/// The first wait after a fetch that failed. It doubles up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Follows the keys of the issuer of `authenticator`, if they are behind a URL, until the
/// authenticator is gone. Must run inside the control plane's runtime.
pub fn follow_issuer(authenticator: &Arc<Authenticator>) {
    if let Some((url, fetches)) = authenticator.issuer()
        && fetches.follow()
    {
        tokio::spawn(keep(Arc::downgrade(authenticator), url.clone()));
    }
}

async fn keep(authenticator: Weak<Authenticator>, url: KeySetUrl) {
    let mut backoff = None;
    loop {
        // Held while it is at work only: a reload may take the authenticator away.
        let running = authenticator.upgrade();
        let Some(fetches) = running
            .as_ref()
            .and_then(|one| one.issuer())
            .map(|(_, fetches)| fetches.clone())
        else {
            return;
        };
        drop(running);
        fetches.begin();
        let set = fetch_set(&url).await;
        let Some(running) = authenticator.upgrade() else {
            return;
        };
        let succeeded = set.is_ok();
        take_over(&running, &url, set, backoff.is_some());
        fetches.end(succeeded);
        drop(running);
        backoff = (!succeeded).then(|| {
            backoff.map_or(FIRST_BACKOFF, |last: Duration| {
                (last * 2).min(LONGEST_BACKOFF)
            })
        });
        tokio::select! {
            () = sleep(backoff.unwrap_or(url.refresh)) => {}
            () = fetches.wanted() => {}
        }
    }
}

async fn fetch_set(url: &KeySetUrl) -> Result<KeySet, String> {
    let answer = timeout(url.timeout, fetch(url)).await;
    let text = answer.unwrap_or_else(|_| Err("the issuer did not answer in time".to_owned()))?;
    KeySet::read(&text, KeySetOrigin::Url).map_err(|error| error.to_string())
}

/// Takes the keys over, or says why not.
fn take_over(
    authenticator: &Authenticator,
    url: &KeySetUrl,
    set: Result<KeySet, String>,
    failed_before: bool,
) {
    let (name, host) = (&authenticator.spec.name, &url.authority);
    match set {
        Ok(set) => {
            authenticator.install(Material::KeySet(set));
            if failed_before {
                tracing::info!(authenticator = %name, host, "the issuer's keys are back");
            }
        }
        Err(why) => {
            authenticator.metrics.reloaded(None);
            tracing::warn!(authenticator = %name, host, why, "cannot fetch the issuer's keys: the last ones hold on");
        }
    }
}
