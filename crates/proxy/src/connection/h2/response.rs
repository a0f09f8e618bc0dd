//! The body of a response over HTTP/2, and the rest of the request that is sent meanwhile.
//!
//! Guarantees that neither waits for the other.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use http_body::{Frame, SizeHint};
use tokio::task::JoinHandle;

use super::group::StreamLease;
use crate::replay::ReplayBody;
use crate::upstream::endpoints::PickedEndpoint;
use tollgate_wire::body::{BodyFailure, BodySource, BoxError};
use tollgate_wire::http::h2::{BodySender, ReceivedBody, SendFailure};

/// The body of a response.
pub struct Http2ResponseBody {
    received: ReceivedBody,
    upload: Option<UploadTask>,
    /// Pieces of the upload that were sent when the response was last awaited.
    moved: usize,
    stream: StreamLease,
    _endpoint: Option<PickedEndpoint>,
}

/// Sends the rest of a request's body. Dropped, it stops.
pub struct UploadTask {
    task: JoinHandle<()>,
    body: ReplayBody,
}

/// The upstream sent nothing for too long.
#[derive(Debug, thiserror::Error)]
#[error("the upstream's response stalled")]
struct ResponseStalled;

impl Http2ResponseBody {
    /// Counts `stream` and the request at `endpoint` until the body has ended.
    pub fn new(
        received: ReceivedBody,
        upload: Option<UploadTask>,
        stream: StreamLease,
        endpoint: Option<PickedEndpoint>,
    ) -> Self {
        Self {
            received,
            upload,
            moved: 0,
            stream,
            _endpoint: endpoint,
        }
    }

    fn upload_moved(&mut self) -> bool {
        let pieces = match &self.upload {
            Some(upload) => upload.body.pieces(),
            None => 0,
        };
        std::mem::replace(&mut self.moved, pieces) != pieces
    }

    /// A reset without an error follows a complete response: the upstream wants no more of the
    /// request (RFC 9113 §8.1). An end that came before the reset is known already, so that only a
    /// length can tell that all is here.
    fn ends_here(&self, error: &BoxError) -> bool {
        let reason = error
            .downcast_ref::<h2::Error>()
            .filter(|error| error.is_reset())
            .and_then(h2::Error::reason);
        reason == Some(Reason::NO_ERROR) && self.received.size_hint().exact() == Some(0)
    }

    fn stalled(&self) -> BoxError {
        self.stream.connection.suspect();
        ResponseStalled.into()
    }
}

impl BodySource for Http2ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            return Poll::Ready(match ready!(self.received.poll_frame(cx)) {
                Some(Err(error)) if is_overdue(&error) => {
                    if self.upload_moved() {
                        self.received.wait_anew();
                        continue;
                    }
                    Some(Err(self.stalled()))
                }
                Some(Err(error)) if self.ends_here(&error) => None,
                other => other,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.received.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.received.size_hint()
    }

    fn ended(self: Box<Self>) {}
}

/// Whether the upstream has sent nothing for too long.
fn is_overdue(error: &BoxError) -> bool {
    matches!(
        error.downcast_ref(),
        Some(BodyFailure::Timeout | BodyFailure::TooSlow)
    )
}

impl UploadTask {
    /// Goes on with an upload whose response has begun.
    pub fn spawn(mut sender: BodySender, body: ReplayBody) -> Self {
        let task = tokio::spawn(async move {
            let Err(failure) = poll_fn(|cx| sender.poll_send(cx)).await else {
                return;
            };
            tracing::debug!(%failure, "an upload broke off after its response had begun");
            if matches!(failure, SendFailure::Body(_) | SendFailure::Stalled) {
                sender.into_stream().send_reset(Reason::CANCEL);
            }
        });
        Self { task, body }
    }
}

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
