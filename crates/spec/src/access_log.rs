//! The format, the sample and the destination of the access log, as an operator writes them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_limiter::limit::rollout::Rollout;

/// The settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSpec {
    pub format: AccessLogFormat,
    pub to: LogDestination,
    /// The share of successful requests that is logged. All other requests always are.
    pub sample: Rollout,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    Json,
    /// Apache's `combined`.
    Combined,
    /// `combined`, and then the fields of JSON that it lacks.
    Extended,
}

/// The destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    Stdout,
    Stderr,
    File(PathBuf),
    /// The socket of the machine's syslog, which takes datagrams.
    SyslogUnix(PathBuf),
    /// Syslog over UDP (RFC 5424, RFC 5426).
    SyslogUdp(LineReceiver),
    /// The bare lines.
    Tcp(LineReceiver),
}

/// A receiver of lines on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineReceiver {
    Address(SocketAddr),
    /// A name that is looked up when a connection is made.
    Name {
        host: Arc<str>,
        port: u16,
    },
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
            Self::SyslogUnix(path) => write!(f, "unix:{}", path.display()),
            Self::SyslogUdp(receiver) => write!(f, "udp://{receiver}"),
            Self::Tcp(receiver) => write!(f, "tcp://{receiver}"),
        }
    }
}

impl fmt::Display for LineReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}
