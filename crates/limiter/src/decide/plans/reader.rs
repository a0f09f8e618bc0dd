//! Reads plans that are not in the cache, or too old.
//!
//! A hash has one call in flight at a time. Fields that are needed meanwhile go together with the
//! next call, each once, however many requests need it. Guarantees that no request waits beyond its
//! deadline, that while the breaker is open no request waits and nothing is sent, and that after a
//! read that failed no request waits until one has worked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::clock::{self, Instant};
use crate::decide::plans::cache::{PlanCache, PlanQuery};
use crate::limit::key::Key;
use crate::node::breaker::Breaker;
use crate::store::StoreError;
use crate::store::hash_reader::{FieldValue, HashReader};

/// Fields of one call. When this many wait already, further ones are skipped: the next request that
/// needs them queries again.
const MAX_FIELDS: usize = 1_024;

/// Reads plans over one worker's connection to the shared store.
pub struct PlanReader {
    hashes: Arc<dyn HashReader>,
    breaker: Arc<Breaker>,
    /// By the address of the cache, which lives as long as its entry here: the task that reads has
    /// it.
    caches: Mutex<HashMap<usize, CacheReads>>,
}

/// The calls for one hash.
#[derive(Default)]
struct CacheReads {
    in_flight: Option<ReadCall>,
    next: Option<ReadCall>,
    driver: Option<JoinHandle<()>>,
}

/// The fields of one call.
struct ReadCall {
    fields: HashSet<Key>,
    /// Dropped when the call ends, whatever came of it: the requests that wait learn of it by that.
    end: watch::Sender<()>,
}

/// The end of a call.
type CallEnd = watch::Receiver<()>;

impl PlanReader {
    pub fn new(hashes: Arc<dyn HashReader>, breaker: Arc<Breaker>) -> Self {
        Self {
            hashes,
            breaker,
            caches: Mutex::default(),
        }
    }

    /// Starts to read. `Some`: a decision needs some of the plans, and waits until they are read,
    /// or until `deadline`.
    pub(crate) fn start<'q>(
        self: &Arc<Self>,
        queries: impl Iterator<Item = &'q PlanQuery>,
        deadline: Instant,
    ) -> Option<BoxFuture<'static, ()>> {
        let mut ends: Vec<CallEnd> = Vec::new();
        for query in queries {
            let end = self.join(query);
            ends.extend(end.filter(|_| query.is_awaited()));
        }
        (!ends.is_empty()).then(|| until_ended(ends, deadline).boxed())
    }

    /// Reads all of them, or those that can be read within the time limit.
    pub async fn read(self: &Arc<Self>, lookups: &[PlanQuery]) {
        let ends = lookups
            .iter()
            .filter_map(|lookup| self.join(lookup))
            .collect();
        until_ended(ends, clock::now() + self.hashes.timeout()).await;
    }

    /// Reads one field of the hash called `name`, whatever it means. `None`: the server that has
    /// the hash may not be asked.
    pub(crate) fn read_field(
        &self,
        name: Arc<str>,
        field: Key,
    ) -> Option<BoxFuture<'static, Result<FieldValue, StoreError>>> {
        if self.breaker.is_open() && self.breaker.is_open_for(self.hashes.server_of_hash(&name)) {
            return None;
        }
        let hashes = self.hashes.clone();
        Some(Box::pin(async move {
            let mut values = hashes.read(&name, std::slice::from_ref(&field)).await?;
            values.pop().ok_or(StoreError::Protocol)
        }))
    }

    /// Adds a field to the calls: the end of the call that reads it.
    fn join(self: &Arc<Self>, lookup: &PlanQuery) -> Option<CallEnd> {
        let PlanQuery { cache, field, .. } = lookup;
        if self.is_away(cache) {
            cache.skip();
            return None;
        }
        let mut caches = self.caches.lock();
        let reads = caches.entry(Arc::as_ptr(cache).addr()).or_default();
        let calls = [&reads.in_flight, &reads.next].into_iter().flatten();
        if let Some(call) = calls.into_iter().find(|call| call.fields.contains(field)) {
            return Some(call.end.subscribe());
        }
        let call = reads.next.get_or_insert_with(|| ReadCall {
            fields: HashSet::new(),
            end: watch::Sender::new(()),
        });
        if call.fields.len() >= MAX_FIELDS {
            cache.skip();
            return None;
        }
        call.fields.insert(field.clone());
        let end = call.end.subscribe();
        // A driver that has finished but is still here has panicked, and must not hold up the
        // others.
        if reads.driver.as_ref().is_none_or(JoinHandle::is_finished) {
            reads.driver = Some(
                Handle::try_current()
                    .ok()?
                    .spawn(drive(self.clone(), cache.clone())),
            );
        }
        Some(end)
    }

    /// Whether the server that has the plans may not be asked.
    fn is_away(&self, cache: &PlanCache) -> bool {
        self.breaker.is_open()
            && self
                .breaker
                .is_open_for(self.hashes.server_of_hash(cache.hash()))
    }

    /// Ends the call in flight and begins the next: its fields. `None`: no request waits.
    fn next_call(&self, cache: &Arc<PlanCache>) -> Option<Vec<Key>> {
        let mut caches = self.caches.lock();
        let place = Arc::as_ptr(cache).addr();
        let reads = caches.get_mut(&place)?;
        reads.in_flight = reads.next.take().filter(|_| !self.is_away(cache));
        let Some(call) = &reads.in_flight else {
            caches.remove(&place);
            return None;
        };
        Some(call.fields.iter().cloned().collect())
    }
}

async fn drive(reader: Arc<PlanReader>, cache: Arc<PlanCache>) {
    while let Some(fields) = reader.next_call(&cache) {
        let sent_us = clock::monotonic_micros();
        match reader.hashes.read(cache.hash(), &fields).await {
            Ok(texts) => cache.learn(fields.into_iter().zip(texts), sent_us),
            Err(error) => cache.fail(&error, fields.len(), sent_us),
        }
    }
}

async fn until_ended(ends: Vec<CallEnd>, deadline: Instant) {
    let all = join_all(
        ends.into_iter()
            .map(|mut end| async move { drop(end.changed().await) }),
    );
    // A request whose wait timed out goes on with the plans that are known.
    let _ = timeout_at(deadline, all).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::decide::plans::cache::PlanCaches;
    use crate::limit::algorithm::AlgorithmKind;
    use crate::store::ServerId;

    const TIMEOUT: Duration = Duration::from_millis(20);

    /// A hash in which each field has a plan. A read is answered once the test permits it.
    struct ManualHashReader {
        calls: Mutex<Vec<Vec<Key>>>,
        permits: Semaphore,
    }

    impl HashReader for ManualHashReader {
        fn read<'a>(
            &'a self,
            _: &'a str,
            fields: &'a [Key],
        ) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>> {
            self.calls.lock().push(fields.to_vec());
            Box::pin(async move {
                let permit = tokio::time::timeout(TIMEOUT, self.permits.acquire()).await;
                permit
                    .map_err(|_| StoreError::Timeout)?
                    .map_err(|_| StoreError::Io)?
                    .forget();
                Ok(fields.iter().map(|_| Some(b"7/s".to_vec())).collect())
            })
        }

        fn timeout(&self) -> Duration {
            TIMEOUT
        }
    }

    struct Setup {
        store: Arc<ManualHashReader>,
        breaker: Arc<Breaker>,
        reader: Arc<PlanReader>,
        cache: Arc<PlanCache>,
    }

    impl Setup {
        fn new(permits: usize) -> Self {
            let store = Arc::new(ManualHashReader {
                calls: Mutex::default(),
                permits: Semaphore::new(permits),
            });
            let breaker = Arc::new(Breaker::new());
            let reader = Arc::new(PlanReader::new(store.clone(), breaker.clone()));
            Self {
                store,
                breaker,
                reader,
                cache: PlanCaches::default().cache(&"plans".into(), AlgorithmKind::TokenBucket),
            }
        }

        /// Starts like a request that needs the plans of these values.
        fn start(&self, values: &[&str]) -> Option<BoxFuture<'static, ()>> {
            let queries: Vec<_> = values
                .iter()
                .map(|field| PlanQuery {
                    cache: self.cache.clone(),
                    field: Key::from(*field),
                    urgent: true,
                })
                .collect();
            self.reader.start(queries.iter(), clock::now() + TIMEOUT)
        }

        fn knows(&self, value: &str) -> bool {
            self.cache.plan(&Key::from(value)).is_some()
        }

        /// The number of fields of each call.
        fn calls(&self) -> Vec<usize> {
            self.store.calls.lock().iter().map(Vec::len).collect()
        }
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fields_needed_while_a_call_is_in_flight_share_the_next_call_and_each_is_read_once() {
        let setup = Setup::new(0);
        let first = setup.start(&["a", "b"]).unwrap();
        settle().await;
        let same = setup.start(&["a"]).unwrap();
        let others = [
            setup.start(&["c", "d"]),
            setup.start(&["d"]),
            setup.start(&["a", "e"]),
        ];
        settle().await;
        assert_eq!(setup.calls(), [2]);
        setup.store.permits.add_permits(1);
        first.await;
        same.await;
        assert!(setup.knows("a") && setup.knows("b") && !setup.knows("c"));
        setup.store.permits.add_permits(1);
        for other in others {
            other.unwrap().await;
        }
        assert_eq!(setup.calls(), [2, 3]);
        assert!(["c", "d", "e"].iter().all(|value| setup.knows(value)));
        settle().await;
        assert!(
            setup.reader.caches.lock().is_empty(),
            "nothing is left behind"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_the_time_limit_nor_at_all_after_a_failure() {
        let setup = Setup::new(0);
        let began = clock::now();
        setup.start(&["a"]).unwrap().await;
        assert!(clock::now() - began <= TIMEOUT + Duration::from_millis(1) && !setup.knows("a"));
        settle().await;
        assert!(
            setup.start(&["a"]).is_none(),
            "it is read, and no request waits for it"
        );
        setup.store.permits.add_permits(1);
        settle().await;
        assert!(setup.knows("a"));
        setup.store.permits.add_permits(1);
        setup.start(&["b"]).unwrap().await;
        assert!(setup.knows("b"), "one has worked");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_while_the_breaker_is_open() {
        let setup = Setup::new(9);
        setup
            .breaker
            .trip(ServerId::ONLY, &StoreError::Io, String::new);
        assert!(setup.start(&["a"]).is_none());
        settle().await;
        assert!(setup.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_is_read_by_itself_unless_its_server_may_not_be_asked() {
        let setup = Setup::new(1);
        let reading = setup.reader.read_field("keys".into(), Key::from("a"));
        assert_eq!(reading.unwrap().await, Ok(Some(b"7/s".to_vec())));
        let reading = setup.reader.read_field("keys".into(), Key::from("a"));
        assert_eq!(
            reading.unwrap().await,
            Err(StoreError::Timeout),
            "the store is silent"
        );
        setup
            .breaker
            .trip(ServerId::ONLY, &StoreError::Io, String::new);
        let reading = setup.reader.read_field("keys".into(), Key::from("a"));
        assert!(reading.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_reads_a_bounded_number_of_fields_and_skips_the_rest() {
        let setup = Setup::new(0);
        drop(setup.start(&["first"]));
        settle().await;
        let names: Vec<String> = (0..MAX_FIELDS + 1).map(|n| n.to_string()).collect();
        let waiting = names
            .iter()
            .filter_map(|name| setup.start(&[name.as_str()]))
            .count();
        assert_eq!(waiting, MAX_FIELDS);
        setup.store.permits.add_permits(2);
        settle().await;
        assert_eq!(setup.calls(), [1, MAX_FIELDS]);
    }
}
