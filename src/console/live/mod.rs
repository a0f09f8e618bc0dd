//! The last ten minutes: samples of the metrics that the process has anyway, taken on the control plane every two seconds.
//!
//! `totals` reads the metrics, `track` has what is kept of a route or of a limit, each a `history` of bounded length, and
//! `latency` its quantiles. Guarantees that the room is bounded: 7 kB for a route and 4 kB for a limit that had requests,
//! and for [`MOST`] of each at most. A request pays nothing.

pub mod history;
pub mod latency;
pub mod totals;
pub mod track;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use history::{History, STEP};
use totals::{Totals, TrafficTotals, UpstreamTotals};
use track::{LimitTrack, TrafficTrack};

use crate::clock::{self, Instant};
use crate::gateway::{Gateway, UNROUTED};
use crate::observe::recorder::MetricsHandle;
use crate::upstream::watch::report::UpstreamReport;

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
    /// What each route had counted at the last sample.
    counted: HashMap<String, TrafficTotals>,
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
        let step = self.last.map_or(STEP, |last| now.saturating_duration_since(last));
        self.last = Some(now);
        self.steps.push(StepEnd { at_ms: clock::unix_micros() / 1_000, seconds: step.as_secs_f32().max(0.001) });

        let totals = Totals::read(metrics);
        self.advance_whole(&totals.routes);
        let names = gateway.routes.iter().map(|route| &*route.target.route.name).chain([UNROUTED]);
        keep(&mut self.routes, names, |track, name| {
            if let Some(totals) = totals.routes.get(name) {
                track.advance(totals);
            }
        });
        let names = gateway.limits.iter().map(|listed| &*listed.limit().name);
        keep(&mut self.limits, names, |track, name| {
            if let Some(totals) = totals.limits.get(name) {
                track.advance(*totals);
            }
        });
        self.upstreams = totals.upstreams;
        self.counted = totals.routes;
        self.follow_endpoints(gateway);
    }

    /// Adds what each route has counted since the last sample: the sum of all falls when a route that is gone is forgotten.
    fn advance_whole(&mut self, routes: &HashMap<String, TrafficTotals>) {
        let (mut whole, none) = (self.whole.totals.clone(), TrafficTotals::default());
        for (name, totals) in routes {
            whole.add_since(totals, self.counted.get(name).unwrap_or(&none));
        }
        self.whole.advance(&whole);
    }

    fn follow_endpoints(&mut self, gateway: &Gateway) {
        let now = clock::unix_micros() / 1_000_000;
        let mut present = HashSet::new();
        for upstream in gateway.upstreams.values() {
            let report = UpstreamReport::of(upstream);
            for endpoint in report.endpoints {
                let name = (report.upstream.clone(), endpoint.url);
                let known = self.endpoints.entry(name.clone());
                let known = known.or_insert(EndpointState { state: endpoint.state, since: None });
                if known.state != endpoint.state {
                    *known = EndpointState { state: endpoint.state, since: Some(now) };
                }
                present.insert(name);
            }
        }
        retain(&mut self.endpoints, &present);
    }
}

/// Keeps the tracks of these names, [`MOST`] of them, and has each go on.
fn keep<'a, T: Default>(
    tracks: &mut BTreeMap<String, T>,
    names: impl Iterator<Item = &'a str>,
    advance: impl Fn(&mut T, &str),
) {
    let names: HashSet<&str> = names.collect();
    tracks.retain(|name, _| names.contains(name.as_str()));
    for name in names {
        let has_room = tracks.len() < MOST;
        match tracks.get_mut(name) {
            Some(track) => advance(track, name),
            None if has_room => advance(tracks.entry(name.to_owned()).or_default(), name),
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
        let of_route =
            LENGTH * size_of::<TrafficSample>() + history::NOW * totals::BUCKETS * 4 + size_of::<TrafficTrack>();
        let of_limit = LENGTH * size_of::<DecisionSample>() + size_of::<LimitTrack>();
        assert!(of_route <= 7_000 && of_limit <= 4_000, "{of_route} and {of_limit}");
    }

    #[test]
    fn the_whole_goes_on_where_a_route_is_forgotten() {
        let of = |routes: &[(&str, u64)]| {
            let counted = |requests: u64| TrafficTotals { requests, ..TrafficTotals::default() };
            routes.iter().map(|(name, requests)| ((*name).to_owned(), counted(*requests))).collect::<HashMap<_, _>>()
        };
        let mut live = LiveData::default();
        for routes in [&[("gone", 100), ("here", 5)][..], &[("here", 7)], &[("gone", 1), ("here", 7)]] {
            live.advance_whole(&of(routes));
            live.counted = of(routes);
        }
        let steps: Vec<u32> = live.whole.history.iter().map(|step| step.requests).collect();
        assert_eq!((steps, live.whole.totals.requests), (vec![105, 2, 1], 108));
    }

    #[test]
    fn tracks_of_names_that_are_gone_are_dropped_and_there_are_never_more_than_the_most() {
        let names: Vec<String> = (0..MOST + 100).map(|number| format!("r{number}")).collect();
        let mut tracks: BTreeMap<String, u32> = BTreeMap::new();
        keep(&mut tracks, names.iter().map(String::as_str), |count, _| *count += 1);
        assert_eq!(tracks.len(), MOST);
        keep(&mut tracks, ["r1", "other"].into_iter(), |count, _| *count += 1);
        assert!(tracks["other"] == 1 && tracks.len() <= 2, "{tracks:?}");
    }
}
