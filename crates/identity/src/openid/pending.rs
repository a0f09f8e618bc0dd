//! A sign-in that has begun: what the browser keeps while it is at the provider.
//!
//! Guarantees that an answer is taken by the browser alone that has asked (`state`, RFC 6749
//! §10.12), once, and within ten minutes; that a token is for this one sign-in (`nonce`); and that
//! a stolen code is worth nothing (PKCE, RFC 7636). What the browser brings back was made by a
//! gateway with the same random key, which a fleet shares: each node takes it. No secret that
//! somebody has chosen signs it, since the browser could try out what that is.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// How long a person may take at the provider.
pub const LASTS: Duration = Duration::from_secs(600);

/// Letters of 32 bytes.
const LENGTH: usize = 43;

/// Sign-ins that have ended and are remembered as such, until they are too old anyway.
const MOST_ENDED: usize = 65_536;

/// A sign-in that has begun.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingSignIn {
    /// In seconds since 1970.
    pub began: u64,
    pub state: String,
    pub nonce: String,
    /// The proof that a code was asked for by the browser that brings it.
    pub verifier: String,
    /// Where to go then, with no character that a cookie does not have.
    pub next: String,
    /// Whether the sign-in proves a person: the provider must have asked for credentials just now.
    pub proves: bool,
}

/// The mark of a sign-in that proves a person, in a cookie.
const PROVES: &str = "proves";

/// The key that sign-ins are signed with.
pub struct SignInKey(hmac::Key);

/// The sign-ins that have ended: none ends twice.
#[derive(Default)]
pub struct EndedSignIns(Mutex<HashMap<String, u64>>);

impl SignInKey {
    /// `key`: 256 bits that were drawn at random.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }
}

impl PendingSignIn {
    /// # Errors
    /// When the system has no random numbers.
    pub fn begin(now: u64, next: String, proves: bool) -> Result<Self, Unspecified> {
        Ok(Self {
            began: now,
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            next,
            proves,
        })
    }

    /// The sign-in as the value of a cookie, signed.
    pub fn text(&self, key: &SignInKey) -> String {
        let mut secrets = format!(
            "{}.{}.{}.{}",
            self.began, self.state, self.nonce, self.verifier
        );
        if self.proves {
            secrets = format!("{secrets}.{PROVES}");
        }
        let body = format!("{secrets}~{}", self.next);
        let tag = hmac::sign(&key.0, body.as_bytes());
        format!("{}.{body}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Reads the value of a cookie that is no older than [`LASTS`].
    pub fn read(text: &str, key: &SignInKey, now: u64) -> Option<Self> {
        let (tag, body) = text.split_once('.')?;
        hmac::verify(&key.0, body.as_bytes(), &URL_SAFE_NO_PAD.decode(tag).ok()?).ok()?;
        let (secrets, next) = body.split_once('~')?;
        let mut parts = secrets.split('.');
        let began: u64 = parts.next()?.parse().ok()?;
        let state = secret(parts.next()?)?;
        let nonce = secret(parts.next()?)?;
        let verifier = secret(parts.next()?)?;
        let proves = match parts.next() {
            None => false,
            Some(PROVES) => true,
            Some(_) => return None,
        };
        let pending = Self {
            began,
            state,
            nonce,
            verifier,
            next: next.to_owned(),
            proves,
        };
        // Another node's clock may be ahead.
        let is_recent = now.abs_diff(began) < LASTS.as_secs();
        if is_recent && parts.next().is_none() {
            Some(pending)
        } else {
            None
        }
    }

    /// The hash of the verifier, which the provider keeps (RFC 7636 §4.2, S256).
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }
}

impl EndedSignIns {
    /// Ends a sign-in. Returns whether it has not ended before: with too many of them, none is
    /// forgotten, and none ends.
    pub fn end(&self, pending: &PendingSignIn, now: u64) -> bool {
        let mut ended = self.0.lock();
        if ended.len() >= MOST_ENDED {
            ended.retain(|_, began| now.abs_diff(*began) < LASTS.as_secs());
        }
        ended.len() < MOST_ENDED && ended.insert(pending.state.clone(), pending.began).is_none()
    }
}

/// A secret as [`random`] writes it.
fn secret(part: &str) -> Option<String> {
    if part.len() == LENGTH {
        Some(part.to_owned())
    } else {
        None
    }
}

fn random() -> Result<String, Unspecified> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn begin() -> PendingSignIn {
        PendingSignIn::begin(NOW, "%2Fconsole~".to_owned(), false).unwrap()
    }

    #[test]
    fn a_cookie_has_all_of_it_or_nothing() {
        let pending = begin();
        let key = SignInKey::new(&[1; 32]);
        let text = pending.text(&key);
        assert!(PendingSignIn::read(&text, &key, NOW + 599).unwrap() == pending);
        assert!(begin().text(&key) != text);
        let proving = PendingSignIn {
            proves: true,
            ..pending
        };
        assert!(PendingSignIn::read(&proving.text(&key), &key, NOW).unwrap() == proving);
        for odd in [
            "",
            "..",
            ".",
            "~",
            &text[1..],
            &format!("{text}a"),
            &text.replace("1800000000", "1800000001"),
        ] {
            assert!(PendingSignIn::read(odd, &key, NOW).is_none(), "{odd}");
        }
    }

    #[test]
    fn a_cookie_of_another_key_or_too_old_is_none() {
        let key = SignInKey::new(&[1; 32]);
        let text = begin().text(&key);
        assert!(PendingSignIn::read(&text, &SignInKey::new(&[2; 32]), NOW).is_none());
        for then in [NOW + 600, NOW - 600] {
            assert!(PendingSignIn::read(&text, &key, then).is_none(), "{then}");
        }
    }

    #[test]
    fn a_sign_in_ends_once() {
        let ended = EndedSignIns::default();
        let pending = begin();
        assert!(ended.end(&pending, NOW) && !ended.end(&pending, NOW) && ended.end(&begin(), NOW));
        // Not forgotten for others; those too old make room.
        while ended.end(&begin(), NOW) {}
        assert_eq!(ended.0.lock().len(), MOST_ENDED);
        assert!(!ended.end(&begin(), NOW + 599) && !ended.end(&pending, NOW + 599));
        assert!(ended.end(&begin(), NOW + 600));
    }

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_the_hash_of_its_verifier() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(
            PendingSignIn {
                verifier,
                ..begin()
            }
            .challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
