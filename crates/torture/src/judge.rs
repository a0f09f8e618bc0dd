//! Whether a limit was kept, judged from outside: by what was admitted and when, and nothing else.
//!
//! An admission happened somewhere between its question and its answer, nobody outside knows where. So a window is charged
//! only with admissions that were asked *and* answered within it: those happened in it wherever they happened. Guarantees
//! that a limiter which keeps its limit is never accused, and that an accusation names a window to count in. What it
//! cannot see is bounded by the rate times the latencies at the window's two edges. Integers throughout.

use serde::Serialize;

use crate::plan::Limit;

/// One request that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub key: u32,
    /// Tokens.
    pub cost: u64,
    /// It was let through not before, in microseconds of one clock.
    pub asked_us: u64,
    /// And not after. At least `asked_us`.
    pub answered_us: u64,
}

/// Tokens that the limiter's terms concede to every window that overlaps a time, to each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concession {
    pub from_us: u64,
    pub to_us: u64,
    pub tokens: u64,
}

/// What a trace of admissions says of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Tokens admitted in all.
    pub admitted: u64,
    /// Tokens over the bound in the worst window; 0: the promise was kept.
    pub over: u64,
    /// The window that proves it.
    pub worst: Option<Window>,
}

/// A window in which a key had more than the bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    pub key: u32,
    pub from_us: u64,
    pub to_us: u64,
    /// Tokens admitted within it for certain.
    pub admitted: u64,
    /// Whole tokens that the limit and its concessions allow there.
    pub allowed: u64,
}

/// Judges every window of every key: in O(n log n).
pub fn judge(admissions: &[Admission], limit: &Limit, concessions: &[Concession]) -> Judgement {
    let mut sorted = admissions.to_vec();
    sorted.sort_unstable_by_key(|admission| (admission.key, std::cmp::Reverse(admission.asked_us)));
    let mut judgement = Judgement { admitted: admissions.iter().map(|one| one.cost).sum(), ..Judgement::default() };
    let mut worst = 0;
    for of_one_key in sorted.chunk_by(|a, b| a.key == b.key) {
        let Some(found) = worst_window(of_one_key, limit, concessions) else { continue };
        if found.excess > worst {
            worst = found.excess;
            judgement.over = tokens(found.excess.unsigned_abs().div_ceil(limit.period()));
            judgement.worst = Some(found.window(of_one_key, limit, concessions));
        }
    }
    judgement
}

/// The same admissions as if each had happened when its answer arrived. A client that counts so may find more than the bound
/// although it was kept, as answers that took longer meet those that did not.
pub fn as_answered(admissions: &[Admission]) -> Vec<Admission> {
    admissions.iter().map(|one| Admission { asked_us: one.answered_us, ..*one }).collect()
}

/// The window with the largest excess.
struct Found {
    from_us: u64,
    to_us: u64,
    /// Over the bound, in tokens times the rate's period.
    excess: i128,
}

/// What counts in the windows that begin no later than `from_us` and end no earlier than `to_us`: an admission, or with its
/// sign turned, and its times as well, a concession.
struct Weight {
    from_us: u64,
    to_us: u64,
    amount: i128,
    is_admission: bool,
}

/// Moves the window's beginning back over the questions, latest first, and keeps for every answer the excess of the window
/// that ends there.
fn worst_window(admissions: &[Admission], limit: &Limit, concessions: &[Concession]) -> Option<Found> {
    let mut ends: Vec<u64> = admissions.iter().map(|one| one.answered_us).collect();
    ends.sort_unstable();
    ends.dedup();
    let origin = *ends.first()?;
    let (period, rate) = (signed(limit.period()), signed(limit.tokens()));
    let mut windows = Windows::new(ends.iter().map(|end| -rate * i128::from(end - origin)).collect());
    let mut worst: Option<Found> = None;
    for weight in weights(admissions, concessions, period) {
        let end = ends.partition_point(|end| *end < weight.to_us);
        windows.add(end..ends.len(), weight.amount);
        if !weight.is_admission {
            continue;
        }
        windows.open(end);
        let (end, value) = windows.largest();
        let begin = i128::from(weight.from_us) - i128::from(origin);
        let excess = value + rate * begin - signed(u128::from(limit.burst.get())) * period;
        if worst.as_ref().is_none_or(|found| excess > found.excess) {
            worst = Some(Found { from_us: weight.from_us, to_us: ends[end], excess });
        }
    }
    worst
}

/// Latest beginning first; concessions before the admissions that they excuse.
fn weights(admissions: &[Admission], concessions: &[Concession], period: i128) -> Vec<Weight> {
    let of_admission = |one: &Admission| Weight {
        from_us: one.asked_us,
        to_us: one.answered_us,
        amount: i128::from(one.cost) * period,
        is_admission: true,
    };
    // A window overlaps it when it begins before the end and ends after the beginning.
    let of_concession = |one: &Concession| Weight {
        from_us: one.to_us,
        to_us: one.from_us,
        amount: -i128::from(one.tokens) * period,
        is_admission: false,
    };
    let mut all: Vec<Weight> =
        admissions.iter().map(of_admission).chain(concessions.iter().map(of_concession)).collect();
    all.sort_by_key(|weight| (std::cmp::Reverse(weight.from_us), weight.is_admission));
    all
}

impl Found {
    fn window(&self, admissions: &[Admission], limit: &Limit, concessions: &[Concession]) -> Window {
        let within = admissions.iter().filter(|one| one.asked_us >= self.from_us && one.answered_us <= self.to_us);
        let overlapping = concessions.iter().filter(|one| one.from_us <= self.to_us && one.to_us >= self.from_us);
        let conceded: u64 = overlapping.map(|one| one.tokens).sum();
        Window {
            key: admissions.first().map_or(0, |one| one.key),
            from_us: self.from_us,
            to_us: self.to_us,
            admitted: within.map(|one| one.cost).sum(),
            allowed: limit.bound(self.to_us - self.from_us).saturating_add(conceded),
        }
    }
}

fn signed(number: u128) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX)
}

fn tokens(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A value for each possible end of a window, as a tree of maxima: a range grows, and the largest is found, in O(log n).
struct Windows {
    leaves: usize,
    /// Largest value below each node, without what its ancestors add.
    largest: Vec<i128>,
    added: Vec<i128>,
}

/// What keeps an end out that no window of the current beginnings has: more than any value can make up for.
const CLOSED: i128 = 1 << 120;

impl Windows {
    fn new(values: Vec<i128>) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut largest = vec![-2 * CLOSED; 2 * leaves];
        for (leaf, value) in values.into_iter().enumerate() {
            largest[leaves + leaf] = value - CLOSED;
        }
        for node in (1..leaves).rev() {
            largest[node] = largest[2 * node].max(largest[2 * node + 1]);
        }
        Self { leaves, largest, added: vec![0; 2 * leaves] }
    }

    /// From now on windows may end there.
    fn open(&mut self, leaf: usize) {
        let (mut node, mut value) = (self.leaves + leaf, self.largest[self.leaves + leaf]);
        while node > 1 {
            node /= 2;
            value += self.added[node];
        }
        if value < -CLOSED / 2 {
            self.add(leaf..leaf + 1, CLOSED);
        }
    }

    fn add(&mut self, range: std::ops::Range<usize>, amount: i128) {
        self.add_below(1, 0..self.leaves, &range, amount);
    }

    fn add_below(&mut self, node: usize, span: std::ops::Range<usize>, range: &std::ops::Range<usize>, amount: i128) {
        if range.end <= span.start || span.end <= range.start {
            return;
        }
        if range.start <= span.start && span.end <= range.end {
            self.largest[node] += amount;
            self.added[node] += amount;
            return;
        }
        let middle = span.start.midpoint(span.end);
        self.add_below(2 * node, span.start..middle, range, amount);
        self.add_below(2 * node + 1, middle..span.end, range, amount);
        self.largest[node] = self.largest[2 * node].max(self.largest[2 * node + 1]) + self.added[node];
    }

    fn largest(&self) -> (usize, i128) {
        let mut node = 1;
        while node < self.leaves {
            node = if self.largest[2 * node] >= self.largest[2 * node + 1] { 2 * node } else { 2 * node + 1 };
        }
        (node - self.leaves, self.largest[1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(tokens: u64, burst: u64) -> Limit {
        Limit::per_second(tokens, burst)
    }

    fn at(asked_us: u64, answered_us: u64) -> Admission {
        Admission { key: 0, cost: 1, asked_us, answered_us }
    }

    #[test]
    fn a_burst_and_its_refill_are_kept_and_one_more_is_not() {
        // 10/s, burst 2: two at once, the third 100 ms later.
        let kept = [at(0, 0), at(0, 0), at(100_000, 100_000)];
        assert_eq!(judge(&kept, &limit(10, 2), &[]), Judgement { admitted: 3, over: 0, worst: None });
        let early = [at(0, 0), at(0, 0), at(99_999, 99_999)];
        let judgement = judge(&early, &limit(10, 2), &[]);
        assert_eq!(judgement.over, 1);
        assert_eq!(judgement.worst, Some(Window { key: 0, from_us: 0, to_us: 99_999, admitted: 3, allowed: 2 }));
    }

    #[test]
    fn a_single_request_too_many_is_found_anywhere_in_a_full_trace() {
        // 1000/s, burst 5, taken to the full; each is answered at once.
        let full: Vec<Admission> = (0..5).map(|_| at(0, 0)).chain((1..500).map(|n| at(n * 1_000, n * 1_000))).collect();
        assert_eq!(judge(&full, &limit(1_000, 5), &[]).over, 0);
        for place in [0, 3, 250, 503] {
            let mut trace = full.clone();
            trace.push(full[place]);
            assert_eq!(judge(&trace, &limit(1_000, 5), &[]).over, 1, "at {place}");
        }
    }

    #[test]
    fn an_answer_that_was_late_is_no_accusation() {
        // The third may have happened as late as its answer.
        let slow = [at(0, 0), at(0, 0), at(50_000, 100_000)];
        assert_eq!(judge(&slow, &limit(10, 2), &[]).over, 0);
        assert_eq!(judge(&as_answered(&slow), &limit(10, 2), &[]).over, 0);
        // Answers that arrive together tell nothing of when they were given.
        let together = [at(0, 300_000), at(100_000, 300_000), at(200_000, 300_000), at(250_000, 300_000)];
        assert_eq!(judge(&together, &limit(10, 2), &[]).over, 0);
        assert_eq!(judge(&as_answered(&together), &limit(10, 2), &[]).over, 2);
    }

    #[test]
    fn keys_are_judged_each_for_itself() {
        let two = [at(0, 0), Admission { key: 1, ..at(0, 0) }];
        assert_eq!(judge(&two, &limit(10, 1), &[]).over, 0);
        let three = [at(0, 0), Admission { key: 7, cost: 3, ..at(5, 5) }];
        assert_eq!(judge(&three, &limit(10, 1), &[]).worst.map(|window| window.key), Some(7));
    }

    #[test]
    fn a_concession_excuses_the_windows_that_overlap_it_and_no_others() {
        let trace = [at(0, 0), at(10, 10), at(500_000, 500_000), at(500_010, 500_010)];
        let limit = limit(1, 1);
        let conceded = |from_us, to_us| judge(&trace, &limit, &[Concession { from_us, to_us, tokens: 1 }]).over;
        assert_eq!(judge(&trace, &limit, &[]).over, 3);
        assert_eq!(conceded(0, 600_000), 2);
        assert_eq!(conceded(10, 500_000), 2);
        assert_eq!(conceded(501_000, 502_000), 3);
        let both = [(0, 10), (500_000, 500_010)].map(|(from_us, to_us)| Concession { from_us, to_us, tokens: 3 });
        assert_eq!(judge(&trace, &limit, &both).over, 0);
    }

    /// By definition: every window from a question to an answer.
    fn by_counting(admissions: &[Admission], limit: &Limit, concessions: &[Concession]) -> u64 {
        let mut over = 0;
        for from in admissions {
            for to in admissions.iter().filter(|to| to.answered_us >= from.asked_us) {
                let (x, y) = (from.asked_us, to.answered_us);
                let within = admissions.iter().filter(|one| one.asked_us >= x && one.answered_us <= y);
                let admitted: u64 = within.map(|one| one.cost).sum();
                let overlapping = concessions.iter().filter(|one| one.from_us <= y && one.to_us >= x);
                let conceded: u64 = overlapping.map(|one| one.tokens).sum();
                over = over.max(admitted.saturating_sub(limit.bound(y - x) + conceded));
            }
        }
        over
    }

    /// What a token bucket admits of a random demand, each with a question before and an answer after it.
    fn conforming(limit: &Limit, steps: &[(u64, u64, u64, u64)]) -> Vec<Admission> {
        let bucket = crate::due::Bucket::default();
        let mut now = 1_000_000;
        let mut trace = Vec::new();
        for (wait, cost, before, after) in steps {
            now += wait;
            if bucket.take(limit, *cost, now) {
                trace.push(Admission { key: 0, cost: *cost, asked_us: now - before, answered_us: now + after });
            }
        }
        trace
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
        prop::collection::vec((0_u64..40_000, 1_u64..4, 0_u64..30_000, 0_u64..30_000), 1..120)
    }

    proptest! {
        #[test]
        fn a_limiter_that_keeps_its_limit_is_never_accused(steps in steps(), tokens in 1_u64..500, burst in 1_u64..20) {
            let limit = limit(tokens, burst);
            prop_assert_eq!(judge(&conforming(&limit, &steps), &limit, &[]).over, 0);
        }

        #[test]
        fn one_request_too_many_is_found_where_it_fits_no_window(
            steps in steps(), tokens in 1_u64..500, burst in 1_u64..20, place in 0_usize..120,
        ) {
            let limit = limit(tokens, burst);
            let mut trace = conforming(&limit, &steps);
            prop_assume!(!trace.is_empty());
            let beside = trace[place % trace.len()];
            trace.push(Admission { cost: burst + 1, ..beside });
            let width = beside.answered_us - beside.asked_us;
            // What refills between the question and the answer may have paid for it.
            prop_assume!(limit.bound(width) < burst + 1 + beside.cost);
            prop_assert!(judge(&trace, &limit, &[]).over > 0);
        }

        #[test]
        fn the_worst_window_is_the_one_that_counting_finds(
            trace in prop::collection::vec((0_u64..300_000, 0_u64..60_000, 1_u64..4), 1..40),
            concessions in prop::collection::vec((0_u64..300_000, 0_u64..60_000, 1_u64..6), 0..3),
            tokens in 1_u64..100,
            burst in 1_u64..8,
        ) {
            let limit = limit(tokens, burst);
            let trace: Vec<Admission> = trace
                .into_iter()
                .map(|(asked_us, took, cost)| Admission { key: 0, cost, asked_us, answered_us: asked_us + took })
                .collect();
            let concessions: Vec<Concession> = concessions
                .into_iter()
                .map(|(from_us, took, tokens)| Concession { from_us, to_us: from_us + took, tokens })
                .collect();
            let judgement = judge(&trace, &limit, &concessions);
            prop_assert_eq!(judgement.over, by_counting(&trace, &limit, &concessions));
            if let Some(worst) = judgement.worst {
                prop_assert_eq!(worst.admitted - worst.allowed, judgement.over);
            }
        }
    }
}
