//! The parts of a gateway that its control plane has in hand.

use crate::app::listeners::{AdminSockets, ReservedSockets};
use crate::app::reload::Reloader;
use crate::app::restart::predecessor::PreparedOffer;
use crate::app::restart::successor::Predecessor;
use crate::app::shared::SharedState;
use crate::app::signals::Signals;
use crate::app::workers::Workers;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_server::DrainSignal;
use tollgate_wire::transport::listening_socket::SocketFile;

/// Everything that the control plane watches over.
pub struct ControlPlane {
    pub reloader: Reloader,
    pub signals: Signals,
    pub shared: SharedState,
    pub workers: Workers,
    pub admin: AdminSockets,
    pub metrics: MetricsHandle,
    pub drain_signal: DrainSignal,
    /// The offer of this gateway's sockets to a successor. `None`: nobody can take over.
    pub handover: Option<PreparedOffer>,
    /// The files of the Unix sockets that clients connect to.
    pub socket_files: Vec<SocketFile>,
    /// The gateway that this one takes over from.
    pub predecessor: Option<Predecessor>,
    pub reserved: ReservedSockets,
}
