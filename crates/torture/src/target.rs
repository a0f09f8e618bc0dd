//! Gateways over HTTP, judged by the same bound: whatever they are, an operator names them.
//!
//! Keeps a number of HTTP/1.1 connections to each busy with GET requests, one at a time on each. 2xx lets through, 429 and
//! 503 deny; anything else is counted and lets nothing through. Refuses to know what a gateway says beyond its status.

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

use crate::drive::{self, Demand};
use crate::node::{runtime, spawn};
use crate::plan::{Plan, Scenario};
use crate::report::Outcome;
use crate::tally::{Answer, Seen, Tally};
use crate::{Error, Progress};

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks whether the run is over.
const LOOK: Duration = Duration::from_millis(20);

/// Before a connection that failed is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// What is to be driven.
#[derive(Clone, Debug)]
pub struct Targets {
    pub urls: Vec<Uri>,
    /// The field that carries the key; `None`: all requests have the same.
    pub key_header: Option<HeaderName>,
    /// Connections in all.
    pub concurrency: NonZeroU32,
}

/// One of them, found.
#[derive(Clone)]
struct Site {
    address: SocketAddr,
    host: HeaderValue,
    path: Uri,
}

/// What all connections share.
struct Shared {
    sites: Vec<Site>,
    key_header: Option<HeaderName>,
    demand: Arc<Demand>,
    stop: Arc<AtomicBool>,
}

/// Drives the targets and judges them. Of `plan`, the limit, keys, duration and seed count.
///
/// # Errors
/// When a URL is not one, or nothing listens there.
pub fn target(plan: &Plan, targets: &Targets, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
    let name = if targets.urls.len() == 1 { "1 target".to_owned() } else { format!("{} targets", targets.urls.len()) };
    let tally = drive(plan, targets, progress, &mut |_| Ok(()))?;
    Ok(Outcome::of(&name, &plan.limit, &tally, &[], true))
}

/// The same, with something to do meanwhile.
pub(super) fn drive(
    plan: &Plan,
    targets: &Targets,
    progress: &mut dyn FnMut(Progress),
    step: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<Tally, Error> {
    let plan = &Plan { demand: f64::INFINITY, ..plan.clone() };
    let demand = Arc::new(Demand::new(plan, Scenario::Steady, targets.concurrency.get()));
    let stop = Arc::new(AtomicBool::new(false));
    let sites = targets.urls.iter().map(Site::find).collect::<Result<_, _>>()?;
    let shared = Shared { sites, key_header: targets.key_header.clone(), demand: demand.clone(), stop: stop.clone() };
    let shared = Arc::new(shared);
    let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    let threads = cores.min(targets.concurrency.get());
    let workers = (0..threads).map(|index| {
        let shared = shared.clone();
        let connections = (index..targets.concurrency.get()).step_by(threads as usize).collect();
        let seed = plan.seed ^ u64::from(index) << 32;
        spawn("torture-http", move || work(&shared, connections, seed))
    });
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let waited = crate::wait(plan.duration, &demand, progress, step);
    stop.store(true, Ordering::Relaxed);
    let mut all = Tally::default();
    for worker in workers {
        all.absorb(worker.join().map_err(|_| Error::Panicked)??);
    }
    waited.map(|()| all)
}

fn work(shared: &Arc<Shared>, connections: Vec<u32>, seed: u64) -> Result<Tally, Error> {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut rng = Rng::with_seed(seed);
    runtime()?.block_on(async {
        let clients = connections.into_iter().map(|index| {
            let (shared, tally, rng) = (shared.clone(), tally.clone(), rng.fork());
            tokio::spawn(client(shared, index as usize, tally, rng))
        });
        let clients = clients.collect();
        while !shared.stop.load(Ordering::Relaxed) {
            sleep(LOOK).await;
        }
        drive::finish(clients, PATIENCE).await;
    });
    let tally = std::mem::take(&mut *tally.lock());
    Ok(tally)
}

impl Site {
    /// # Errors
    /// When it is no URL of HTTP, or nothing listens there.
    fn find(url: &Uri) -> Result<Self, Error> {
        let wrong = || Error::Target(url.to_string());
        let authority = url.authority().filter(|_| url.scheme_str() == Some("http")).ok_or_else(wrong)?;
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().trim_matches(['[', ']']);
        let gone = |_| Error::NoTarget(url.to_string());
        let connected = std::net::TcpStream::connect((host, port)).map_err(gone)?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            address: connected.peer_addr()?,
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            path: path.parse().map_err(|_| wrong())?,
        })
    }

    async fn connect(&self) -> Option<SendRequest<Empty<Bytes>>> {
        let stream = timeout(PATIENCE, TcpStream::connect(self.address)).await.ok()?.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        // What breaks it, its sender is told.
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }
}

async fn client(shared: Arc<Shared>, index: usize, tally: Arc<Mutex<Tally>>, mut rng: Rng) {
    let Some(site) = shared.sites.get(index % shared.sites.len().max(1)) else { return };
    let mut kept = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(mut sender) = ready(kept.take(), site).await else {
            sleep(RETRY).await;
            continue;
        };
        let key = shared.demand.pick(&mut rng);
        let asked_us = clock::monotonic_micros();
        let due = shared.demand.ask(key, asked_us);
        let head = timeout(PATIENCE, sender.send_request(shared.request(site, key))).await;
        let now_us = clock::monotonic_micros();
        let response = head.ok().and_then(Result::ok);
        let status = response.as_ref().map(|response| response.status().as_u16());
        let answer = status.map_or(Answer::Broken, Answer::Status);
        let admitted = (status.and_then(Answer::admits) == Some(true)).then_some(shared.demand.cost);
        tally.lock().record(Seen { key, asked_us, now_us, answer, admitted, due });
        if let Some(response) = response
            && timeout(PATIENCE, read_to_end(response)).await == Ok(true)
        {
            kept = Some(sender);
        }
    }
}

/// The connection that was kept, if it still works, or a new one.
async fn ready(kept: Option<SendRequest<Empty<Bytes>>>, site: &Site) -> Option<SendRequest<Empty<Bytes>>> {
    if let Some(mut sender) = kept
        && sender.ready().await.is_ok()
    {
        return Some(sender);
    }
    site.connect().await
}

impl Shared {
    fn request(&self, site: &Site, key: u32) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = site.path.clone();
        request.headers_mut().insert(http::header::HOST, site.host.clone());
        if let Some(name) = &self.key_header {
            request.headers_mut().insert(name.clone(), HeaderValue::from(key));
        }
        request
    }
}

/// Reads what is left of an answer, so that the connection can carry the next. Whether that worked.
async fn read_to_end(mut response: Response<Incoming>) -> bool {
    while let Some(frame) = response.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}
