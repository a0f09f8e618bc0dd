//! hyper's server, as another reader of the same bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = RefCell::default();
}

/// A request, as a reader understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub content: Vec<u8>,
}

/// The whole requests that hyper reads at the start of `bytes`.
pub fn read_by_hyper(bytes: &[u8]) -> Vec<ReadRequest> {
    RUNTIME.with_borrow_mut(|runtime| {
        let runtime = runtime.get_or_insert_with(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap_or_else(|error| panic!("{error}"))
        });
        runtime.block_on(serve(bytes))
    })
}

async fn serve(bytes: &[u8]) -> Vec<ReadRequest> {
    let (near, mut far) = tokio::io::duplex(bytes.len() + (1 << 20));
    let sent = far.write_all(bytes).await;
    let ended = far.shutdown().await;
    assert!(sent.is_ok() && ended.is_ok());
    let seen = Arc::<Mutex<Vec<ReadRequest>>>::default();
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(content) = body.collect().await {
                seen.lock().push(ReadRequest {
                    target: head.uri.to_string(),
                    method: head.method,
                    headers: head.headers,
                    content: content.to_bytes().to_vec(),
                });
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    // An error ends the connection: requests before it count.
    let _ = Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(near), service)
        .await;
    std::mem::take(&mut *seen.lock())
}
