//! The users of a file, and those of their passwords that were found right a moment ago.
//!
//! Guarantees that an unknown user costs what a wrong password of some user does, and that what is
//! remembered of passwords goes with the file that they were found right by.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use tollgate_limiter::limit::key::CallerIdentity;

use super::hash::PasswordHash;
use tollgate_limiter::clock::{self, Instant};

/// Passwords that are remembered. A user has one, so more are only of files with more users.
const MAX_REMEMBERED: usize = 16_384;

/// A user name and a password, as a keyed hash of both.
pub type PasswordDigest = [u8; 32];

/// Users by name.
pub struct UserTable {
    users: Vec<User>,
    /// Places in `users`.
    places: HashMap<Box<str>, usize>,
    hasher: RandomState,
    /// New for each table, in this process alone.
    key: hmac::Key,
    remembered: Mutex<HashMap<PasswordDigest, RememberedUser>>,
}

/// A user, and the hash of the password.
pub struct User {
    pub identity: Arc<CallerIdentity>,
    pub hash: PasswordHash,
}

struct RememberedUser {
    identity: Arc<CallerIdentity>,
    until: Instant,
}

impl UserTable {
    /// The users of an authenticator. `None`: the system has no random numbers.
    pub fn new(users: Vec<User>) -> Option<Self> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).ok()?;
        let places = users
            .iter()
            .enumerate()
            .map(|(place, user)| (user.identity.id().into(), place))
            .collect();
        Some(Self {
            users,
            places,
            hasher: RandomState::new(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            remembered: Mutex::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether both have the same users and passwords.
    pub fn is_same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.users.iter().all(|user| other.has(user))
    }

    fn has(&self, user: &User) -> bool {
        match self.find(user.identity.id()) {
            Some(found) => found.hash == user.hash,
            None => false,
        }
    }

    /// The digest of a user name and a password, for [`Self::remembered`].
    pub fn digest(&self, name: &str, password: &[u8]) -> PasswordDigest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&name.len().to_be_bytes());
        context.update(name.as_bytes());
        context.update(password);
        let mut digest = PasswordDigest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// The user that was found to have this password.
    pub fn remembered(&self, digest: &PasswordDigest) -> Option<Arc<CallerIdentity>> {
        let remembered = self.remembered.lock();
        remembered
            .get(digest)
            .filter(|user| user.until > clock::now())
            .map(|user| user.identity.clone())
    }

    /// The user called `name`, if the password is right. Takes tens of milliseconds, also of a user
    /// that is not there.
    pub fn check(&self, name: &str, password: &[u8]) -> Option<Arc<CallerIdentity>> {
        let found = self.find(name);
        // A name has one and the same other hash, like that of a user: its time says nothing.
        let checked = found.or_else(|| {
            self.users
                .get(self.hasher.hash_one(name) as usize % self.len().max(1))
        })?;
        let is_right = checked.hash.is_of(password);
        found.filter(|_| is_right).map(|user| user.identity.clone())
    }

    /// Takes note for `hold` that the password of `identity` has this digest.
    pub fn remember(&self, digest: PasswordDigest, identity: Arc<CallerIdentity>, hold: Duration) {
        let now = clock::now();
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, user| user.until > now);
        }
        if remembered.len() >= MAX_REMEMBERED {
            let oldest = remembered
                .iter()
                .min_by_key(|(_, user)| user.until)
                .map(|(digest, _)| *digest);
            oldest.map(|digest| remembered.remove(&digest));
        }
        remembered.insert(
            digest,
            RememberedUser {
                identity,
                until: now + hold,
            },
        );
    }

    fn find(&self, name: &str) -> Option<&User> {
        self.users.get(*self.places.get(name)?)
    }
}

impl fmt::Debug for UserTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserTable({} users)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(users: &[(&str, &str)]) -> UserTable {
        let mut known = Vec::new();
        for (name, password) in users {
            let hash = bcrypt::hash_with_salt(password, 4, [7; 16]).unwrap();
            known.push(User {
                identity: Arc::new(CallerIdentity::new("staff", name)),
                hash: PasswordHash::read(&hash.to_string()).unwrap(),
            });
        }
        UserTable::new(known).unwrap()
    }

    #[test]
    fn a_user_is_known_by_the_own_password_alone() {
        let table = table(&[("ada", "one"), ("bob", "two")]);
        assert_eq!(table.check("ada", b"one").unwrap().qualified(), "staff/ada");
        for (name, password) in [
            ("ada", "two"),
            ("bob", "one"),
            ("ada", ""),
            ("Ada", "one"),
            ("", "one"),
        ] {
            assert!(
                table.check(name, password.as_bytes()).is_none(),
                "{name}:{password}"
            );
        }
    }

    #[test]
    fn an_unknown_user_is_never_let_in_by_the_password_of_another() {
        let table = table(&[("ada", "one")]);
        assert!((0..50).all(|n| table.check(&format!("user{n}"), b"one").is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_password_is_remembered_for_a_while_with_its_user() {
        let table = table(&[("ada", "one")]);
        let digest = table.digest("ada", b"one");
        assert!(table.remembered(&digest).is_none());
        table.remember(
            digest,
            table.check("ada", b"one").unwrap(),
            Duration::from_secs(60),
        );
        assert_eq!(table.remembered(&digest).unwrap().id(), "ada");
        for other in [
            table.digest("ada", b"two"),
            table.digest("adaone", b""),
            table.digest("ad", b"aone"),
        ] {
            assert!(table.remembered(&other).is_none());
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(table.remembered(&digest).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_passwords_is_remembered_and_the_oldest_makes_room() {
        let table = table(&[("ada", "one")]);
        let ada = table.check("ada", b"one").unwrap();
        for n in 0..=MAX_REMEMBERED {
            table.remember(
                table.digest("ada", &n.to_be_bytes()),
                ada.clone(),
                Duration::from_millis(1_000_000 + n as u64),
            );
        }
        assert_eq!(table.remembered.lock().len(), MAX_REMEMBERED);
        let oldest = table.digest("ada", &0_usize.to_be_bytes());
        let second = table.digest("ada", &1_usize.to_be_bytes());
        assert!(table.remembered(&oldest).is_none() && table.remembered(&second).is_some());
    }

    #[test]
    fn tables_are_the_same_by_their_users_and_passwords() {
        let before = table(&[("ada", "one"), ("bob", "two")]);
        assert!(before.is_same(&table(&[("bob", "two"), ("ada", "one")])));
        for other in [
            table(&[("ada", "one")]),
            table(&[("ada", "one"), ("bob", "three")]),
        ] {
            assert!(!before.is_same(&other) && !other.is_same(&before));
        }
    }
}
