//! `to` of the access log: a stream, a file or a socket.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::config::file::discover::is_dns_name;
use crate::config::file::scalar::address::socket_path;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::decode::Scalar;
use crate::observe::access_log::spec::{LineReceiver, LogDestination};

const FORMS: &str = "write stdout, stderr, /var/log/tollgate/access.log, unix:/dev/log, udp://syslog.example:514 or tcp://192.0.2.1:5170";

impl Scalar for LogDestination {
    const WHAT: &'static str = "a destination of lines";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            None if text == "stderr" => Ok(Self::Stderr),
            Some(("unix", path)) => {
                socket_path(path, "unix:/dev/log").map(|path| Self::SyslogUnix(path.to_owned()))
            }
            Some(("udp", rest)) => receiver(text, rest).map(Self::SyslogUdp),
            Some(("tcp", rest)) => receiver(text, rest).map(Self::Tcp),
            _ if text.starts_with('/') && !text.ends_with('/') => {
                Ok(Self::File(Path::new(text).to_owned()))
            }
            _ => Err(
                ValueProblem::new(format!("{} is not a destination of lines", quote(text)))
                    .hint(FORMS),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

/// The host and the port behind the scheme of `text`.
fn receiver(text: &str, rest: &str) -> Result<LineReceiver, ValueProblem> {
    let receiver = rest.strip_prefix("//").and_then(read_receiver);
    receiver.ok_or_else(|| {
        ValueProblem::new(format!("{} has no host and port", quote(text))).hint(
            "write udp://syslog.example:514, tcp://192.0.2.1:5170 or tcp://[2001:db8::1]:5170",
        )
    })
}

fn read_receiver(text: &str) -> Option<LineReceiver> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() > 0).then_some(LineReceiver::Address(address));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    // A name that ends in a number is an address with a mistake.
    let is_numeric = host
        .trim_end_matches('.')
        .rsplit('.')
        .next()?
        .bytes()
        .all(|byte| byte.is_ascii_digit());
    (is_dns_name(host) && !is_numeric).then(|| LineReceiver::Name {
        host: host.into(),
        port,
    })
}
