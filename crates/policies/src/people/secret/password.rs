//! Passwords, as argon2id hashes. Hashing takes 19 MiB and a core for a while, so few are under way
//! at once, and none on the runtime's own threads.

use std::fmt;
use std::sync::LazyLock;

use argon2::password_hash::{PasswordHash as PhcHash, SaltString};
use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::Semaphore;

use super::random;
use crate::people::error::PeopleError;

const FEWEST_CHARACTERS: usize = 12;
const MOST_BYTES: usize = 1024;

/// A flood of passwords takes two cores and 38 MiB, and no more.
static HASHING: Semaphore = Semaphore::const_new(2);

/// The hash of no password, to be compared with where there is no account.
static NOBODY: LazyLock<Option<HashedPassword>> = LazyLock::new(|| hashed("nobody's").ok());

/// The hash of a password in the PHC's format, which tells passwords apart. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct HashedPassword(pub(in crate::people) String);

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword(…)")
    }
}

impl HashedPassword {
    /// Hashes a new password, before the change that it is for: that keeps other writers out.
    pub async fn new(password: &str) -> Result<Self, PeopleError> {
        hash(password).await
    }
}

async fn hash(password: &str) -> Result<HashedPassword, PeopleError> {
    if password.chars().count() < FEWEST_CHARACTERS || password.len() > MOST_BYTES {
        let bounds = format!(
            "a password has {FEWEST_CHARACTERS} characters or more, and no more than {MOST_BYTES} bytes"
        );
        return Err(PeopleError::Invalid(bounds));
    }
    let password = password.to_owned();
    match on_a_thread(move || hashed(&password)).await {
        Some(hash) => hash,
        None => Err(PeopleError::NoRandomness),
    }
}

/// Whether a password has this hash. Without a hash the answer takes as long.
pub async fn verify(password: &str, hash: Option<&HashedPassword>) -> bool {
    if password.len() > MOST_BYTES {
        return false;
    }
    let password = password.to_owned();
    let hash = hash.cloned();
    let verifying = on_a_thread(move || {
        let is_known = hash.is_some();
        let Some(HashedPassword(hash)) = hash.as_ref().or(NOBODY.as_ref()) else {
            return false;
        };
        let Ok(hash) = PhcHash::new(hash) else {
            return false;
        };
        let verified = Argon2::default().verify_password(password.as_bytes(), &hash);
        verified.is_ok() && is_known
    });
    verifying.await.unwrap_or(false)
}

/// Argon2id with 19 MiB and two passes, as OWASP advises
/// (<https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html>).
fn hashed(password: &str) -> Result<HashedPassword, PeopleError> {
    let salt: [u8; 16] = random()?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| PeopleError::NoRandomness)?;
    match Argon2::default().hash_password(password.as_bytes(), &salt) {
        Ok(hash) => Ok(HashedPassword(hash.to_string())),
        Err(error) => {
            let text = format!("the password has no hash: {error}");
            Err(PeopleError::Invalid(text))
        }
    }
}

/// `None`: the runtime ends.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let permit = HASHING.acquire().await.ok()?;
    let done = tokio::task::spawn_blocking(work).await.ok();
    drop(permit);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_alone() {
        let hash = hash("correct horse").await.unwrap();
        assert!(
            hash.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{}",
            hash.0
        );
        assert!(verify("correct horse", Some(&hash)).await);
        assert!(!verify("correct house", Some(&hash)).await);
        assert!(!verify("nobody's", None).await, "nobody has no password");
        let broken = HashedPassword("no hash".to_owned());
        assert!(!verify("correct horse", Some(&broken)).await);
        assert!(!format!("{hash:?}").contains("argon2"));
    }

    #[tokio::test]
    async fn short_and_endless_passwords_are_refused() {
        for password in ["", "elevenchars", &"x".repeat(1025)] {
            assert!(
                matches!(hash(password).await, Err(PeopleError::Invalid(_))),
                "{password}"
            );
        }
        assert!(!verify(&"x".repeat(1025), None).await);
    }
}
