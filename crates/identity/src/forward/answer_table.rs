//! The answers that are kept, by the clients that they are about.
//!
//! Guarantees a bound on them, and that a client address which has an eighth of the room displaces
//! its own answers and nobody else's.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::generations::Generations;
use crate::key_table::CredentialHash;
use tollgate_wire::address_shares::network;

/// Answers that are kept for certain, whatever their clients. There is room for twice as many.
const KEPT: usize = 8_192;

/// Answers about one client address that are kept.
const KEPT_OF_CLIENT: usize = KEPT / 8;

/// A table of answers.
pub struct AnswerTable<V> {
    answers: Generations<V>,
    /// The keys of the newer half, oldest first.
    by_client: KeysByClient,
}

type KeysByClient = HashMap<IpAddr, VecDeque<CredentialHash>>;

/// The answers that make room, to be dropped once no lock is held any more: there may be thousands.
#[must_use = "it is to be dropped behind the lock"]
pub struct ForgottenAnswers<V> {
    _answers: Option<HashMap<CredentialHash, V>>,
    _keys: KeysByClient,
}

impl<V> Default for AnswerTable<V> {
    fn default() -> Self {
        Self {
            answers: Generations::new(KEPT),
            by_client: HashMap::new(),
        }
    }
}

impl<V> AnswerTable<V> {
    pub fn get(&self, key: &CredentialHash) -> Option<&V> {
        self.answers.get(key)
    }

    /// Keeps an answer about the client at `ip`.
    pub fn insert(&mut self, key: CredentialHash, ip: IpAddr, answer: V) -> ForgottenAnswers<V> {
        let is_replaced = self.answers.is_newer(&key);
        let forgotten = self.answers.insert(key, answer);
        let keys = if forgotten.is_some() {
            std::mem::take(&mut self.by_client)
        } else {
            HashMap::new()
        };
        if !is_replaced || forgotten.is_some() {
            let own = self.by_client.entry(network(ip)).or_default();
            own.push_back(key);
            if own.len() > KEPT_OF_CLIENT
                && let Some(oldest) = own.pop_front()
            {
                self.answers.remove(&oldest);
            }
        }
        ForgottenAnswers {
            _answers: forgotten,
            _keys: keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_table::hash;

    fn key(number: usize) -> CredentialHash {
        hash(&number.to_be_bytes())
    }

    fn ip(number: usize) -> IpAddr {
        let [.., third, fourth] = number.to_be_bytes();
        [10, 0, third, fourth].into()
    }

    #[test]
    fn one_client_displaces_its_own_answers_and_no_other_clients() {
        let mut table = AnswerTable::default();
        drop(table.insert(key(0), ip(0), 0));
        for number in 1..4 * KEPT {
            drop(table.insert(key(number), ip(1), number));
            // Asked again and again, it takes no more room.
            drop(table.insert(key(number), ip(1), number));
        }
        assert_eq!(table.get(&key(0)), Some(&0));
        let kept = (1..4 * KEPT)
            .filter(|number| table.get(&key(*number)).is_some())
            .count();
        assert_eq!(
            (kept, table.get(&key(4 * KEPT - 1))),
            (KEPT_OF_CLIENT, Some(&(4 * KEPT - 1)))
        );
    }

    #[test]
    fn the_answers_of_all_clients_have_a_bound_and_older_ones_go_first() {
        let mut table = AnswerTable::default();
        for number in 0..4 * KEPT {
            drop(table.insert(key(number), ip(number / 100), number));
            let keys: usize = table.by_client.values().map(VecDeque::len).sum();
            assert!(table.answers.len() <= 2 * KEPT && keys <= KEPT);
        }
        assert!((3 * KEPT..4 * KEPT).all(|number| table.get(&key(number)) == Some(&number)));
    }
}
