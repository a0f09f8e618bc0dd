//! Authentication by JSON Web Tokens: the tokens of one issuer, verified by its keys.
//!
//! `spec` says what a token must be, `algorithm` and `key_set` have what verifies its signature,
//! `claims` what it says, and `verified` remembers those that were good. `authenticator` checks a
//! request. `remote_keys` has keys behind a URL: `issuer` says when they are fetched, and `fetch`
//! fetches them.

pub mod algorithm;
pub mod authenticator;
pub mod claims;
pub mod fetch;
mod issuer;
pub mod key_set;
mod remote_keys;
pub mod spec;

mod verified;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde::de::IgnoredAny;
use tollgate_limiter::limit::key::CallerIdentity;

use self::claims::{ClaimedIssuer, TokenClaims};
use self::key_set::KeySet;
use self::spec::JwtSpec;
use self::verified::{VerifiedToken, VerifiedTokens};
use super::key_table::hash;
use super::refusal::AuthenticationRefusal;
use tollgate_limiter::clock;

/// Checks the tokens of one issuer.
pub struct TokenVerifier {
    verified: VerifiedTokens,
    /// For each algorithm that is taken.
    validations: Vec<(Algorithm, Validation)>,
}

/// Why a token is not accepted.
#[derive(PartialEq, Eq)]
pub enum TokenFault {
    /// The token names another issuer: another authenticator may know it.
    Foreign,
    /// The set does not have the key that signed it.
    UnknownKey,
    Refused(AuthenticationRefusal),
}

/// Bytes of a client's id at most.
const LONGEST_ID: usize = 256;

const TOO_LARGE: TokenFault = invalid("the token is too large");
const MALFORMED: TokenFault = invalid("the token is malformed");
const HEADER: TokenFault =
    invalid("the token's header is malformed, or names an algorithm that there is not");
const EXTENSION: TokenFault = invalid("the token asks for an extension that is not known");
const ALGORITHM: TokenFault = invalid("the token is signed by an algorithm that is not taken");
const SIGNATURE: TokenFault = invalid("the token's signature is wrong");
const NO_ID: AuthenticationRefusal =
    AuthenticationRefusal::Invalid("the token does not name its client");
const NO_SCOPE: AuthenticationRefusal =
    AuthenticationRefusal::Forbidden("the token lacks a scope that is needed here");

const fn invalid(reason: &'static str) -> TokenFault {
    TokenFault::Refused(AuthenticationRefusal::Invalid(reason))
}

impl TokenVerifier {
    pub fn new(spec: &JwtSpec) -> Self {
        algorithm::install_verifiers();
        let validations = spec
            .algorithms
            .iter()
            .map(|algorithm| (*algorithm, signature_only(*algorithm)))
            .collect();
        Self {
            verified: VerifiedTokens::new(spec.cached_tokens),
            validations,
        }
    }

    /// The client of `token`, by `keys`, for the authenticator called `name`.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn check(
        &self,
        name: &str,
        spec: &JwtSpec,
        keys: &KeySet,
        token: &[u8],
    ) -> Result<Arc<CallerIdentity>, TokenFault> {
        if token.len() > spec.max_token {
            return Err(TOO_LARGE);
        }
        let now = clock::unix_micros() as f64 / 1e6;
        let hash = hash(token);
        if let Some(known) = self.verified.find(&hash, &keys.version, now) {
            return Ok(known);
        }
        let claims = self.verify(spec, keys, token)?;
        let (identity, expires) = accept(name, spec, &claims, now).map_err(TokenFault::Refused)?;
        let identity = Arc::new(identity);
        let token = VerifiedToken {
            identity: identity.clone(),
            expires,
            key_set: keys.version,
        };
        self.verified.insert(hash, token);
        Ok(identity)
    }

    /// The claims of a token that is presented once, by `keys`: it is not remembered.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn check_once(
        &self,
        spec: &JwtSpec,
        keys: &KeySet,
        token: &[u8],
    ) -> Result<TokenClaims, TokenFault> {
        if token.len() > spec.max_token {
            return Err(TOO_LARGE);
        }
        let claims = self.verify(spec, keys, token)?;
        claims
            .check(spec, clock::unix_micros() as f64 / 1e6)
            .map_err(TokenFault::Refused)?;
        Ok(claims)
    }

    /// Looks at a token that no keys are known for: it may be another issuer's, or none at all.
    ///
    /// # Errors
    /// Why it is not accepted, whatever the keys may be.
    pub fn check_without_keys(&self, spec: &JwtSpec, token: &[u8]) -> Result<(), TokenFault> {
        if token.len() > spec.max_token {
            return Err(TOO_LARGE);
        }
        header(spec, token).map(drop)
    }

    /// The claims of a token that is signed by a key of the issuer.
    fn verify(
        &self,
        spec: &JwtSpec,
        keys: &KeySet,
        token: &[u8],
    ) -> Result<TokenClaims, TokenFault> {
        let header = header(spec, token)?;
        let (_, validation) = self
            .validations
            .iter()
            .find(|(taken, _)| *taken == header.alg)
            .ok_or(ALGORITHM)?;
        let mut found = Err(TokenFault::UnknownKey);
        for key in keys.candidates(header.kid.as_deref(), header.alg) {
            found = decode(token, key, validation)
                .map(|token| token.claims)
                .map_err(|error| fault(&error));
            if !matches!(found, Err(SIGNATURE)) {
                break;
            }
        }
        found
    }
}

/// The header of a token that is this issuer's, by its own words.
fn header(spec: &JwtSpec, token: &[u8]) -> Result<Header, TokenFault> {
    let header = decode_header(token).map_err(|_| HEADER)?;
    // An unverified issuer only chooses the authenticator that checks the token: the signature
    // decides.
    let claimed: ClaimedIssuer = insecure_decode_claims(token).map_err(|_| MALFORMED)?;
    if !claimed.is(&spec.issuer) {
        return Err(TokenFault::Foreign);
    }
    if header.crit.is_some() || has_extension(token) {
        return Err(EXTENSION);
    }
    Ok(header)
}

/// Whether the header has a `crit`, be it `null`: the crate takes that for none.
fn has_extension(token: &[u8]) -> bool {
    let header = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    let json = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let members: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_slice(&json);
    members.map_or(true, |members| members.contains_key("crit"))
}

fn fault(error: &Error) -> TokenFault {
    if matches!(error.kind(), ErrorKind::InvalidSignature) {
        SIGNATURE
    } else {
        MALFORMED
    }
}

/// Leaves the claims to [`TokenClaims::check`]: the crate goes by a clock of its own, and passes
/// over an `aud` of another type.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

/// The client of a token whose signature is right, and when the token ends.
fn accept(
    name: &str,
    spec: &JwtSpec,
    claims: &TokenClaims,
    now: f64,
) -> Result<(CallerIdentity, f64), AuthenticationRefusal> {
    let expires = claims.check(spec, now)?;
    let texts = claims.texts();
    let id = texts.get(&spec.id).filter(|id| is_id(id)).ok_or(NO_ID)?;
    if !claims.has_scopes(&spec.scopes) {
        return Err(NO_SCOPE);
    }
    let mut identity = CallerIdentity::new(name, id);
    identity.plan = spec
        .plan
        .as_ref()
        .and_then(|claim| texts.get(claim).cloned())
        .filter(|plan| is_id(plan));
    identity.claims = texts;
    Ok((identity, expires))
}

/// White space around an id would go lost on the way to an upstream: ` ada` would be `ada` there.
fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && !id.contains(char::is_control) && id.trim() == id
}
