//! The last ten minutes: samples of the metrics that the process has anyway, taken on the control
//! plane every two seconds.
//!
//! `totals` reads the metrics, `track` has what is kept of a route or of a limit, each a `history`
//! of bounded length. Guarantees that the room is bounded: 7 kB for a
//! route and 4 kB for a limit that had requests, and for [`MOST`] of each at most. A request pays
//! nothing.

pub mod history;
pub mod totals;
pub mod track;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use history::{History, STEP};
use totals::{LimitTotals, Totals, TrafficTotals, UpstreamTotals};
use track::{LimitTrack, TrafficTrack};

use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_gateway::{Gateway, UNROUTED};
use tollgate_limiter::clock::{self, Instant};
use tollgate_proxy::upstream::watch::report::UpstreamReport;

/// Routes, and limits, that are kept at most. Further ones are on no chart.
pub const MOST: usize = 1_024;

/// All samples.
#[derive(Debug, Default)]
pub struct LiveData {
    /// When each step ended. All histories end with the last.
    pub steps: History<StepEnd>,
    pub whole: TrafficTrack,
    pub routes: BTreeMap<String, TrafficTrack>,
    pub limits: BTreeMap<String, LimitTrack>,
    pub upstreams: HashMap<String, UpstreamTotals>,
    /// By upstream and URL.
    pub endpoints: HashMap<(String, String), EndpointState>,
    /// The counts of each route at the last sample.
    counted: HashMap<String, TrafficTotals>,
    /// The decisions of each limit at the last sample.
    decided: HashMap<String, LimitTotals>,
    last: Option<Instant>,
}

/// When a step ended, and how long it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepEnd {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    pub seconds: f32,
}

/// The state of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    pub state: &'static str,
    /// In seconds since 1970. `None`: since it is known.
    pub since: Option<u64>,
}

impl LiveData {
    /// Takes a sample.
    pub fn sample(&mut self, metrics: &MetricsHandle, gateway: &Gateway) {
        let now = clock::now();
        let step = self
            .last
            .map_or(STEP, |last| now.saturating_duration_since(last));
        self.last = Some(now);
        self.steps.push(StepEnd {
            at_ms: clock::unix_micros() / 1_000,
            seconds: step.as_secs_f32().max(0.001),
        });

        let totals = Totals::read(metrics);
        self.advance_whole(&totals.routes);
        let names = gateway
            .routes
            .iter()
            .map(|route| &*route.target.route.name)
            .chain([UNROUTED]);
        self.advance_routes(names, totals.routes);
        let names = gateway.limits.iter().map(|listed| &*listed.limit().name);
        self.advance_limits(names, totals.limits);
        self.upstreams = totals.upstreams;
        self.follow_endpoints(gateway);
    }

    /// Adds what each route has counted since the last sample: the sum of all falls when a route
    /// that is gone is forgotten.
    fn advance_whole(&mut self, routes: &HashMap<String, TrafficTotals>) {
        let mut whole = self.whole.totals.clone();
        let none = TrafficTotals::default();
        for (name, totals) in routes {
            whole.add_since(totals, self.counted.get(name).unwrap_or(&none));
        }
        self.whole.advance(&whole);
    }

    /// Has the tracks of the routes with these names go on. One that is new, or comes back, begins
    /// at the last sample.
    fn advance_routes<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        routes: HashMap<String, TrafficTotals>,
    ) {
        let begin =
            |name: &str| TrafficTrack::since(self.counted.get(name).cloned().unwrap_or_default());
        keep(&mut self.routes, names, begin, |track, name| {
            if let Some(totals) = routes.get(name) {
                track.advance(totals);
            }
        });
        self.counted = routes;
    }

    /// Has the tracks of the limits with these names go on, as those of routes.
    fn advance_limits<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        limits: HashMap<String, LimitTotals>,
    ) {
        let begin =
            |name: &str| LimitTrack::since(self.decided.get(name).copied().unwrap_or_default());
        keep(&mut self.limits, names, begin, |track, name| {
            if let Some(totals) = limits.get(name) {
                track.advance(*totals);
            }
        });
        self.decided = limits;
    }

    fn follow_endpoints(&mut self, gateway: &Gateway) {
        let now = clock::unix_micros() / 1_000_000;
        let mut present = HashSet::new();
        for upstream in gateway.upstreams.values() {
            let report = UpstreamReport::new(upstream);
            for endpoint in report.endpoints {
                let name = (report.upstream.clone(), endpoint.url);
                let known = self.endpoints.entry(name.clone());
                let known = known.or_insert(EndpointState {
                    state: endpoint.state,
                    since: None,
                });
                if known.state != endpoint.state {
                    *known = EndpointState {
                        state: endpoint.state,
                        since: Some(now),
                    };
                }
                present.insert(name);
            }
        }
        retain(&mut self.endpoints, &present);
    }
}

/// Keeps the tracks of these names, [`MOST`] of them, and has each go on.
fn keep<'a, T>(
    tracks: &mut BTreeMap<String, T>,
    names: impl Iterator<Item = &'a str>,
    begin: impl Fn(&str) -> T,
    advance: impl Fn(&mut T, &str),
) {
    let names: HashSet<&str> = names.collect();
    tracks.retain(|name, _| names.contains(name.as_str()));
    for name in names {
        let has_room = tracks.len() < MOST;
        match tracks.get_mut(name) {
            Some(track) => advance(track, name),
            None if has_room => advance(
                tracks.entry(name.to_owned()).or_insert_with(|| begin(name)),
                name,
            ),
            None => {}
        }
    }
}

fn retain<K: Eq + Hash, V>(map: &mut HashMap<K, V>, present: &HashSet<K>) {
    map.retain(|name, _| present.contains(name));
}

#[cfg(test)]
mod tests {
    use super::history::LENGTH;
    use super::track::{DecisionSample, TrafficSample};
    use super::*;

    #[test]
    fn a_route_takes_seven_kilobytes_and_a_limit_four() {
        let of_route = LENGTH * size_of::<TrafficSample>()
            + history::NOW * tollgate_gateway::observe::latency::BUCKETS * 4
            + size_of::<TrafficTrack>();
        let of_limit = LENGTH * size_of::<DecisionSample>() + size_of::<LimitTrack>();
        assert!(
            of_route <= 7_000 && of_limit <= 4_000,
            "{of_route} and {of_limit}"
        );
    }

    #[test]
    fn the_whole_goes_on_where_a_route_is_forgotten() {
        let mut live = LiveData::default();
        for routes in [
            &[("gone", 100), ("here", 5)][..],
            &[("here", 7)],
            &[("gone", 1), ("here", 7)],
        ] {
            let mut totals = HashMap::new();
            for (name, requests) in routes {
                let counted = TrafficTotals {
                    requests: *requests,
                    ..TrafficTotals::default()
                };
                totals.insert((*name).to_owned(), counted);
            }
            live.advance_whole(&totals);
            live.counted = totals;
        }
        let steps: Vec<u32> = live
            .whole
            .history
            .iter()
            .map(|step| step.requests)
            .collect();
        assert_eq!((steps, live.whole.totals.requests), (vec![105, 2, 1], 108));
    }

    /// Totals of one route or limit, and whether it is there.
    const COMES_BACK: [(u64, bool); 5] = [
        (100, true),
        (110, false),
        (120, false),
        (123, true),
        (127, true),
    ];

    #[test]
    fn a_route_that_comes_back_shows_what_it_has_counted_since_the_last_sample() {
        let mut live = LiveData::default();
        for (requests, is_there) in COMES_BACK {
            let totals = TrafficTotals {
                requests,
                ..TrafficTotals::default()
            };
            live.advance_routes(
                is_there.then_some("orders").into_iter(),
                HashMap::from([("orders".into(), totals)]),
            );
            assert_eq!(live.routes.contains_key("orders"), is_there);
        }
        let steps: Vec<u32> = live.routes["orders"]
            .history
            .iter()
            .map(|step| step.requests)
            .collect();
        assert_eq!(steps, [3, 4]);
        let totals = TrafficTotals {
            requests: 6,
            ..TrafficTotals::default()
        };
        live.advance_routes(["new"].into_iter(), HashMap::from([("new".into(), totals)]));
        assert_eq!(
            live.routes["new"].history.last().map(|step| step.requests),
            Some(6),
            "it begins at nothing"
        );
    }

    #[test]
    fn a_limit_that_comes_back_shows_what_it_has_decided_since_the_last_sample() {
        let mut live = LiveData::default();
        for (allowed, is_there) in COMES_BACK {
            let mut totals = LimitTotals::default();
            totals.0[0][0] = allowed;
            live.advance_limits(
                is_there.then_some("few").into_iter(),
                HashMap::from([("few".into(), totals)]),
            );
            assert_eq!(live.limits.contains_key("few"), is_there);
        }
        let steps: Vec<u32> = live.limits["few"]
            .history
            .iter()
            .map(|step| step.allowed)
            .collect();
        assert_eq!(steps, [3, 4]);
        let mut totals = LimitTotals::default();
        totals.0[0][0] = 6;
        live.advance_limits(["new"].into_iter(), HashMap::from([("new".into(), totals)]));
        assert_eq!(
            live.limits["new"].history.last().map(|step| step.allowed),
            Some(6),
            "it begins at nothing"
        );
    }

    #[test]
    fn tracks_of_names_that_are_gone_are_dropped_and_there_are_never_more_than_the_most() {
        let names: Vec<String> = (0..MOST + 100).map(|number| format!("r{number}")).collect();
        let mut tracks: BTreeMap<String, u32> = BTreeMap::new();
        keep(
            &mut tracks,
            names.iter().map(String::as_str),
            |_| 0,
            |count, _| *count += 1,
        );
        assert_eq!(tracks.len(), MOST);
        keep(
            &mut tracks,
            ["r1", "other"].into_iter(),
            |_| 0,
            |count, _| *count += 1,
        );
        assert!(tracks["other"] == 1 && tracks.len() <= 2, "{tracks:?}");
    }
}
