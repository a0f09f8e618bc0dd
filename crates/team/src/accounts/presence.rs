//! The sessions whose owners the provider has asked lately who they are.
//!
//! Kept in this process alone, as are the tokens of forms: another node asks anew.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use tollgate_identity::openid::provider::RECENT;
use tollgate_limiter::clock::{self, Instant};

/// Sessions that are remembered, for ten minutes each.
const MOST: usize = 4_096;

type SessionHash = [u8; 32];

/// Sessions, each with the end of its owner's presence.
#[derive(Default)]
pub struct ProvenSessions(Mutex<VecDeque<(SessionHash, Instant)>>);

impl ProvenSessions {
    /// The owner of this session was asked `age` ago.
    pub fn add(&self, secret: &str, age: Duration) {
        let now = clock::now();
        let mut sessions = self.0.lock();
        sessions.retain(|(_, end)| now < *end);
        if sessions.len() == MOST {
            sessions.pop_front();
        }
        sessions.push_back((hash(secret), now + RECENT.saturating_sub(age)));
    }

    /// Whether the owner of this session was asked lately.
    pub fn has(&self, secret: &str) -> bool {
        let wanted = hash(secret);
        let now = clock::now();
        self.0
            .lock()
            .iter()
            .any(|(known, end)| *known == wanted && now < *end)
    }
}

fn hash(secret: &str) -> SessionHash {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn presence_ends_ten_minutes_after_the_provider_has_asked() {
        let sessions = ProvenSessions::default();
        sessions.add("ada", Duration::ZERO);
        sessions.add("bob", Duration::from_secs(590));
        assert_eq!(
            ["ada", "bob", "eve"].map(|secret| sessions.has(secret)),
            [true, true, false]
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(
            ["ada", "bob"].map(|secret| sessions.has(secret)),
            [true, false]
        );
        (0..MOST).for_each(|number| sessions.add(&number.to_string(), Duration::ZERO));
        assert!(
            !sessions.has("ada") && sessions.has("0"),
            "the oldest make room"
        );
    }
}
