//! Judges a request by its limits: asks the shared store, or decides in this process when there is none or it is away.
//!
//! Guarantees an answer, within the store's time limit, never an error: when the store fails, the same request is decided
//! locally, by each limit's `on_outage`. Without a store, and while the breaker is open, no future is needed and nothing
//! waits. Refuses to know requests, headers and how the store is reached.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::share::Share;
use crate::clock;
use crate::decide::batch::Batcher;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::local_decision::SpentTokens;
use crate::decide::plans::reader::PlanReader;
use crate::decide::settlement::Settler;
use crate::decide::store_client::StoreClient;
use crate::decide::{concurrency as slotted, local_decision as shortcut};
use crate::limit::key::Key;
use crate::limit::spec::OnOutage;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::node::fleet_share::FleetShare;
use crate::node::lease::Spent;
use crate::node::permits::PermitTable;
use crate::request::rule_set::Wanted;
use crate::store::fields::HashReader;
use crate::store::memory::MemoryStore;
use crate::store::{self, Ask, Levels, Store};

/// When to ask again for a limit that denies while the store is away. It is probed several times a second.
const OUTAGE_RETRY_US: u64 = 1_000_000;

/// One per worker; clones are cheap.
#[derive(Clone)]
pub struct Limiter {
    memory: Arc<MemoryStore>,
    pub(crate) slots: Arc<PermitTable>,
    pub(crate) shared: Option<Arc<Batcher>>,
    plans: Option<Arc<PlanReader>>,
    settler: Arc<Settler>,
}

impl Limiter {
    /// Limits of this process only, for all clones of this limiter.
    pub fn local(memory: Arc<MemoryStore>) -> Self {
        Self::of_process(memory, Arc::default())
    }

    /// The same for one of several workers, who have both together.
    pub fn of_process(memory: Arc<MemoryStore>, slots: Arc<PermitTable>) -> Self {
        let settler = Arc::new(Settler::new(memory.clone(), None));
        Self { memory, slots, shared: None, plans: None, settler }
    }

    /// Limits that hold across all users of `store`, for a node of one worker. Metrics go to the recorder that is
    /// installed by now.
    pub fn shared(
        memory: Arc<MemoryStore>,
        store: Arc<dyn Store>,
        breaker: Arc<Breaker>,
        share: Arc<FleetShare>,
    ) -> Self {
        Self::of_node(Arc::new(Node::new(memory, breaker, share)), store)
    }

    /// The same for one of several workers: the node is theirs together, `store` is this worker's own.
    pub fn of_node(node: Arc<Node>, store: Arc<dyn Store>) -> Self {
        let (memory, slots) = (node.memory.clone(), node.slots.clone());
        let caller = Arc::new(StoreClient::new(node, store));
        let settler = Arc::new(Settler::new(memory.clone(), Some(caller.clone())));
        Self { memory, slots, shared: Some(Arc::new(Batcher::new(caller))), plans: None, settler }
    }

    /// The same with plans read from `fields`, this worker's way to the shared store. Without a shared store, no plans
    /// are read.
    #[must_use]
    pub fn reading_plans(mut self, fields: Arc<dyn HashReader>) -> Self {
        let reader = |shared: &Arc<Batcher>| Arc::new(PlanReader::new(fields, shared.node().breaker.clone()));
        self.plans = self.shared.as_ref().map(reader);
        self
    }

    /// Starts to read the plans that an asking lacks. `Some`: a decision goes by them, so they are waited for, at most for
    /// the store's time limit; then [`crate::request::rule_set::RuleSet::take_in`] has it go by what came of that.
    pub fn read_plans(&self, wanted: &[Wanted]) -> Option<BoxFuture<'static, ()>> {
        self.plans.as_ref()?.start(wanted)
    }

    /// The verdict, when no store has to be asked for it: without a future, without waiting.
    pub fn decide_now(&self, asks: &[Ask]) -> Option<Decision> {
        if slotted::needs_slots(asks) { self.slotted_now(asks) } else { self.tokens_now(asks) }
    }

    /// The verdict, from the store if it decides in time.
    pub async fn decide(&self, asks: &[Ask]) -> Decision {
        // Boxed, like all that few requests need: the others would carry the room for it.
        if slotted::needs_slots(asks) { Box::pin(self.slotted(asks)).await } else { self.tokens(asks).await }
    }

    /// The same where no limit counts requests in flight.
    pub(crate) fn tokens_now(&self, asks: &[Ask]) -> Option<Decision> {
        match &self.shared {
            None => Some(self.by_share(asks, Share::WHOLE)),
            Some(shared) if shared.node().breaker.is_open() => Some(self.during_outage(asks, shared.node())),
            Some(_) if asks.is_empty() => Some(self.by_share(asks, Share::WHOLE)),
            Some(shared) => shared.caller.known(asks),
        }
    }

    /// The same where no limit counts requests in flight.
    pub(crate) async fn tokens(&self, asks: &[Ask]) -> Decision {
        if let Some(verdict) = self.tokens_now(asks) {
            return verdict;
        }
        let Some(shared) = &self.shared else { return self.by_share(asks, Share::WHOLE) };
        let verdict = match asks.iter().any(shortcut::is_leased) {
            true => Box::pin(leased(asks, shared)).await,
            false => shared.take(asks).await,
        };
        verdict.unwrap_or_else(|| self.during_outage(asks, shared.node()))
    }

    /// Who settles what requests turned out to cost.
    pub(crate) fn settler(&self) -> &Arc<Settler> {
        &self.settler
    }

    /// Waits until what was told of costs up to now is settled, or is owed.
    pub async fn settled(&self) {
        self.settler.idle().await;
    }

    /// Forgets what this node knows of a bucket that was reset in the store: the next request asks for it.
    pub fn forget(&self, key: &Key) {
        if let Some(shared) = &self.shared {
            shared.node().forget(key);
        }
    }

    fn by_share(&self, asks: &[Ask], share: Share) -> Decision {
        let grant = self.memory.take_at(asks, 1, clock::monotonic_micros(), share);
        Decision::new(DecidedBy::Local, grant.units > 0, grant.at_us, grant.levels)
    }

    fn during_outage(&self, asks: &[Ask], node: &Node) -> Decision {
        let share = node.share.get();
        if asks.iter().all(|ask| ask.on_outage == OnOutage::Local) {
            let verdict = self.by_share(asks, share);
            if verdict.granted {
                incur(asks, &verdict.levels, share, node);
            }
            return verdict;
        }
        let denied = asks.iter().any(|ask| ask.on_outage == OnOutage::Deny);
        let local: SmallVec<[Ask; 4]> = asks.iter().filter(|ask| ask.on_outage == OnOutage::Local).cloned().collect();
        // No units: a look that charges nothing.
        let units = if denied { 0 } else { 1 };
        let grant = self.memory.take_at(&local, units, clock::monotonic_micros(), share);
        if grant.units > 0 {
            incur(&local, &grant.levels, share, node);
        }
        let taken_at_us = grant.at_us;
        let mut levels = grant.levels.into_iter();
        let levels: Levels = asks
            .iter()
            .filter_map(|ask| match ask.on_outage {
                OnOutage::Local => levels.next(),
                OnOutage::Allow => Some(uncounted(ask)),
                OnOutage::Deny => Some(DENIED),
            })
            .collect();
        Decision::new(DecidedBy::Local, !denied && grant.units > 0, taken_at_us, levels)
    }
}

/// The verdict where some limits are leased.
async fn leased(asks: &[Ask], shared: &Arc<Batcher>) -> Option<Decision> {
    let mixed = !asks.iter().all(shortcut::is_leased);
    match if mixed { shared.caller.hold(asks) } else { None } {
        Some(held) => by_both(asks, held, shared).await,
        None => match shared.take(asks).await {
            Some(denied) if shortcut::lacks_leased(asks, &denied) => from_stock(asks, shared).await.or(Some(denied)),
            other => other,
        },
    }
}

/// What the buckets lack may be what this node was about to take ahead, and has by now: if that is enough to pass.
async fn from_stock(asks: &[Ask], shared: &Arc<Batcher>) -> Option<Decision> {
    let held = shared.caller.hold(asks)?;
    if asks.iter().all(shortcut::is_leased) {
        return Some(shortcut::paid(&held));
    }
    by_both(asks, held, shared).await
}

/// Leased limits from stock, the others from the store.
async fn by_both(asks: &[Ask], held: SpentTokens, shared: &Arc<Batcher>) -> Option<Decision> {
    let exact: SmallVec<[Ask; 2]> = asks.iter().filter(|ask| !shortcut::is_leased(ask)).cloned().collect();
    let stock = Pledge { caller: &shared.caller, asks, held };
    let asked = shared.take(&exact).await?;
    if asked.granted && !stock.is_good(clock::monotonic_micros()) {
        // This process was stopped meanwhile. What the exact limits charged is lost: better than spending what is late.
        return shared.take(asks).await;
    }
    let mut levels = asked.levels.iter().copied();
    let level = |spent: &Option<Spent>| spent.map_or_else(|| levels.next().unwrap_or_default(), |spent| spent.level);
    let levels = stock.held.iter().map(level).collect();
    let sources = stock.held.iter().flatten().map(|spent| spent.source.taken_at_us);
    let taken_at_us = sources.fold(asked.taken_at_us, u64::min);
    if asked.granted {
        stock.spend();
    }
    Some(Decision { levels, taken_at_us, ..asked })
}

/// Tokens held while the store is asked for the rest. They return to the stock, also when the request is dropped, unless
/// they are spent.
struct Pledge<'a> {
    caller: &'a Arc<StoreClient>,
    asks: &'a [Ask],
    held: SpentTokens,
}

impl Pledge<'_> {
    fn is_good(&self, now_us: u64) -> bool {
        let end = |(ask, spent): (&Ask, &Option<Spent>)| Some(spent.as_ref()?.source.sent_us + ask.quota.lease_us());
        self.asks.iter().zip(&self.held).filter_map(end).all(|end_us| now_us <= end_us)
    }

    fn spend(mut self) {
        self.held.clear();
    }
}

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        self.caller.put_back(self.asks, &self.held);
    }
}

/// What was granted without the store is owed to it. Limits that let everything pass meanwhile owe nothing.
fn incur(asks: &[Ask], levels: &[Level], share: Share, node: &Node) {
    let now_us = clock::monotonic_micros();
    for (ask, level) in asks.iter().zip(levels) {
        let Some(part) = share.of(ask.key.as_bytes(), ask.quota, ask.largest_cost) else { continue };
        // The local bucket before this charge: if nothing is owed yet, that is what the store knew.
        let charge_us = part.flow_us(store::cost_of(asks, ask));
        let known_us = level.reset_after_us.saturating_sub(charge_us);
        node.debts.incur(ask, part.parts_of(ask.quota), known_us, node.memory.moment(ask.quota, now_us));
    }
}

/// A limit that denies while the store is away.
const DENIED: Level = Level { remaining: 0, retry_after_us: OUTAGE_RETRY_US, reset_after_us: OUTAGE_RETRY_US };

/// A limit that lets everything pass while the store is away.
fn uncounted(ask: &Ask) -> Level {
    Level { remaining: ask.quota.burst(), retry_after_us: 0, reset_after_us: 0 }
}
