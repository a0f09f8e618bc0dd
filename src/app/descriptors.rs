//! The descriptors of the process: how many it may have, and how many of them client connections
//! may take.
//!
//! Guarantees that clients leave enough for upstreams and the store, however many connect.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use tollgate_config::Config;

/// Descriptors that any process of ours has: the standard streams, the runtimes' own, files that
/// are read now and then.
const OWN: usize = 32;
/// Descriptors of each worker: its runtime, and its connections to the store.
const PER_WORKER: usize = 12;
/// Descriptors of each listener and worker: a socket, and the duplicate that a hand-over sends.
const PER_SOCKET: usize = 2;
/// The part of all that the admin port and whatever else may take: one of so many.
const ADMIN_PART: usize = 16;

/// Raises the limit on descriptors to what the system lets this process have. Returns it.
pub fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let mut limit = current;
    if current != maximum {
        match setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        ) {
            Ok(()) => limit = maximum,
            Err(error) => tracing::warn!(%error, "the limit on descriptors cannot be raised"),
        }
    }
    match limit.map(usize::try_from) {
        Some(Ok(limit)) => limit,
        Some(Err(_)) | None => usize::MAX,
    }
}

/// How many client connections may be open with `limit` descriptors. Says so in the log.
///
/// A request may need an upstream connection, so clients get half of what the process itself does
/// not need.
pub fn client_connections(config: &Config, limit: usize) -> usize {
    let most = clients_of(config.workers.get(), config.listeners.len(), limit);
    let mut all = 0_usize;
    let mut largest = 0;
    for listener in &config.listeners {
        let bound = listener.server.max_connections;
        all = all.saturating_add(bound);
        largest = largest.max(bound);
    }
    let effective = most.min(all);
    tracing::info!(
        descriptors = limit,
        client_connections = effective,
        "limits of the process"
    );
    // Listeners share what there is, and are seldom full at once. A listener that could not be full
    // by itself is a mistake.
    if most < largest {
        tracing::warn!(
            descriptors = limit,
            client_connections = most,
            max_connections = largest,
            "the limit on descriptors bounds client connections before max_connections does: raise it (ulimit -Hn, \
             LimitNOFILE=) to {}, or lower max_connections",
            needed(config.workers.get(), config.listeners.len(), largest),
        );
    }
    most
}

fn clients_of(workers: usize, listeners: usize, limit: usize) -> usize {
    let left = limit
        .saturating_sub(own(workers, listeners))
        .saturating_sub(limit / ADMIN_PART);
    (left / 2).max(1)
}

/// The limit with which as many clients may connect.
fn needed(workers: usize, listeners: usize, clients: usize) -> usize {
    let without_admin = clients
        .saturating_mul(2)
        .saturating_add(own(workers, listeners));
    without_admin
        .saturating_add(without_admin / (ADMIN_PART - 1))
        .saturating_add(2)
}

fn own(workers: usize, listeners: usize) -> usize {
    OWN + workers * (PER_WORKER + listeners * PER_SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_as_much_as_they_take() {
        for (limit, clients) in [
            (100, 17),
            (1_024, 450),
            (65_536, 30_690),
            (1_048_576, 491_490),
            (20, 1),
        ] {
            assert_eq!(clients_of(2, 1, limit), clients, "{limit}");
        }
    }

    #[test]
    fn the_limit_that_is_asked_for_is_enough() {
        for clients in [1, 100, 65_536, 1_000_000] {
            let limit = needed(4, 3, clients);
            assert!(clients_of(4, 3, limit) >= clients, "{clients}");
            assert!(
                clients_of(4, 3, limit - limit / 50 - 3) < clients || clients == 1,
                "{clients}"
            );
        }
    }
}
