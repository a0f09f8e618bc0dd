//! Why an exchange failed before there was a response, and whether its request may be sent again.

use std::io;
use std::sync::Arc;

use super::response::InvalidResponse;
use super::stream_counts::StreamCounts;
use super::upload::{Upload, UploadStanding};
use crate::upstream::endpoints::PickedEndpoint;
use tollgate_wire::body::BoxError;
use tollgate_wire::error::Failure;

/// Why an exchange failed before there was a response. Large errors are boxed: each request calls
/// functions that return this type.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("the upstream closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the connection takes no request: {0}")]
    StreamUnsent(Box<h2::Error>),
    #[error("{0}")]
    StreamBroken(Box<h2::Error>),
    #[error("{0}")]
    Invalid(#[from] InvalidResponse),
    #[error("the upstream closed before the request's body was complete")]
    UploadCut { client_silent: bool },
    #[error("the upstream took too long")]
    Overdue,
    #[error("the request's body: {0}")]
    Body(BoxError),
    #[error("the request cannot be written in HTTP/2: {0}")]
    Request(#[from] http::Error),
    #[error("the request's head is larger than the upstream takes")]
    HeadTooLarge,
    #[error("the upstream speaks HTTP/2 and has not announced that it takes WebSockets over it")]
    NoWebSocket,
    #[error("a WebSocket needs a Sec-WebSocket-Key")]
    NoWebSocketKey,
}

/// An exchange that failed before there was a response. Boxed where it is returned: it is large,
/// and rare.
pub struct FailedExchange {
    pub failure: Failure,
    pub permission: RetryPermission,
    /// A part of the request was sent, and the upstream does not say that it has not processed it.
    pub was_sent: bool,
    /// `None`: the client was at fault, or may have been.
    pub fault: Option<UpstreamFault>,
}

/// How an endpoint failed.
pub struct UpstreamFault {
    pub endpoint: PickedEndpoint,
    pub reason: String,
}

impl ExchangeError {
    /// Whether the client is at fault, or may be, and not the endpoint.
    fn is_of_client(&self) -> bool {
        let is_body = matches!(self, Self::Body(_) | Self::UploadCut { .. });
        is_body
            || matches!(
                self,
                Self::Request(_) | Self::HeadTooLarge | Self::NoWebSocketKey
            )
    }

    /// The error of an exchange with an upload in this state. A body that does not end keeps the
    /// upstream waiting, which may give up: a client must not get its endpoint ejected by that.
    pub fn with_upload(self, upload: UploadStanding) -> Self {
        let is_end = match &self {
            Self::Closed | Self::Io(_) => true,
            Self::StreamBroken(error) => !error.is_library(),
            _ => false,
        };
        if is_end && !upload.complete {
            Self::UploadCut {
                client_silent: upload.client_silent,
            }
        } else {
            self
        }
    }

    /// The failure of the exchange with `endpoint`.
    pub fn failed(
        self,
        endpoint: Option<PickedEndpoint>,
        permission: RetryPermission,
    ) -> Box<FailedExchange> {
        let fault = match endpoint {
            Some(endpoint) if !self.is_of_client() => Some(UpstreamFault {
                endpoint,
                reason: self.to_string(),
            }),
            _ => None,
        };
        let was_sent = !self.is_before_sending() && !permission.is_of_unprocessed();
        Box::new(FailedExchange {
            failure: self.into_failure(),
            permission,
            was_sent,
            fault,
        })
    }

    /// Whether this error comes before anything is sent.
    fn is_before_sending(&self) -> bool {
        let is_head = matches!(self, Self::Request(_) | Self::HeadTooLarge);
        is_head
            || matches!(
                self,
                Self::StreamUnsent(_) | Self::NoWebSocket | Self::NoWebSocketKey
            )
    }

    fn into_failure(self) -> Failure {
        match self {
            Self::StreamUnsent(error) | Self::StreamBroken(error) if error.is_library() => {
                Failure::UpstreamInvalid
            }
            Self::Closed | Self::Io(_) | Self::StreamUnsent(_) | Self::StreamBroken(_) => {
                Failure::UpstreamClosed
            }
            Self::UploadCut {
                client_silent: true,
            } => Failure::RequestTimeout,
            Self::UploadCut {
                client_silent: false,
            } => Failure::UpstreamClosed,
            Self::Invalid(_) => Failure::UpstreamInvalid,
            Self::Overdue => Failure::ResponseTimeout,
            Self::Body(error) => Failure::from_body_error(&*error),
            Self::Request(_) => Failure::BadRequest("the request cannot be written in HTTP/2"),
            Self::HeadTooLarge => Failure::HeadersTooLarge,
            Self::NoWebSocket => Failure::WebSocketUnsupported,
            Self::NoWebSocketKey => Failure::BadRequest("a WebSocket needs a Sec-WebSocket-Key"),
        }
    }
}

impl FailedExchange {
    /// How the endpoint failed. `None`: it is not at fault, or may not be: the connection was
    /// closed as the request came, and a new connection may work. `is_retry`: the request was on a
    /// new connection.
    pub fn fault_of_endpoint(&self, is_retry: bool) -> Option<&UpstreamFault> {
        let excused = match &self.permission {
            // Nothing was sent: the gateway answers by itself.
            RetryPermission::Never => self.failure == Failure::WebSocketUnsupported,
            RetryPermission::Unsent(_) => !is_retry,
            RetryPermission::Stale(_)
            | RetryPermission::Refused { .. }
            | RetryPermission::Unprocessed { .. } => true,
        };
        if excused { None } else { self.fault.as_ref() }
    }

    /// The failure to answer with. Logs it, once in a while.
    pub fn into_failure(self, upstream: &str) -> Failure {
        if let Some(fault) = self.fault {
            fault.endpoint.log_failure(upstream, &fault.reason);
        }
        self.failure
    }
}

/// Whether the request of a failed exchange may be sent again.
pub enum RetryPermission {
    /// Yes: nothing of the request was sent, and nothing of its body was taken from the client.
    Unsent(Upload),
    /// Yes: the upstream has refused its stream, and says that it has not processed it.
    Refused {
        upload: Upload,
        /// The number of the connection that did not take it.
        by: u64,
        streams: Arc<StreamCounts>,
    },
    /// Yes: its stream is above the last one of a GOAWAY, or no stream could be opened any more.
    Unprocessed {
        upload: Upload,
        /// The streams of its connection.
        streams: Arc<StreamCounts>,
    },
    /// If the request is idempotent and has no body: the connection may have been closed before the
    /// request came.
    Stale(Upload),
    Never,
}

impl RetryPermission {
    /// Whether it is certain that the upstream has not processed the request.
    fn is_of_unprocessed(&self) -> bool {
        matches!(
            self,
            Self::Unsent(_) | Self::Refused { .. } | Self::Unprocessed { .. }
        )
    }
}
