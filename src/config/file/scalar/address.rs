//! Addresses: of sockets, networks and endpoints.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::schema::or_variable;
use crate::transport::listen_address::{ListenAddress, UNIX_PREFIX};
use crate::upstream::url::{EndpointUrl, InvalidEndpointUrl};

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

/// A proxy in front: a network, or the word `unix` for whoever connects to a Unix socket.
#[derive(Clone, Copy)]
pub enum TrustedProxy {
    Network(IpNet),
    Unix,
}

/// Mode of a Unix socket, in octal: the right to connect.
#[derive(Clone, Copy)]
pub struct SocketMode(pub u32);

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

impl Scalar for ListenAddress {
    const WHAT: &'static str = "an address and port, or a Unix socket";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text.strip_prefix(UNIX_PREFIX) {
            Some(path) => socket_path(path, "unix:/run/tollgate/http.sock")
                .map(|path| Self::Unix(path.into())),
            None => SocketAddr::read(text).map(Self::Tcp),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for SocketMode {
    const WHAT: &'static str = "a file's mode";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let is_octal = (3..=4).contains(&digits.len())
            && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let mode = u32::from_str_radix(digits, 8)
            .ok()
            .filter(|&mode| is_octal && mode <= 0o777);
        mode.map(Self).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a file's mode", quote(text)))
                .hint("write 0600, 0660 or 0666")
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "integer" }, { "type": "string", "pattern": or_variable("(0o)?0?[0-7]{3}") }] })
    }
}

impl Scalar for TrustedProxy {
    const WHAT: &'static str = "a network";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text == "unix" {
            Ok(Self::Unix)
        } else {
            Cidr::read(text).map(|cidr| Self::Network(cidr.0))
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for SocketAddr {
    const WHAT: &'static str = "an address and port";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if let Ok(address) = text.parse() {
            return Ok(address);
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

impl Scalar for EndpointUrl {
    const WHAT: &'static str = "the address of a server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        const FORMS: &str =
            "write http://host:port, https://host:port, h2c://host:port or unix:/path";
        text.parse().map_err(|error| {
            let hint = match error {
                InvalidEndpointUrl::Path => {
                    "a route's strip_prefix, replace_prefix or replace_path changes paths"
                }
                _ => FORMS,
            };
            ValueProblem::new(format!("{} {error}", quote(text))).hint(hint)
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable(r"(https?|h2c)://[^/?#@]+/?|((https|h2c)\+)?unix:/.*[^/]") })
    }
}
