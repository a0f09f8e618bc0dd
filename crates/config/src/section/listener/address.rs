//! Addresses of a listener: its own, the mode of its Unix socket, and the port that it sends
//! clients to.

use std::net::SocketAddr;

use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::scalar::address::socket_path;
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;
use tollgate_wire::transport::listen_address::{ListenAddress, UNIX_PREFIX};

/// Mode of a Unix socket, in octal: the right to connect.
#[derive(Clone, Copy)]
pub struct SocketMode(pub u32);

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

/// The port of HTTPS that clients are sent to.
#[derive(Clone, Copy)]
pub struct HttpsPort(pub u16);

impl Scalar for HttpsPort {
    const WHAT: &'static str = "true or a port";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match (text, text.parse()) {
            ("true", _) => Ok(Self(443)),
            (_, Ok(port @ 1..)) => Ok(Self(port)),
            _ => Err(
                ValueProblem::new(format!("{} is neither true nor a port", quote(text)))
                    .hint("write true for port 443, another port, or leave the key out"),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "const": true }, { "type": "integer", "minimum": 1, "maximum": 65_535 }] })
    }
}
