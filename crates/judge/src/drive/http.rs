//! Drives any gateways over HTTP and judges them by the bound of a limit.
//!
//! Keeps a number of HTTP/1.1 connections to each gateway busy with GET requests, one at a time. A
//! 2xx answer admits, 429 and 503 deny; any other is counted and admits nothing. Only the status is
//! read.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tollgate_limiter::clock;

use crate::case::Case;
use crate::drive::client::{self, ClientPace};
use crate::drive::load::OfferedLoad;
use crate::drive::progress::{self, Progress};
use crate::drive::thread::{runtime, spawn};
use crate::error::Error;
use crate::judge::server_clock::ServerClock;
use crate::plan::RunPlan;
use crate::report::observations::{AnswerKind, Observation, Observations};
use crate::report::{RunReport, RunTerms};
use crate::scenario::Scenario;

/// An answer that takes longer counts as a broken connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two checks whether the run is over.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Pause before a failed connection is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// The gateways to drive.
#[derive(Clone, Debug)]
pub struct Targets {
    pub urls: Vec<Uri>,
    /// The field that carries the key; `None`: all requests have the same.
    pub key_header: Option<HeaderName>,
    /// Connections in all.
    pub concurrency: NonZeroU32,
}

/// A gateway, with its name resolved.
#[derive(Clone)]
struct TargetAddress {
    address: SocketAddr,
    host: HeaderValue,
    path: Uri,
}

/// The state that all connections share.
struct HttpLoad {
    addresses: Vec<TargetAddress>,
    key_header: Option<HeaderName>,
    /// The beginning of every key: those of a run before may be used up still.
    run: u32,
    load: Arc<OfferedLoad>,
    stop: Arc<AtomicBool>,
}

/// Drives the targets and judges them. Of `plan`, the limit, keys, duration and seed count.
///
/// # Errors
/// When a URL is not one, or nothing listens there.
pub fn run_targets(
    plan: &RunPlan,
    targets: &Targets,
    report: &mut dyn FnMut(Progress),
) -> Result<RunReport, Error> {
    let name = if targets.urls.len() == 1 {
        "1 target".to_owned()
    } else {
        format!("{} targets", targets.urls.len())
    };
    let mut observed = drive(plan, targets, report, &mut |_| Ok(()))?;
    if targets.key_header.is_none() {
        // The one bucket that there is may have been used before: only what flows in is due.
        observed.expected = observed.expected.saturating_sub(plan.burst());
    }
    let steady = RunTerms::new(&Case::only(Scenario::Steady, plan), ServerClock::default());
    let terms = RunTerms {
        scenario: name,
        promise: format!(
            "{}, unless the gateways' own store was away meanwhile, which only their metrics tell: an outage \
             concedes what docs/exactness.md says",
            steady.promise
        ),
        ..steady
    };
    Ok(RunReport::new(&terms, &observed))
}

/// Drives the targets, and calls `step` with the time in microseconds meanwhile.
///
/// # Errors
/// When a URL is not one, nothing listens there, or a step fails.
pub fn drive(
    plan: &RunPlan,
    targets: &Targets,
    report: &mut dyn FnMut(Progress),
    step: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<Observations, Error> {
    let plan = &RunPlan {
        demand: f64::INFINITY,
        ..plan.clone()
    };
    let load = Arc::new(OfferedLoad::new(
        plan,
        Scenario::Steady,
        targets.concurrency.get(),
        &plan.limit.into(),
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let addresses = targets
        .urls
        .iter()
        .map(TargetAddress::resolve)
        .collect::<Result<_, _>>()?;
    let shared = HttpLoad {
        addresses,
        key_header: targets.key_header.clone(),
        run: fastrand::u32(..),
        load: load.clone(),
        stop: stop.clone(),
    };
    let shared = Arc::new(shared);
    let cores = std::thread::available_parallelism()
        .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    let threads = cores.min(targets.concurrency.get());
    let workers = (0..threads).map(|index| {
        let shared = shared.clone();
        let connections = (index..targets.concurrency.get())
            .step_by(threads as usize)
            .collect();
        let seed = plan.seed ^ u64::from(index) << 32;
        spawn("torture-http", move || work(&shared, connections, seed))
    });
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let waited = progress::wait(plan.duration, &load, report, step);
    stop.store(true, Ordering::Relaxed);
    let mut all = Observations::default();
    for worker in workers {
        all.absorb(worker.join().map_err(|_| Error::Panicked)??);
    }
    waited.map(|()| all)
}

fn work(shared: &Arc<HttpLoad>, connections: Vec<u32>, seed: u64) -> Result<Observations, Error> {
    let observed = Arc::new(Mutex::new(Observations::default()));
    let mut rng = Rng::with_seed(seed);
    runtime()?.block_on(async {
        let clients = connections.into_iter().map(|index| {
            let shared = shared.clone();
            let observed = observed.clone();
            let rng = rng.fork();
            tokio::spawn(send_requests(shared, index as usize, observed, rng))
        });
        let clients = clients.collect();
        while !shared.stop.load(Ordering::Relaxed) {
            sleep(STOP_CHECK).await;
        }
        client::finish(clients, PATIENCE).await;
    });
    let observed = std::mem::take(&mut *observed.lock());
    Ok(observed)
}

impl TargetAddress {
    /// # Errors
    /// When it is no URL of HTTP, or nothing listens there.
    fn resolve(url: &Uri) -> Result<Self, Error> {
        let authority = url
            .authority()
            .filter(|_| url.scheme_str() == Some("http"))
            .ok_or_else(|| Error::Target(url.to_string()))?;
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().trim_matches(['[', ']']);
        let connected = std::net::TcpStream::connect((host, port))
            .map_err(|_| Error::NoTarget(url.to_string()))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            address: connected.peer_addr()?,
            host: HeaderValue::from_str(authority.as_str())
                .map_err(|_| Error::Target(url.to_string()))?,
            path: path.parse().map_err(|_| Error::Target(url.to_string()))?,
        })
    }

    async fn connect(&self) -> Option<SendRequest<Empty<Bytes>>> {
        let stream = timeout(PATIENCE, TcpStream::connect(self.address))
            .await
            .ok()?
            .ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        // An error of the connection reaches the client through its sender.
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }
}

/// Sends requests to one target, one at a time, until the run is over.
async fn send_requests(
    shared: Arc<HttpLoad>,
    index: usize,
    observed: Arc<Mutex<Observations>>,
    mut rng: Rng,
) {
    let Some(address) = shared.addresses.get(index % shared.addresses.len().max(1)) else {
        return;
    };
    let mut kept = None;
    let mut pace = ClientPace::new(shared.load.interval, &mut rng);
    while !shared.stop.load(Ordering::Relaxed) {
        pace.wait(&shared.stop).await;
        let Some(mut sender) = ready(kept.take(), address).await else {
            sleep(RETRY).await;
            continue;
        };
        let key = shared.load.pick_key(&mut rng);
        let sent_us = clock::monotonic_micros();
        let expected = shared.load.count_request(key, sent_us);
        let head = timeout(PATIENCE, sender.send_request(shared.request(address, key))).await;
        let now_us = clock::monotonic_micros();
        let response = head.ok().and_then(Result::ok);
        let status = response.as_ref().map(|response| response.status().as_u16());
        let answer = status.map_or(AnswerKind::Broken, AnswerKind::Status);
        let admitted =
            (status.and_then(AnswerKind::admits) == Some(true)).then_some(shared.load.cost);
        let observation = Observation {
            key,
            sent_us,
            now_us,
            answer,
            admitted,
            expected,
        };
        shared.load.record(observation, &mut observed.lock());
        if let Some(response) = response
            && timeout(PATIENCE, read_to_end(response)).await == Ok(true)
        {
            kept = Some(sender);
        }
    }
}

/// The connection that was kept, if it still works, or a new one.
async fn ready(
    kept: Option<SendRequest<Empty<Bytes>>>,
    address: &TargetAddress,
) -> Option<SendRequest<Empty<Bytes>>> {
    if let Some(mut sender) = kept
        && sender.ready().await.is_ok()
    {
        return Some(sender);
    }
    address.connect().await
}

impl HttpLoad {
    fn request(&self, address: &TargetAddress, key: u32) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = address.path.clone();
        request
            .headers_mut()
            .insert(http::header::HOST, address.host.clone());
        if let Some(name) = &self.key_header
            && let Ok(key) = HeaderValue::try_from(format!("{:08x}-{key}", self.run))
        {
            request.headers_mut().insert(name.clone(), key);
        }
        request
    }
}

/// Reads the rest of an answer, so that the connection can carry the next. Returns whether that
/// worked.
async fn read_to_end(mut response: Response<Incoming>) -> bool {
    while let Some(frame) = response.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}
