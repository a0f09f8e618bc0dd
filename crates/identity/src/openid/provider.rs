//! A provider at work: where a sign-in begins, and which person comes back from it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::directory::{KnownProvider, ProviderDirectory, printable, read};
use super::fault::OpenIdFault;
use super::pending::{EndedSignIns, PendingSignIn};
use super::spec::OpenIdSpec;
use crate::jwt::algorithm::{ALGORITHMS, is_symmetric};
use crate::jwt::claims::TokenClaims;
use crate::jwt::spec::{JwtSpec, KeySetSource};
use crate::jwt::{TokenFault, TokenVerifier};
use crate::method::CredentialPlace;
use crate::refusal::AuthenticationRefusal;
use tollgate_limiter::clock;

/// How far the provider's clock may be off.
const LEEWAY: Duration = Duration::from_secs(30);

/// How long a person counts as present after signing in at the provider.
pub const RECENT: Duration = Duration::from_secs(600);

const MAX_TOKEN: usize = 64 << 10;

/// Errors of a provider (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6).
const ERRORS: [&str; 16] = [
    "access_denied",
    "account_selection_required",
    "consent_required",
    "interaction_required",
    "invalid_request",
    "invalid_request_object",
    "invalid_request_uri",
    "invalid_scope",
    "login_required",
    "registration_not_supported",
    "request_not_supported",
    "request_uri_not_supported",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_response_type",
];

/// All but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Somebody, as the provider knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdPerson {
    pub subject: String,
    /// The name that an account of theirs would have.
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub groups: Option<Vec<String>>,
    /// When the provider asked them to prove who they are (`auth_time`), in seconds since 1970.
    /// `None`: it does not say.
    pub asked_at: Option<u64>,
}

/// The query that a browser brings back (RFC 6749 §4.1.2, RFC 9207).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderAnswer {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

/// A provider.
pub struct OpenIdProvider {
    spec: OpenIdSpec,
    tokens: TokenVerifier,
    rules: JwtSpec,
    directory: Arc<ProviderDirectory>,
    ended: EndedSignIns,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
}

fn refused(why: impl Into<String>) -> OpenIdFault {
    OpenIdFault::Refused(why.into())
}

impl OpenIdProvider {
    pub fn new(spec: OpenIdSpec) -> Self {
        let mut algorithms = Vec::new();
        for (_, algorithm) in ALGORITHMS {
            if !is_symmetric(algorithm) {
                algorithms.push(algorithm);
            }
        }
        let rules = JwtSpec {
            place: CredentialPlace::Scheme("Bearer"),
            issuer: spec.issuer.clone(),
            audience: vec![spec.client_id.clone()],
            algorithms,
            leeway: LEEWAY,
            id: "sub".to_owned(),
            plan: None,
            scopes: Vec::new(),
            max_token: MAX_TOKEN,
            // A token is good for one sign-in.
            cached_tokens: 1,
            keys: KeySetSource::File(std::path::PathBuf::new()),
        };
        Self {
            tokens: TokenVerifier::new(&rules),
            rules,
            directory: ProviderDirectory::new(spec.clone()),
            ended: EndedSignIns::default(),
            spec,
        }
    }

    pub fn issuer(&self) -> &str {
        &self.spec.issuer
    }

    /// Where a browser goes to sign in. It comes back to `return_to`.
    ///
    /// # Errors
    /// When the provider cannot be asked where that is.
    pub async fn sign_in_url(
        &self,
        pending: &PendingSignIn,
        return_to: &str,
    ) -> Result<String, OpenIdFault> {
        let known = self.directory.known().await?;
        let endpoint = &known.metadata.authorization_endpoint;
        let scope = self.spec.scopes.join(" ");
        let age = RECENT.as_secs().to_string();
        let challenge = pending.challenge();
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", &self.spec.client_id),
            ("redirect_uri", return_to),
            ("scope", &scope),
            ("state", &pending.state),
            ("nonce", &pending.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if pending.proves {
            // With `max_age` the ID token has `auth_time` (Core §3.1.2.1).
            fields.extend([("prompt", "login"), ("max_age", &age)]);
        }
        let query = form(&fields);
        Ok(format!(
            "{endpoint}{}{query}",
            if endpoint.contains('?') { '&' } else { '?' }
        ))
    }

    /// The person that a browser has come back with.
    ///
    /// # Errors
    /// Why it is nobody.
    pub async fn person(
        &self,
        answer: &ProviderAnswer,
        pending: &PendingSignIn,
        return_to: &str,
    ) -> Result<OpenIdPerson, OpenIdFault> {
        if answer.state.as_deref() != Some(&pending.state) {
            return Err(refused(
                "the answer belongs to another sign-in, or to an older one: begin anew",
            ));
        }
        if !self.ended.end(pending, clock::unix_micros() / 1_000_000) {
            return Err(refused("the answer was used before: begin anew"));
        }
        let known = self.directory.known().await?;
        self.check_sender(&known, answer)?;
        if let Some(error) = &answer.error {
            // Only a known code is shown: the visitor writes it, and it would stay in the audit
            // log.
            let known = ERRORS
                .into_iter()
                .find(|known| *known == error.as_str())
                .unwrap_or("an error that no standard has");
            return Err(refused(format!("the provider says: {known}")));
        }
        let code = answer.code.as_deref().filter(|code| !code.is_empty());
        let code = code.ok_or_else(|| refused("the provider has sent no code"))?;
        let token = self.redeem(&known, code, pending, return_to).await?;
        let claims = self.claims(known, token.as_bytes()).await?;
        self.check_claims(&claims, pending)?;
        let asked_at = claims.text("auth_time").and_then(|time| time.parse().ok());
        check_presence(pending, asked_at)?;
        let subject = claims.text("sub").filter(|subject| !subject.is_empty());
        Ok(OpenIdPerson {
            subject: subject
                .ok_or_else(|| refused("the ID token does not say who it is about (sub)"))?,
            name: claims.text(&self.spec.name_claim),
            display_name: claims.text("name"),
            groups: claims.texts_of(&self.spec.groups_claim),
            asked_at,
        })
    }

    /// An answer of another provider is not this one's (RFC 9207 §2.4).
    fn check_sender(
        &self,
        known: &KnownProvider,
        answer: &ProviderAnswer,
    ) -> Result<(), OpenIdFault> {
        match &answer.iss {
            Some(iss) if *iss == self.spec.issuer => Ok(()),
            None if !known
                .metadata
                .authorization_response_iss_parameter_supported =>
            {
                Ok(())
            }
            // The visitor writes it, and it would stay in the audit log.
            Some(_) => Err(refused("the answer is of another issuer")),
            None => Err(refused(
                "the answer does not say which issuer it is of (iss)",
            )),
        }
    }

    fn check_claims(
        &self,
        claims: &TokenClaims,
        pending: &PendingSignIn,
    ) -> Result<(), OpenIdFault> {
        if claims.text("nonce").as_deref() != Some(&pending.nonce) {
            return Err(refused(
                "the ID token is of another sign-in: its nonce is not ours",
            ));
        }
        // Core §3.1.3.7: who asked for a token that several may use.
        let is_ours = if claims.has("azp") {
            claims.text("azp").as_ref() == Some(&self.spec.client_id)
        } else {
            let audiences = claims.texts_of("aud");
            audiences.is_some_and(|audiences| audiences.len() == 1)
        };
        if !is_ours {
            return Err(refused("the ID token was made for another client (azp)"));
        }
        Ok(())
    }

    /// The claims of an ID token. A key that is not known may be new.
    async fn claims(
        &self,
        known: Arc<KnownProvider>,
        token: &[u8],
    ) -> Result<TokenClaims, OpenIdFault> {
        let mut checked = self.tokens.check_once(&self.rules, &known.keys, token);
        if matches!(checked, Err(TokenFault::UnknownKey)) {
            checked = self.tokens.check_once(
                &self.rules,
                &self.directory.newer_than(known).await?.keys,
                token,
            );
        }
        checked.map_err(|fault| {
            refused(match fault {
                TokenFault::Foreign => "the ID token is of another issuer".to_owned(),
                TokenFault::UnknownKey => {
                    "the ID token is signed by a key that its issuer does not publish".to_owned()
                }
                TokenFault::Refused(AuthenticationRefusal::Invalid(why)) => {
                    why.replacen("the token", "the ID token", 1)
                }
                TokenFault::Refused(_) => "the ID token is not taken".to_owned(),
            })
        })
    }

    /// The ID token for a code (RFC 6749 §4.1.3, Core §3.1.3).
    async fn redeem(
        &self,
        known: &KnownProvider,
        code: &str,
        pending: &PendingSignIn,
        return_to: &str,
    ) -> Result<String, OpenIdFault> {
        let secret = &*self.spec.client_secret.0;
        let id = &self.spec.client_id;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", return_to),
            ("code_verifier", &pending.verifier),
        ];
        let methods = &known.metadata.token_endpoint_auth_methods_supported;
        let mut request =
            Request::post("/").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if methods.is_empty() || methods.iter().any(|one| one == "client_secret_basic") {
            let pair = format!("{}:{}", encode(id), encode(secret));
            request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)));
        } else if methods.iter().any(|one| one == "client_secret_post") {
            fields.extend([("client_id", id.as_str()), ("client_secret", secret)]);
        } else {
            let others: Vec<_> = methods.iter().map(|method| printable(method)).collect();
            let others = others.join(", ");
            return Err(refused(format!(
                "the provider takes no client secret, but {others}"
            )));
        }
        let (status, text) = self
            .directory
            .ask(&known.metadata.token_endpoint, request, form(&fields))
            .await?;
        if status.is_success() {
            let answer: TokenAnswer = read(&text, "its token endpoint")?;
            return answer.id_token.ok_or_else(|| {
                refused("the provider gives no ID token: is the scope openid asked for?")
            });
        }
        match serde_json::from_slice::<TokenError>(&text) {
            // The rest of the answer may have the code.
            Ok(TokenError { error }) => Err(refused(format!(
                "the provider refuses the code: {}",
                printable(&error)
            ))),
            Err(_) => Err(OpenIdFault::Unavailable(format!(
                "its token endpoint answers {}",
                status.as_u16()
            ))),
        }
    }
}

/// The time since a person signed in at the provider, if that was lately. The provider's clock may
/// be ahead.
pub fn recent_age(asked_at: u64) -> Option<Duration> {
    let now = clock::unix_micros() / 1_000_000;
    let is_past = asked_at <= now + LEEWAY.as_secs();
    let age = Duration::from_secs(now.saturating_sub(asked_at));
    if is_past && age < RECENT {
        Some(age)
    } else {
        None
    }
}

/// A sign-in that proves a person needs one at the provider just now: the provider may go by an
/// earlier one.
fn check_presence(pending: &PendingSignIn, asked_at: Option<u64>) -> Result<(), OpenIdFault> {
    if !pending.proves {
        return Ok(());
    }
    match asked_at {
        None => Err(refused(
            "the provider does not say when you have signed in there (auth_time), so this proves nothing",
        )),
        Some(asked_at) if recent_age(asked_at).is_none() => Err(refused(
            "the provider has not asked you to sign in there anew (auth_time), so this proves nothing",
        )),
        Some(_) => Ok(()),
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut pairs = Vec::new();
    for (name, value) in fields {
        pairs.push(format!("{name}={}", encode(value)));
    }
    pairs.join("&")
}
