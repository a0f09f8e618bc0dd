//! Draws schedules from seeds.
//!
//! Guarantees that a seed always draws the same schedule.

use fastrand::Rng;

use super::schedule::{
    Demand, Fault, KeyPlan, LimitNumbers, LossRates, MS, NodePlan, Outage, Pattern, PlannedRequest,
    Schedule,
};
use super::server::EPOCH_US;

/// Requests of a run at most.
const MOST_REQUESTS: usize = 400;

/// The kind of a schedule. Some faults of a limiter show only where several things come together.
enum Theme {
    Any,
    /// A small bucket that is always empty.
    Flood,
    /// The server's clock steps back over the end of a window that is always used up.
    Boundary,
}

impl Theme {
    /// Draws what a schedule with its nodes lacks: keys, demand and faults.
    fn fill(self, schedule: &mut Schedule, random: &mut Rng) {
        let length = schedule.length;
        let flooding = |every: u64| Demand {
            keys: vec![0],
            permits: None,
            pattern: Pattern::Steady {
                every: every.max(12),
            },
            from: 0,
            to: length,
            node: None,
        };
        match self {
            Self::Any => {
                schedule.keys = (0..random.u64(1..7))
                    .map(|_| KeyPlan::draw(random, length))
                    .collect();
                schedule.demands = (0..random.u64(1..4))
                    .map(|_| Demand::draw(random, schedule))
                    .collect();
                let faults = [0, 0, 1, 1, 2, 3][random.usize(0..6)];
                schedule.faults = (0..faults).map(|_| Fault::draw(random, schedule)).collect();
            }
            Self::Flood => {
                let tokens = random.u64(2..25);
                let burst = random.u64(1..5);
                let limit = LimitNumbers::Bucket {
                    tokens,
                    period: 1_000,
                    burst,
                    leased: false,
                };
                schedule.keys.push(KeyPlan {
                    limit,
                    changed: None,
                    largest_cost: 1,
                });
                schedule
                    .demands
                    .push(flooding(1_000 / tokens / random.u64(2..5)));
            }
            Self::Boundary => {
                let quota = random.u64(2..20);
                let width = random.u64(5..20) * 100;
                let limit = LimitNumbers::Fixed { quota, width };
                schedule.keys.push(KeyPlan {
                    limit,
                    changed: None,
                    largest_cost: 1,
                });
                schedule
                    .demands
                    .push(flooding(width / quota / random.u64(2..8)));
                let from = random.u64(0..length);
                schedule
                    .faults
                    .push(Fault::step_over_boundary(random, schedule, from));
            }
        }
    }
}

impl LimitNumbers {
    fn draw(random: &mut Rng) -> Self {
        let burst = random.u64(2..30);
        match random.u32(0..100) {
            0..40 => Self::Bucket {
                tokens: random.u64(2..25),
                period: 1_000,
                burst,
                leased: false,
            },
            40..55 => Self::Bucket {
                tokens: random.u64(20..60),
                period: 1_000,
                burst: 40 + burst,
                leased: true,
            },
            55..67 => Self::Fixed {
                quota: burst,
                width: random.u64(5..30) * 100,
            },
            67..78 => Self::Sliding {
                quota: burst,
                width: random.u64(5..30) * 100,
            },
            78..92 => Self::Ledger {
                tokens: if random.bool() { 2_000 } else { 10 + 4 * burst },
            },
            _ => Self::LedgerWindow {
                tokens: if random.bool() { 2_000 } else { 10 + 4 * burst },
            },
        }
    }

    /// Other numbers of the same algorithm.
    fn change(self, random: &mut Rng) -> Self {
        let other = |number: u64, random: &mut Rng| (number * random.u64(50..200) / 100).max(2);
        match self {
            Self::Bucket {
                tokens,
                period,
                burst,
                leased,
            } => {
                let burst = if leased {
                    burst.max(40)
                } else {
                    other(burst, random)
                };
                Self::Bucket {
                    tokens: other(tokens, random),
                    period,
                    burst,
                    leased,
                }
            }
            Self::Fixed { quota, width } => Self::Fixed {
                quota: other(quota, random),
                width,
            },
            Self::Sliding { quota, width } => Self::Sliding {
                quota: other(quota, random),
                width,
            },
            ledger => ledger,
        }
    }
}

impl KeyPlan {
    fn draw(random: &mut Rng, length: u64) -> Self {
        let limit = LimitNumbers::draw(random);
        let changed =
            (random.u32(0..8) == 0).then(|| (random.u64(0..length), limit.change(random)));
        let (_, _, burst) = limit.rate();
        let smallest = changed.map_or(burst, |(_, limit)| limit.rate().2.min(burst));
        let leased = matches!(limit, LimitNumbers::Bucket { leased: true, .. });
        let largest_cost = if leased || random.u32(0..3) > 0 {
            1
        } else {
            random.u64(1..4).min(smallest)
        };
        Self {
            limit,
            changed,
            largest_cost,
        }
    }
}

impl Fault {
    fn draw(random: &mut Rng, schedule: &Schedule) -> Self {
        let length = schedule.length;
        let nodes = schedule.nodes.len();
        let keys = schedule.keys.len();
        let from = random.u64(0..length);
        let to = from + random.u64(50..length.min(4_000));
        let some = |random: &mut Rng| match random.u32(0..3) {
            0 => (0..nodes).collect(),
            1 => vec![random.usize(0..nodes)],
            _ => (0..nodes).filter(|_| random.bool()).collect::<Vec<_>>(),
        };
        match random.u32(0..100) {
            0..30 => {
                let how = if random.bool() {
                    Outage::Refused
                } else {
                    Outage::Silent
                };
                Self::Outage {
                    nodes: some(random),
                    how,
                    from,
                    to,
                }
            }
            30..45 => {
                let rates = LossRates {
                    requests: random.u32(0..30),
                    replies: random.u32(0..30),
                };
                Self::Losses {
                    nodes: some(random),
                    rates,
                    from,
                    to,
                }
            }
            45..55 => Self::Stall {
                from,
                to: from + random.u64(20..500),
            },
            55..65 => {
                let percent = if random.bool() { 85 } else { 130 };
                Self::Slow { percent, from, to }
            }
            65..73 => Self::Foreign {
                key: random.usize(0..keys),
                at: from,
            },
            73..78 => Self::Emptied { at: from },
            78..82 => Self::ClockStep {
                at: from,
                by: random.i64(-150..150),
            },
            82..88 => Self::step_over_boundary(random, schedule, from),
            88..94 => Self::Crash {
                node: random.usize(0..nodes),
                at: from,
            },
            _ => Self::Leave {
                node: random.usize(0..nodes),
                at: from,
            },
        }
    }

    /// The server's clock steps back over the last beginning of a fixed window, if there is one.
    fn step_over_boundary(random: &mut Rng, schedule: &Schedule, from: u64) -> Self {
        let width = schedule.keys.iter().find_map(|key| match key.limit {
            LimitNumbers::Fixed { width, .. } => Some(width),
            _ => None,
        });
        let width = width.unwrap_or(1_000);
        let by = random.u64(20..150);
        let since = (EPOCH_US / MS + from) % width;
        let at = from + width - since + random.u64(1..by);
        Self::ClockStep {
            at,
            by: -by.cast_signed(),
        }
    }
}

impl Demand {
    fn draw(random: &mut Rng, schedule: &Schedule) -> Self {
        let keys = &schedule.keys;
        let mut wanted: Vec<usize> = (0..keys.len()).collect();
        random.shuffle(&mut wanted);
        wanted.truncate([1, 1, 1, 2, 3][random.usize(0..5)]);
        let permits = (random.u32(0..6) == 0)
            .then(|| (random.u64(1..8), (random.u64(0..20), random.u64(20..600))));
        if permits.is_some() && random.bool() {
            wanted.clear();
        }
        // Tokens that the first limit admits in a millisecond, thousandfold.
        let pace = wanted.first().map_or(30, |key| {
            let (tokens, period, _) = keys[*key].limit.rate();
            if keys[*key].limit.is_ledger() {
                40
            } else {
                tokens * 1_000 / period / keys[*key].largest_cost
            }
        });
        let percent = [20, 80, 150, 250, 300][random.usize(0..5)];
        let every = (100_000 / (pace.max(1) * percent)).clamp(4, 400);
        let pattern = match random.u32(0..3) {
            0 => Pattern::Bursts {
                every: every * 12,
                size: random.u64(2..20),
            },
            _ => Pattern::Steady { every },
        };
        let (from, to) = match random.u32(0..3) {
            0 => (random.u64(0..schedule.length / 2), schedule.length),
            _ => (0, schedule.length),
        };
        let node = (random.u32(0..4) == 0).then(|| random.usize(0..schedule.nodes.len()));
        Self {
            keys: wanted,
            permits,
            pattern,
            from,
            to,
            node,
        }
    }

    fn requests(
        &self,
        demand: usize,
        random: &mut Rng,
        schedule: &Schedule,
    ) -> Vec<PlannedRequest> {
        let (every, size) = match self.pattern {
            Pattern::Steady { every } => (every, 1),
            Pattern::Bursts { every, size } => (every, size),
        };
        let largest = self
            .keys
            .iter()
            .map(|key| schedule.keys[*key].largest_cost)
            .min()
            .unwrap_or(1);
        let times = (self.from..self.to).step_by(usize::try_from(every).unwrap());
        times
            .flat_map(|at| (0..size).map(move |_| at))
            .map(|at| {
                let node = self
                    .node
                    .unwrap_or_else(|| random.usize(0..schedule.nodes.len()));
                let lasts = self
                    .permits
                    .map_or(0, |(_, (least, most))| random.u64(least..=most));
                let worker = random.usize(0..schedule.nodes[node].workers);
                let cost = random.u64(1..=largest);
                PlannedRequest {
                    at,
                    demand,
                    node,
                    worker,
                    cost,
                    lasts,
                }
            })
            .collect()
    }
}

impl Schedule {
    /// The schedule of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let length = random.u64(15..60) * 100;
        let mut schedule = Self {
            seed,
            length,
            nodes: Vec::new(),
            keys: Vec::new(),
            demands: Vec::new(),
            faults: Vec::new(),
            requests: Vec::new(),
        };
        let theme = match random.u32(0..10) {
            0 => Theme::Flood,
            1 => Theme::Boundary,
            _ => Theme::Any,
        };
        let near = random.u64(0..4);
        for number in 0..random.u64(1..6) {
            let far = near
                + if random.u32(0..4) == 0 {
                    random.u64(1..8)
                } else {
                    random.u64(0..3)
                };
            let joins = if number > 0 && random.u32(0..12) == 0 {
                random.u64(1..length)
            } else {
                0
            };
            let wall_offset = if random.u32(0..4) == 0 {
                random.i64(-200..200)
            } else {
                0
            };
            schedule.nodes.push(NodePlan {
                workers: random.usize(1..3),
                latency: (near, far),
                joins,
                wall_offset,
            });
        }
        theme.fill(&mut schedule, &mut random);
        for number in 0..schedule.demands.len() {
            let requests = schedule.demands[number].requests(number, &mut random, &schedule);
            schedule.requests.extend(requests);
        }
        schedule.requests.sort_by_key(|request| request.at);
        schedule.requests.truncate(MOST_REQUESTS);
        schedule
    }
}
