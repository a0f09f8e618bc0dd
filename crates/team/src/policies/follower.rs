//! Keeps up with the database: asks for its newest revision twice a second, and at once when
//! another node knows of one.
//!
//! Guarantees that a database which is away changes nothing but the age of what is known.

use std::mem::{Discriminant, discriminant};
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::pending;
use tokio::time::sleep;
use tollgate_policies::database::{ChangesAfter, DatabaseError};

use super::handle::Policies;
use super::start;

/// The pause between two questions. Each pause is longer or shorter by chance, so that nodes do not
/// ask at once.
const POLL: Duration = Duration::from_millis(500);

/// The part of a pause that is by chance.
const JITTER: f64 = 0.2;

/// Follows the database, and keeps the copy. Runs until dropped, of a gateway without policies too.
pub async fn follow(policies: Option<&Policies>) {
    let Some(policies) = policies else {
        return pending().await;
    };
    tokio::join!(PolicyFollower::new(policies).run(), keep_copy(policies));
}

async fn keep_copy(policies: &Policies) {
    let running = policies.running.subscribe();
    let newest = policies.newest.subscribe();
    policies
        .copy
        .follow(running, newest, policies.candidates.subscribe())
        .await;
}

/// Follows the database of policies.
pub struct PolicyFollower<'a> {
    policies: &'a Policies,
    /// How the last question failed.
    failed: Option<Discriminant<DatabaseError>>,
    /// Whether it was found without any policies though there had been some.
    is_emptied: bool,
}

/// The content of the database, as it was found.
enum Found {
    /// The policies that are known now.
    Followed,
    /// Nothing any more.
    Emptied { known: u64 },
}

impl<'a> PolicyFollower<'a> {
    pub fn new(policies: &'a Policies) -> Self {
        Self {
            policies,
            failed: None,
            is_emptied: false,
        }
    }

    /// Runs until dropped.
    pub async fn run(mut self) {
        loop {
            let pause = POLL.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64());
            tokio::select! {
                () = sleep(pause) => {}
                () = self.policies.wake.notified() => {}
            }
            match self.look().await {
                Ok(Found::Followed) => self.succeeded(),
                Ok(Found::Emptied { known }) => self.emptied(known),
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Hands on what the database has, if that is news.
    async fn look(&self) -> Result<Found, DatabaseError> {
        let database = &self.policies.database;
        let known = self.policies.newest.borrow().clone();
        // The database was away when this process began.
        if !self.policies.is_current.load(Ordering::Relaxed) {
            start::migrate(database).await?;
            self.policies.is_current.store(true, Ordering::Relaxed);
        }
        let head = database.head().await?;
        if head == known.position() {
            self.policies.note_reached();
            self.policies.note_heard();
            return Ok(Found::Followed);
        }
        if head.revision == 0 && known.revision() > 0 {
            return Ok(Found::Emptied {
                known: known.revision(),
            });
        }
        let newest = match database.changes_after(known.position()).await? {
            ChangesAfter::Known { changes, to } => known.advanced(&changes, to),
            ChangesAfter::Unknown { head } => {
                if known.revision() > 0 {
                    tracing::warn!(
                        database = database.place(),
                        known = known.revision(),
                        found = head.revision,
                        "the database does not have the revision that was followed: it was restored, or is another one. \
                         All of it is read anew"
                    );
                }
                database.state(None).await?
            }
        };
        self.policies.newest.send_if_modified(|state| {
            let is_news = state.position() != newest.position();
            *state = newest;
            is_news
        });
        self.policies.note_reached();
        self.policies.note_heard();
        Ok(Found::Followed)
    }

    /// Logs once that the database has lost all policies.
    fn emptied(&mut self, known: u64) {
        if !std::mem::replace(&mut self.is_emptied, true) {
            tracing::error!(
                database = self.policies.database.place(),
                "{}: those at work stay in force",
                start::emptied(known)
            );
        }
    }

    fn succeeded(&mut self) {
        self.is_emptied = false;
        if self.failed.take().is_some() {
            tracing::info!(
                database = self.policies.database.place(),
                "the database of policies answers again"
            );
        }
    }

    /// Logs a failure, once for as long as it stays of one kind.
    fn failed(&mut self, error: &DatabaseError) {
        let kind = Some(discriminant(error));
        if self.failed != kind {
            let revision = self.policies.running.borrow().revision();
            tracing::warn!(%error, revision, "cannot follow the policies: those at work stay in force");
        }
        self.failed = kind;
    }
}
