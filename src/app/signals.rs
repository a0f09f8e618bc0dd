//! The signals that an operator sends to the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the gateway listens to. Installed before anything is started: until then a
/// hangup ends the process, and the first process of a container ignores a termination.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// The meaning of a signal.
pub enum OperatorSignal {
    Stop,
    Reload,
}

impl Signals {
    /// Listens from now on, in the current runtime.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> OperatorSignal {
        tokio::select! {
            _ = self.terminate.recv() => OperatorSignal::Stop,
            _ = self.interrupt.recv() => OperatorSignal::Stop,
            _ = self.hangup.recv() => OperatorSignal::Reload,
        }
    }

    /// Waits for a signal to stop.
    pub async fn stop(&mut self) {
        while !matches!(self.next().await, OperatorSignal::Stop) {}
    }
}
