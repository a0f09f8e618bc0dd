//! Decides on a request by its limits: asks the shared store, or decides in this process when there
//! is none or it is away.
//!
//! Guarantees a decision within the store's time limit, never an error: when the store fails, the
//! same request is decided locally, by each limit's `on_outage`. All that a request waits for the
//! store, for plans, permits and tokens, has one deadline. Without a store, and while the breaker
//! is open, the decision is made at once.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::algorithm::share::Share;
use crate::clock::{self, Instant};
use crate::decide::batch::batcher::Batcher;
use crate::decide::call::late_call::NoAnswer;
use crate::decide::check::{Checks, TokenChecks};
use crate::decide::decision::{DecidedBy, Decision, DecisionSource};
use crate::decide::local_decision::{self, SpentTokens};
use crate::decide::plans::cache::PlanQuery;
use crate::decide::plans::reader::PlanReader;
use crate::decide::settlement::Settler;
use crate::decide::store_client::StoreClient;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::node::permits::PermitTable;
use crate::store::fleet_share::FleetShare;
use crate::store::hash_reader::{FieldValue, HashReader};
use crate::store::memory::MemoryStore;
use crate::store::{BucketCharge, Store, StoreError};

/// Decides on requests. One per worker; clones are cheap.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_limiter::decide::limiter::Limiter;
/// use tollgate_limiter::store::memory::MemoryStore;
/// use tollgate_limiter::{Limit, RateLimitLayer, client_ip};
///
/// let limiter = Limiter::local(Arc::new(MemoryStore::new(10_000)));
/// let layer = RateLimitLayer::new(limiter, [Limit::per_second("per-client", 10).key(client_ip())])?;
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<LimiterInner>);

#[derive(Clone)]
struct LimiterInner {
    memory: Arc<MemoryStore>,
    permits: Arc<PermitTable>,
    shared: Option<Arc<Batcher>>,
    plans: Option<Arc<PlanReader>>,
    settler: Arc<Settler>,
    /// Kept as long as a clone of the limiter lives.
    _background: Option<Arc<dyn Any + Send + Sync>>,
}

/// A decision, or the wait for one.
pub enum Deciding<F> {
    Done(Decision),
    /// The store has to be asked. Nothing has happened yet: the future may be dropped, and the
    /// decision asked for again.
    Waiting(F),
}

impl<F: Future<Output = Decision>> Deciding<F> {
    /// The decision, if it is made already.
    #[inline]
    pub fn done(self) -> Option<Decision> {
        match self {
            Self::Done(decision) => Some(decision),
            Self::Waiting(_) => None,
        }
    }

    /// The decision, once it is made.
    pub async fn wait(self) -> Decision {
        match self {
            Self::Done(decision) => decision,
            Self::Waiting(deciding) => deciding.await,
        }
    }
}

impl Limiter {
    /// A limiter without a shared store: limits of this process only, shared by all clones of this
    /// limiter.
    pub fn local(memory: Arc<MemoryStore>) -> Self {
        Self::for_process(memory, Arc::default())
    }

    /// Like [`Self::local`], with buckets and permits that several limiters share: one per worker
    /// of the process.
    pub fn for_process(memory: Arc<MemoryStore>, permits: Arc<PermitTable>) -> Self {
        let settler = Arc::new(Settler::new(memory.clone(), None));
        Self(Arc::new(LimiterInner {
            memory,
            permits,
            shared: None,
            plans: None,
            settler,
            _background: None,
        }))
    }

    /// A limiter whose limits hold across all users of `store`, for a node of one worker. Metrics
    /// go to the recorder that is installed by now.
    pub fn shared(
        memory: Arc<MemoryStore>,
        store: Arc<dyn Store>,
        breaker: Arc<Breaker>,
        share: Arc<FleetShare>,
    ) -> Self {
        Self::for_node(Arc::new(Node::new(memory, breaker, share)), store)
    }

    /// Like [`Self::shared`], for one of several workers: they share `node`, and each has a `store`
    /// connection of its own.
    pub fn for_node(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        let memory = node.memory.clone();
        let permits = node.permits.clone();
        let client = Arc::new(StoreClient::new(node, store));
        let settler = Arc::new(Settler::new(memory.clone(), Some(client.clone())));
        let shared = Some(Arc::new(Batcher::new(client)));
        Self(Arc::new(LimiterInner {
            memory,
            permits,
            shared,
            plans: None,
            settler,
            _background: None,
        }))
    }

    /// Reads clients' plans from `hashes`, this worker's connection to the shared store. A limiter
    /// without a shared store reads none.
    #[must_use]
    pub fn reading_plans(self, hashes: Arc<dyn HashReader>) -> Self {
        let breaker = self.client().map(|client| client.node.breaker.clone());
        let plans = breaker.map(|breaker| Arc::new(PlanReader::new(hashes, breaker)));
        Self(Arc::new(LimiterInner {
            plans,
            ..(*self.0).clone()
        }))
    }

    /// Reads a field of a hash that operators write, over this worker's connection to the shared
    /// store and within its time limit. `None`: there is no shared store that plans are read from,
    /// or it may not be asked now.
    pub fn read_hash(
        &self,
        name: Arc<str>,
        field: Key,
    ) -> Option<BoxFuture<'static, Result<FieldValue, StoreError>>> {
        self.0.plans.as_ref()?.read_field(name, field)
    }

    /// Whether it reads plans from a shared store.
    pub(crate) fn reads_plans(&self) -> bool {
        self.0.plans.is_some()
    }

    /// Keeps `background`, such as tasks that the limiter relies on, as long as a clone of the
    /// limiter lives.
    #[must_use]
    pub fn keeping(self, background: Arc<dyn Any + Send + Sync>) -> Self {
        Self(Arc::new(LimiterInner {
            _background: Some(background),
            ..(*self.0).clone()
        }))
    }

    /// The end of all that a request waits for the store, when it begins to wait now: the store's
    /// time limit from now.
    pub fn deadline(&self) -> Instant {
        clock::now()
            + self
                .client()
                .map_or(Duration::ZERO, |client| client.timeout())
    }

    /// Starts to read plans. `Some`: a decision goes by them, so they are waited for, until
    /// `deadline` at most.
    pub fn read_plans<'q>(
        &self,
        queries: impl Iterator<Item = &'q PlanQuery>,
        deadline: Instant,
    ) -> Option<BoxFuture<'static, ()>> {
        self.0.plans.as_ref()?.start(queries, deadline)
    }

    /// Decides on a request: at once, or, where the store has to be asked, when it has answered or
    /// its time is over.
    #[inline]
    pub fn decide<'a>(
        &'a self,
        checks: &'a Checks,
    ) -> Deciding<impl Future<Output = Decision> + 'a> {
        self.decide_within(checks, None)
    }

    /// Like [`Self::decide`], for a request that has waited for the store already: it waits until
    /// `deadline` at most.
    #[inline]
    pub fn decide_by<'a>(
        &'a self,
        checks: &'a Checks,
        deadline: Instant,
    ) -> Deciding<impl Future<Output = Decision> + 'a> {
        self.decide_within(checks, Some(deadline))
    }

    #[inline]
    fn decide_within<'a>(
        &'a self,
        checks: &'a Checks,
        deadline: Option<Instant>,
    ) -> Deciding<impl Future<Output = Decision> + 'a> {
        match self.known(checks) {
            Some(decision) => Deciding::Done(decision),
            None => Deciding::Waiting(async move {
                let deadline = deadline.unwrap_or_else(|| self.deadline());
                // Boxed, like all that few requests need: the others would carry the room for it.
                if checks.permits.is_empty() {
                    self.tokens_by_store(&checks.tokens, deadline).await
                } else {
                    Box::pin(self.permits_by_store(checks, deadline)).await
                }
            }),
        }
    }

    /// The decision on a request, when the store need not be asked for it.
    #[inline]
    pub(crate) fn known(&self, checks: &Checks) -> Option<Decision> {
        if checks.permits.is_empty() {
            self.tokens_locally(&checks.tokens)
        } else {
            self.permits_locally(checks)
        }
    }

    /// The decision on tokens, when the store need not be asked for it.
    pub(crate) fn tokens_locally(&self, checks: &TokenChecks) -> Option<Decision> {
        match self.client() {
            None => Some(self.by_share(checks.charges(), Share::WHOLE)),
            Some(client) if client.is_any_away(checks) => {
                // Where only some are, the store has to be asked for the others.
                client
                    .are_all_away(checks)
                    .then(|| self.during_outage(checks, &client.node, None))
            }
            Some(_) if checks.is_empty() => Some(self.by_share(checks.charges(), Share::WHOLE)),
            Some(client) => client.known(checks),
        }
    }

    /// The decision on tokens.
    pub(crate) async fn tokens(&self, checks: &TokenChecks, deadline: Instant) -> Decision {
        match self.tokens_locally(checks) {
            Some(decision) => decision,
            None => self.tokens_by_store(checks, deadline).await,
        }
    }

    /// The decision on tokens that are not known in this process, from the store if it answers by
    /// `deadline`.
    async fn tokens_by_store(&self, checks: &TokenChecks, deadline: Instant) -> Decision {
        let Some(batcher) = &self.0.shared else {
            return self.by_share(checks.charges(), Share::WHOLE);
        };
        if batcher.client.is_any_away(checks) {
            return Box::pin(self.partly_by_store(checks, batcher, deadline)).await;
        }
        let decision = by_store(checks, batcher, deadline).await;
        decision.unwrap_or_else(|NoAnswer(late)| {
            self.during_outage(checks, batcher.node(), late.as_deref())
        })
    }

    /// The decision on a request that is known to be denied tokens, so that it need not take
    /// permits.
    pub(crate) fn known_denial(&self, checks: &TokenChecks) -> Option<Decision> {
        self.client()?.denied(checks.charges())
    }

    #[inline]
    pub(crate) fn client(&self) -> Option<&Arc<StoreClient>> {
        self.0.shared.as_ref().map(|batcher| &batcher.client)
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    pub(crate) fn permits(&self) -> &Arc<PermitTable> {
        &self.0.permits
    }

    /// Settles what requests turned out to cost.
    pub(crate) fn settler(&self) -> &Arc<Settler> {
        &self.0.settler
    }

    /// Waits until all costs that responses have told by now are charged to the store, or noted as
    /// debts.
    pub async fn settled(&self) {
        self.0.settler.idle().await;
    }

    /// Forgets what this node knows of a bucket that was reset in the store: the next request asks
    /// for it.
    pub fn forget(&self, key: &Key) {
        if let Some(client) = self.client() {
            client.node.forget(key);
        }
    }

    #[inline]
    pub(crate) fn by_share(&self, charges: &[BucketCharge], share: Share) -> Decision {
        let grant = self
            .0
            .memory
            .take_at(charges, 1, clock::monotonic_micros(), share);
        Decision::new(DecidedBy::Local, grant.units > 0, grant.at_us, grant.levels)
    }
}

/// The decision from the store, if it answers by `deadline`. A request whose time is over does not
/// ask it any more.
pub(crate) async fn by_store(
    checks: &TokenChecks,
    batcher: &Arc<Batcher>,
    deadline: Instant,
) -> Result<Decision, NoAnswer> {
    match checks.charges().iter().any(BucketCharge::is_leased) {
        _ if clock::now() >= deadline => Err(NoAnswer(None)),
        true => Box::pin(leased(checks, batcher, deadline)).await,
        false => batcher.take(checks, deadline).await,
    }
}

/// The decision where some limits are leased.
async fn leased(
    checks: &TokenChecks,
    batcher: &Arc<Batcher>,
    deadline: Instant,
) -> Result<Decision, NoAnswer> {
    let mixed = !checks.charges().iter().all(BucketCharge::is_leased);
    match if mixed {
        batcher.client.spend(checks)
    } else {
        None
    } {
        Some(spent) => from_lease_and_store(checks, spent, batcher, deadline).await,
        None => match batcher.take(checks, deadline).await {
            Ok(denied) if local_decision::lacks_leased(checks.charges(), &denied) => {
                Ok(from_lease(checks, batcher, deadline)
                    .await
                    .unwrap_or(denied))
            }
            other => other,
        },
    }
}

/// Tries tokens taken ahead after a denial: the bucket may lack the very tokens that this node was
/// just taking.
async fn from_lease(
    checks: &TokenChecks,
    batcher: &Arc<Batcher>,
    deadline: Instant,
) -> Option<Decision> {
    let spent = batcher.client.spend(checks)?;
    if checks.charges().iter().all(BucketCharge::is_leased) {
        return Some(local_decision::paid(&spent));
    }
    from_lease_and_store(checks, spent, batcher, deadline)
        .await
        .ok()
}

/// Leased limits from tokens taken ahead, the others from the store.
async fn from_lease_and_store(
    checks: &TokenChecks,
    spent: SpentTokens,
    batcher: &Arc<Batcher>,
    deadline: Instant,
) -> Result<Decision, NoAnswer> {
    let exact = checks.filtered(|charge, _| !charge.is_leased());
    let uncommitted = UncommittedTokens {
        client: &batcher.client,
        charges: checks.charges(),
        spent,
    };
    let decision = batcher.take(&exact, deadline).await?;
    if decision.granted && !uncommitted.is_valid(clock::monotonic_micros()) {
        // This process was stopped meanwhile. The charge of the exact limits is lost, which is
        // better than spending tokens too late.
        return batcher.take(checks, deadline).await;
    }
    let mut levels = decision.levels.iter().copied();
    let levels = uncommitted
        .spent
        .iter()
        .map(|spent| spent.map_or_else(|| levels.next().unwrap_or_default(), |spent| spent.level))
        .collect();
    let mut places = 0..;
    let sources: Vec<_> = uncommitted
        .spent
        .iter()
        .map(|spent| match spent {
            Some(spent) => DecisionSource {
                decided_by: DecidedBy::Lease,
                taken_at_us: spent.source.taken_at_us,
                counted: true,
            },
            None => decision.source(places.next().unwrap_or_default()),
        })
        .collect();
    if decision.granted {
        uncommitted.commit();
    }
    Ok(Decision { levels, ..decision }.with_sources(sources))
}

/// Tokens taken ahead that are spent while the store is asked for the other limits. They return to
/// the lease unless they are committed, also when the request is dropped.
struct UncommittedTokens<'a> {
    client: &'a Arc<StoreClient>,
    charges: &'a [BucketCharge],
    spent: SpentTokens,
}

impl UncommittedTokens<'_> {
    fn is_valid(&self, now_us: u64) -> bool {
        self.charges
            .iter()
            .zip(&self.spent)
            .filter_map(|(charge, spent)| {
                Some(spent.as_ref()?.source.sent_us + charge.quota.lease_us())
            })
            .all(|end_us| now_us <= end_us)
    }

    fn commit(mut self) {
        self.spent.clear();
    }
}

impl Drop for UncommittedTokens<'_> {
    fn drop(&mut self) {
        self.client.give_back(self.charges, &self.spent);
    }
}

#[cfg(test)]
mod tests;
