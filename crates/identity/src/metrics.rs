//! How requests fared with an authenticator, counted.

use metrics::{Counter, Gauge, counter, gauge};

use super::refusal::AuthenticationRefusal;

/// The counters of one authenticator.
pub struct AuthenticatorMetrics {
    accepted: Counter,
    absent: Counter,
    rejected: Counter,
    forbidden: Counter,
    limited: Counter,
    unavailable: Counter,
    reloads: [Counter; 2],
    credentials: Gauge,
}

impl AuthenticatorMetrics {
    /// The counters of the authenticator called `name`.
    pub fn new(name: &str) -> Self {
        let outcomes = [
            "accepted",
            "absent",
            "rejected",
            "forbidden",
            "limited",
            "unavailable",
        ];
        let [accepted, absent, rejected, forbidden, limited, unavailable] = outcomes.map(|outcome| {
            let counter = counter!("tollgate_authentications_total", "authenticator" => name.to_owned(), "outcome" => outcome);
            counter.increment(0);
            counter
        });
        Self {
            accepted,
            absent,
            rejected,
            forbidden,
            limited,
            unavailable,
            reloads: ["applied", "rejected"].map(|outcome| counter!("tollgate_authenticator_reloads_total", "authenticator" => name.to_owned(), "outcome" => outcome)),
            credentials: gauge!("tollgate_authenticator_credentials", "authenticator" => name.to_owned()),
        }
    }

    /// The request has no credential for it.
    pub fn absent(&self) {
        self.absent.increment(1);
    }

    /// The authenticator has decided about a request.
    pub fn decided<T>(&self, result: &Result<T, AuthenticationRefusal>) {
        let counter = match result {
            Ok(_) => &self.accepted,
            Err(AuthenticationRefusal::Invalid(_)) => &self.rejected,
            Err(AuthenticationRefusal::Forbidden(_)) => &self.forbidden,
            Err(AuthenticationRefusal::Answered(answer)) if answer.status == 403 => &self.forbidden,
            Err(AuthenticationRefusal::Answered(_) | AuthenticationRefusal::Faulty(_)) => {
                &self.rejected
            }
            Err(AuthenticationRefusal::TooManyAttempts(_)) => &self.limited,
            Err(AuthenticationRefusal::Undecided(_) | AuthenticationRefusal::Unavailable(_)) => {
                &self.unavailable
            }
        };
        counter.increment(1);
    }

    /// Credentials or keys were read again: so many, or `None` if they cannot be used.
    pub fn reloaded(&self, entries: Option<usize>) {
        self.reloads[usize::from(entries.is_none())].increment(1);
        if let Some(entries) = entries {
            self.credentials.set(entries as f64);
        }
    }
}
