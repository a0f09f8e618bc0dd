//! A provider's own words: where a sign-in begins, where a code is redeemed, and its keys.
//!
//! Guarantees that strangers cannot make the gateway ask the provider more than it must: one lookup
//! is under way at most, however many wait for it, and one that failed is not tried again for some
//! seconds. Answers are bounded in size and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::fault::OpenIdFault;
use super::spec::{OpenIdSpec, is_this_machine};
use crate::jwt::fetch;
use crate::jwt::key_set::{KeySet, KeySetOrigin};
use crate::jwt::spec::KeySetUrl;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::transport::tls::client::PeerName;

/// How long what a provider says of itself is used.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How long a failure to ask is.
const FAILED: Duration = Duration::from_secs(5);

/// The least time between two looks for keys that a token names and that are not known.
const LOOKS_AGAIN: Duration = Duration::from_secs(10);

/// For each question.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The metadata and keys that a provider has published.
pub struct ProviderDirectory {
    spec: OpenIdSpec,
    known: Mutex<Option<Arc<KnownProvider>>>,
    lookups: tokio::sync::Mutex<LastLookups>,
}

pub struct KnownProvider {
    pub metadata: ProviderMetadata,
    pub keys: KeySet,
    since: Instant,
}

/// Held while a lookup is under way.
#[derive(Default)]
struct LastLookups {
    failed: Option<(Instant, OpenIdFault)>,
    for_keys: Option<Instant>,
}

/// The part of OpenID Connect Discovery 1.0 §3 that is used.
#[derive(Deserialize)]
pub struct ProviderMetadata {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

impl ProviderDirectory {
    pub fn new(spec: OpenIdSpec) -> Arc<Self> {
        Arc::new(Self {
            spec,
            known: Mutex::default(),
            lookups: tokio::sync::Mutex::default(),
        })
    }

    /// The metadata and keys of the provider, not older than [`REMEMBERED`].
    ///
    /// # Errors
    /// When it cannot be asked, or could not a moment ago.
    pub async fn known(self: &Arc<Self>) -> Result<Arc<KnownProvider>, OpenIdFault> {
        match self.fresh() {
            Some(known) => Ok(known),
            None => self.look(None).await,
        }
    }

    /// The metadata of the provider with newer keys than those `seen`, if there may be some.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn newer_than(
        self: &Arc<Self>,
        seen: Arc<KnownProvider>,
    ) -> Result<Arc<KnownProvider>, OpenIdFault> {
        self.look(Some(seen)).await
    }

    fn fresh(&self) -> Option<Arc<KnownProvider>> {
        let known = self.known.lock().clone()?;
        if is_recent(known.since, REMEMBERED) {
            Some(known)
        } else {
            None
        }
    }

    /// A browser that goes away does not end what others wait for.
    async fn look(
        self: &Arc<Self>,
        seen: Option<Arc<KnownProvider>>,
    ) -> Result<Arc<KnownProvider>, OpenIdFault> {
        let this = self.clone();
        let looked = tokio::spawn(async move { this.look_in_turn(seen.as_ref()).await }).await;
        looked.unwrap_or_else(|_| {
            Err(OpenIdFault::Unavailable(
                "the gateway is shutting down".to_owned(),
            ))
        })
    }

    async fn look_in_turn(
        &self,
        seen: Option<&Arc<KnownProvider>>,
    ) -> Result<Arc<KnownProvider>, OpenIdFault> {
        let mut lookups = self.lookups.lock().await;
        // The caller before has looked, perhaps.
        if let Some(known) = self.fresh()
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, &known))
        {
            return Ok(known);
        }
        if let Some(seen) = seen {
            if let Some(then) = lookups.for_keys
                && is_recent(then, LOOKS_AGAIN)
            {
                return Ok(seen.clone());
            }
            lookups.for_keys = Some(clock::now());
        }
        if let Some((then, fault)) = &lookups.failed
            && is_recent(*then, FAILED)
        {
            return Err(fault.clone());
        }
        let asked = self.ask_anew().await;
        match &asked {
            Ok(known) => *self.known.lock() = Some(known.clone()),
            Err(fault) => {
                tracing::warn!(issuer = self.spec.issuer, %fault, "nobody can sign in at the provider")
            }
        }
        lookups.failed = match &asked {
            Ok(_) => None,
            Err(fault) => Some((clock::now(), fault.clone())),
        };
        asked
    }

    async fn ask_anew(&self) -> Result<Arc<KnownProvider>, OpenIdFault> {
        let place = format!(
            "{}/.well-known/openid-configuration",
            self.spec.issuer.trim_end_matches('/')
        );
        let metadata: ProviderMetadata = read(&self.get(&place).await?, &place)?;
        // Discovery §4.3: otherwise one provider could speak for another.
        if metadata.issuer != self.spec.issuer {
            return Err(OpenIdFault::Refused(format!(
                "{place} is of the issuer {}, and the file says {}: write it exactly so",
                printable(&metadata.issuer),
                self.spec.issuer
            )));
        }
        self.place(&metadata.authorization_endpoint)?;
        self.place(&metadata.token_endpoint)?;
        let keys = KeySet::read(&self.get(&metadata.jwks_uri).await?, KeySetOrigin::Url);
        let keys = keys.map_err(|error| {
            OpenIdFault::Unavailable(format!("of {}: {error}", printable(&metadata.jwks_uri)))
        })?;
        Ok(Arc::new(KnownProvider {
            metadata,
            keys,
            since: clock::now(),
        }))
    }

    async fn get(&self, url: &str) -> Result<Bytes, OpenIdFault> {
        let (status, text) = self.ask(url, Request::get("/"), String::new()).await?;
        if status.is_success() {
            return Ok(text);
        }
        Err(OpenIdFault::Unavailable(format!(
            "{} answers {}",
            printable(url),
            status.as_u16()
        )))
    }

    /// Sends one request to a place of the provider.
    ///
    /// # Errors
    /// When there is no whole answer within [`TIMEOUT`].
    pub async fn ask(
        &self,
        url: &str,
        request: http::request::Builder,
        body: String,
    ) -> Result<(StatusCode, Bytes), OpenIdFault> {
        let place = self.place(url)?;
        let request = request
            .uri(&place.target)
            .header(ACCEPT, "application/json")
            .body(Full::from(body));
        let Ok(request) = request else {
            return Err(unavailable(url, "it cannot be asked for"));
        };
        match timeout(TIMEOUT, fetch::ask(&place, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(unavailable(url, &why)),
            Err(_) => {
                let seconds = TIMEOUT.as_secs();
                Err(unavailable(url, &format!("no answer within {seconds} s")))
            }
        }
    }

    /// A place that the provider names. In the clear only on this machine, and only where the
    /// issuer itself is.
    fn place(&self, url: &str) -> Result<KeySetUrl, OpenIdFault> {
        self.parse_place(url).ok_or_else(|| {
            OpenIdFault::Refused(format!(
                "the provider names a place that cannot be asked: {}",
                printable(url)
            ))
        })
    }

    fn parse_place(&self, url: &str) -> Option<KeySetUrl> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || url.contains('#') {
            return None;
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let (tls, port) = match (uri.scheme_str(), &self.spec.tls) {
            (Some("https"), Some(tls)) => (Some((tls.clone(), PeerName::parse(&host)?)), 443),
            (Some("http"), None) if is_this_machine(authority.host()) => (None, 80),
            _ => return None,
        };
        Some(KeySetUrl {
            port: authority.port_u16().unwrap_or(port),
            target: uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
            authority: authority.to_string(),
            tls,
            host,
            refresh: REMEMBERED,
            stale: REMEMBERED,
            timeout: TIMEOUT,
        })
    }
}

/// Reads what `place` has answered.
///
/// # Errors
/// When it is something else.
pub fn read<T: DeserializeOwned>(text: &[u8], place: &str) -> Result<T, OpenIdFault> {
    serde_json::from_slice(text).map_err(|error| {
        // The error itself may quote the answer, which may have a token.
        OpenIdFault::Unavailable(format!(
            "{place} does not say what it should, in line {}",
            error.line()
        ))
    })
}

fn is_recent(then: Instant, span: Duration) -> bool {
    clock::now().saturating_duration_since(then) < span
}

fn unavailable(url: &str, why: &str) -> OpenIdFault {
    OpenIdFault::Unavailable(format!("{}: {why}", printable(url)))
}

/// Words of others, of which a page and a log take some: none that hides what it says.
pub fn printable(text: &str) -> String {
    text.chars()
        .filter(|letter| {
            letter.is_alphanumeric() || letter.is_ascii_punctuation() || *letter == ' '
        })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_hide_nothing() {
        assert_eq!(printable("käse <b>\n\u{202e}\u{200b}x\u{7}"), "käse <b>x");
        assert_eq!(printable(&"a".repeat(300)).len(), 200);
    }
}
