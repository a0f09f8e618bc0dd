//! The code behind a listener, as the server sees it: answers to requests, and trust in peers.

use std::future::{Future, ready};
use std::sync::Arc;

use http::{Request, Response};

use super::connection_info::ConnectionInfo;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::transport::peer::PeerAddress;
use tollgate_wire::transport::tls::server::acceptor::TlsAcceptor;

/// The code behind a listener.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request, which is lent since it is large. The future is dropped when the client
    /// goes away. Interim responses that it leaves in `interim` are sent before the answer.
    fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        interim: &InterimSlot,
        request: &mut Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Whether the claims of this peer about its clients are believed. A trusted peer stands for
    /// many clients: bounds on each client do not apply.
    fn is_trusted(&self, _peer: PeerAddress) -> bool {
        false
    }

    /// The TLS side of the listener, if it speaks TLS.
    fn tls(&self) -> Option<&TlsAcceptor> {
        None
    }

    /// Answers in place of a request that could not be read, in its turn among pipelined requests.
    /// The connection closes after the answer.
    fn refuse(&self, connection: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body>;

    /// Answers in place of a request, maybe a call of gRPC, that breaks a rule. Its connection goes
    /// on.
    fn refuse_stream(
        &self,
        connection: &Arc<ConnectionInfo>,
        failure: Failure,
        _is_call: bool,
    ) -> impl Future<Output = Response<Body>> + Send {
        ready(self.refuse(connection, failure))
    }
}
