//! Addresses: of sockets, networks, files and hosts.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::schema::or_variable;
use tollgate_wire::transport::address::canonical;

/// A network, or one address as the smallest network. An address within a larger network is kept as
/// it is written.
#[derive(Clone, Copy)]
pub struct Cidr(pub IpNet);

impl Located<Cidr> {
    /// The network. Warns of an address within it, such as 10.0.0.1/8 for 10.0.0.0/8.
    pub fn network(&self, report: &mut Report) -> IpNet {
        let written = self.value.0;
        let network = written.trunc();
        if written != network {
            let problem = ValueProblem::new(format!(
                "{written} is an address within the network {network}"
            ));
            let hint = format!(
                "write {network} for the network, or {} for the address",
                written.addr()
            );
            report.warning(&self.location, problem.hint(hint));
        }
        network
    }
}

/// The longest path of a Unix socket, everywhere (sun_path of unix(7), less a zero byte; macOS has
/// 104).
const LONGEST_SOCKET_PATH: usize = 103;

/// The path of a Unix socket.
#[derive(Clone)]
pub struct SocketPath(pub PathBuf);

/// The path of a file or a folder to include.
#[derive(Clone)]
pub struct IncludedPath(pub PathBuf);

impl Scalar for IncludedPath {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.is_empty() {
            return Err(ValueProblem::new("the path is empty")
                .hint("write conf.d for a folder, or limits.yaml for a file"));
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Scalar for SocketPath {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        socket_path(text, "/run/tollgate/handover.sock").map(|path| Self(path.to_owned()))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}

/// Reads the path of a Unix socket. `example`: a value that is right.
pub fn socket_path<'t>(text: &'t str, example: &str) -> Result<&'t Path, ValueProblem> {
    if !text.starts_with('/') || text.ends_with('/') {
        let problem = ValueProblem::new(format!("{} is not an absolute path", quote(text)));
        return Err(problem.hint(format!("write all of it, such as {example}")));
    }
    if text.len() > LONGEST_SOCKET_PATH {
        let problem = ValueProblem::new(format!("the path has {} bytes", text.len()));
        return Err(problem.hint(format!(
            "the path of a Unix socket has {LONGEST_SOCKET_PATH} bytes at most"
        )));
    }
    Ok(Path::new(text))
}

impl Scalar for SocketAddr {
    const WHAT: &'static str = "an address and port";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if let Ok(address) = text.parse() {
            return Ok(canonical(address));
        }
        let problem = ValueProblem::new(format!("{} is not an address and port", quote(text)));
        Err(match text.rsplit_once(':') {
            Some(("" | "*", port)) if port.parse::<u16>().is_ok() => {
                problem.hint(format!("write 0.0.0.0:{port}"))
            }
            Some(("localhost", port)) if port.parse::<u16>().is_ok() => {
                problem.hint(format!("write 127.0.0.1:{port}"))
            }
            _ if text.parse::<IpAddr>().is_ok() => {
                problem.hint("add a port, such as 10.0.0.1:8080 or [::1]:8080")
            }
            _ => problem.hint("write 0.0.0.0:8080, 127.0.0.1:8080 or [::]:8080"),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for Cidr {
    const WHAT: &'static str = "a network";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(Self).map_err(|_| {
            ValueProblem::new(format!("{} is not a network", quote(text)))
                .hint("write 10.0.0.0/8, fd00::/8 or one address")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// RFC 1035 §2.3.4, with the underscores of services, and perhaps with the dot of the root.
pub fn is_dns_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// A label of a host's name (RFC 1123 §2.1), with the underscores of services and of containers.
pub fn is_dns_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
