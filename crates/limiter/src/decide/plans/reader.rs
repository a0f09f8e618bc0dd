//! Reads plans that nobody has read lately.
//!
//! Of each hash one call is in flight at a time; what is asked for meanwhile goes together with the next one, each value
//! once, however many requests need it. Guarantees that nobody waits longer than the store's time limit, that nobody waits
//! and nothing is sent while the breaker is open, and that after a reading that failed nobody waits until one has worked.
//! Refuses to know requests, and what a plan is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::clock;
use crate::decide::plans::cache::{PlanCache, PlanQuery};
use crate::limit::key::Key;
use crate::node::breaker::Breaker;
use crate::store::hash_reader::HashReader;

/// Values read in one call. What comes beyond, while that many are waiting already, does without: the next request that
/// needs it asks again.
const MOST: usize = 1_024;

/// One worker's way to the plans of the shared store.
pub struct PlanReader {
    hashes: Arc<dyn HashReader>,
    breaker: Arc<Breaker>,
    /// By the address of the cache, which is kept there as long as the line is.
    lines: Mutex<HashMap<usize, Line>>,
}

/// Those who want something of one hash.
#[derive(Default)]
struct Line {
    in_flight: Option<Round>,
    next: Option<Round>,
    driver: Option<JoinHandle<()>>,
}

/// Values of one call.
struct Round {
    fields: HashSet<Key>,
    /// Dropped when the call is over, whatever came of it: those who wait are told by that.
    over: watch::Sender<()>,
}

/// The end of a call.
type Over = watch::Receiver<()>;

impl PlanReader {
    pub fn new(hashes: Arc<dyn HashReader>, breaker: Arc<Breaker>) -> Self {
        Self { hashes, breaker, lines: Mutex::default() }
    }

    /// Starts to read. `Some`: those that a decision goes by, to be waited for, or what can be had of them in time.
    pub(crate) fn start<'q>(
        self: &Arc<Self>,
        queries: impl Iterator<Item = &'q PlanQuery>,
    ) -> Option<BoxFuture<'static, ()>> {
        let mut overs: Vec<Over> = Vec::new();
        for query in queries {
            let over = self.board(query);
            overs.extend(over.filter(|_| query.is_awaited()));
        }
        let patience = self.hashes.timeout();
        (!overs.is_empty()).then(|| until_over(overs, patience).boxed())
    }

    /// Reads all of them, as long as that takes within the time limit.
    pub async fn read(self: &Arc<Self>, lookups: &[PlanQuery]) {
        let overs = lookups.iter().filter_map(|lookup| self.board(lookup)).collect();
        until_over(overs, self.hashes.timeout()).await;
    }

    /// The end of the call that will tell.
    fn board(self: &Arc<Self>, lookup: &PlanQuery) -> Option<Over> {
        let PlanQuery { cache, field, .. } = lookup;
        if self.breaker.is_open() {
            cache.skip();
            return None;
        }
        let mut lines = self.lines.lock();
        let line = lines.entry(Arc::as_ptr(cache).addr()).or_default();
        let going = [&line.in_flight, &line.next].into_iter().flatten();
        if let Some(round) = going.into_iter().find(|round| round.fields.contains(field)) {
            return Some(round.over.subscribe());
        }
        let round = line.next.get_or_insert_with(|| Round { fields: HashSet::new(), over: watch::Sender::new(()) });
        if round.fields.len() >= MOST {
            cache.skip();
            return None;
        }
        round.fields.insert(field.clone());
        let over = round.over.subscribe();
        // One that ended without saying so died of a bug, and must not hold up the others.
        if line.driver.as_ref().is_none_or(JoinHandle::is_finished) {
            line.driver = Some(Handle::try_current().ok()?.spawn(drive(self.clone(), cache.clone())));
        }
        Some(over)
    }

    /// Sees the round in flight end and the next one off. `None`: nobody waits.
    fn depart(&self, cache: &Arc<PlanCache>) -> Option<Vec<Key>> {
        let (mut lines, place) = (self.lines.lock(), Arc::as_ptr(cache).addr());
        let line = lines.get_mut(&place)?;
        line.in_flight = line.next.take().filter(|_| !self.breaker.is_open());
        let Some(round) = &line.in_flight else {
            lines.remove(&place);
            return None;
        };
        Some(round.fields.iter().cloned().collect())
    }
}

async fn drive(reader: Arc<PlanReader>, cache: Arc<PlanCache>) {
    while let Some(fields) = reader.depart(&cache) {
        let sent_us = clock::monotonic_micros();
        match reader.hashes.read(cache.hash(), &fields).await {
            Ok(texts) => cache.learn(fields.into_iter().zip(texts), sent_us),
            Err(error) => cache.fail(&error, fields.len(), sent_us),
        }
    }
}

async fn until_over(overs: Vec<Over>, patience: Duration) {
    let deadline = clock::now() + patience;
    let all = join_all(overs.into_iter().map(|mut over| async move { drop(over.changed().await) }));
    // Whoever waits in vain goes on with what there is.
    let _ = timeout_at(deadline, all).await;
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::decide::plans::cache::PlanCaches;
    use crate::limit::algorithm_kind::AlgorithmKind;
    use crate::store::StoreError;
    use crate::store::hash_reader::FieldValue;

    const TIMEOUT: Duration = Duration::from_millis(20);

    /// Every field has a plan, which is told once the test lets it be.
    struct Shop {
        calls: Mutex<Vec<Vec<Key>>>,
        permits: Semaphore,
    }

    impl HashReader for Shop {
        fn read<'a>(&'a self, _: &'a str, fields: &'a [Key]) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>> {
            self.calls.lock().push(fields.to_vec());
            Box::pin(async move {
                let permit = tokio::time::timeout(TIMEOUT, self.permits.acquire()).await;
                permit.map_err(|_| StoreError::Timeout)?.map_err(|_| StoreError::Io)?.forget();
                Ok(fields.iter().map(|_| Some(b"7/s".to_vec())).collect())
            })
        }

        fn timeout(&self) -> Duration {
            TIMEOUT
        }
    }

    struct Setup {
        shop: Arc<Shop>,
        breaker: Arc<Breaker>,
        reader: Arc<PlanReader>,
        cache: Arc<PlanCache>,
    }

    impl Setup {
        fn new(permits: usize) -> Self {
            let shop = Arc::new(Shop { calls: Mutex::default(), permits: Semaphore::new(permits) });
            let breaker = Arc::new(Breaker::new());
            let reader = Arc::new(PlanReader::new(shop.clone(), breaker.clone()));
            Self { shop, breaker, reader, cache: PlanCaches::default().of(&"plans".into(), AlgorithmKind::TokenBucket) }
        }

        /// Starts as for a request that goes by the plans of these values.
        fn start(&self, values: &[&str]) -> Option<BoxFuture<'static, ()>> {
            let query = |field: &&str| PlanQuery { cache: self.cache.clone(), field: Key::from(*field), urgent: true };
            let queries: Vec<_> = values.iter().map(query).collect();
            self.reader.start(queries.iter())
        }

        fn knows(&self, value: &str) -> bool {
            self.cache.plan(&Key::from(value)).is_some()
        }

        /// How many values each call was for.
        fn calls(&self) -> Vec<usize> {
            self.shop.calls.lock().iter().map(Vec::len).collect()
        }
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_while_a_call_is_in_flight_go_together_and_each_value_goes_once() {
        let setup = Setup::new(0);
        let first = setup.start(&["a", "b"]).unwrap();
        settle().await;
        let same = setup.start(&["a"]).unwrap();
        let others = [setup.start(&["c", "d"]), setup.start(&["d"]), setup.start(&["a", "e"])];
        settle().await;
        assert_eq!(setup.calls(), [2]);
        setup.shop.permits.add_permits(1);
        first.await;
        same.await;
        assert!(setup.knows("a") && setup.knows("b") && !setup.knows("c"));
        setup.shop.permits.add_permits(1);
        for other in others {
            other.unwrap().await;
        }
        assert_eq!(setup.calls(), [2, 3]);
        assert!(["c", "d", "e"].iter().all(|value| setup.knows(value)));
        settle().await;
        assert!(setup.reader.lines.lock().is_empty(), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_time_limit_nor_at_all_after_a_failure() {
        let setup = Setup::new(0);
        let began = clock::now();
        setup.start(&["a"]).unwrap().await;
        assert!(clock::now() - began <= TIMEOUT + Duration::from_millis(1) && !setup.knows("a"));
        settle().await;
        assert!(setup.start(&["a"]).is_none(), "it is read, and nobody waits for it");
        setup.shop.permits.add_permits(1);
        settle().await;
        assert!(setup.knows("a"));
        setup.shop.permits.add_permits(1);
        setup.start(&["b"]).unwrap().await;
        assert!(setup.knows("b"), "one has worked");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_while_the_breaker_is_open() {
        let setup = Setup::new(9);
        setup.breaker.failed(&StoreError::Io, 5);
        assert!(setup.start(&["a"]).is_none());
        settle().await;
        assert!(setup.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_a_bounded_number_of_values_and_the_rest_does_without() {
        let setup = Setup::new(0);
        drop(setup.start(&["first"]));
        settle().await;
        let names: Vec<String> = (0..MOST + 1).map(|n| n.to_string()).collect();
        let waiting = names.iter().filter_map(|name| setup.start(&[name.as_str()])).count();
        assert_eq!(waiting, MOST);
        setup.shop.permits.add_permits(2);
        settle().await;
        assert_eq!(setup.calls(), [1, MOST]);
    }
}
