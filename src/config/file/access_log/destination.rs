//! `to` of the access log: a stream, a file or a socket.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::config::file::scalar::address::socket_path;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::decode::Scalar;
use crate::observe::access_log::spec::LogDestination;

const FORMS: &str =
    "write stdout, stderr, /var/log/tollgate/access.log, unix:/dev/log, udp://192.0.2.1:514 or tcp://192.0.2.1:5170";

impl Scalar for LogDestination {
    const WHAT: &'static str = "a destination of lines";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            None if text == "stderr" => Ok(Self::Stderr),
            Some(("unix", path)) => socket_path(path, "unix:/dev/log").map(|path| Self::SyslogUnix(path.to_owned())),
            Some(("udp", address)) => socket_address(text, address).map(Self::SyslogUdp),
            Some(("tcp", address)) => socket_address(text, address).map(Self::Tcp),
            _ if text.starts_with('/') && !text.ends_with('/') => Ok(Self::File(Path::new(text).to_owned())),
            _ => Err(ValueProblem::new(format!("{} is not a destination of lines", quote(text))).hint(FORMS)),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

/// The address behind the scheme of `text`.
fn socket_address(text: &str, rest: &str) -> Result<SocketAddr, ValueProblem> {
    let address = rest.strip_prefix("//").and_then(|rest| rest.parse::<SocketAddr>().ok());
    address.filter(|address| address.port() > 0).ok_or_else(|| {
        ValueProblem::new(format!("{} has no IP address and port", quote(text)))
            .hint("write udp://192.0.2.1:514, tcp://192.0.2.1:5170 or tcp://[2001:db8::1]:5170")
    })
}
