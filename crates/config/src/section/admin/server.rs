//! `admin`: where the admin server is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::section::admin::openid::{RawOpenId, sign_in};
use crate::section::listener::tls::{RawListenerTls, hsts, tls};
use crate::settings::{AdminSpec, PublicUrl};
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, Setting, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

record! {
    /// The admin server: health, metrics, inspection.
    RawAdminServer {
        /// Address and port. Without accounts, which need policies, it is a loopback address: there
        /// is no login.
        default("127.0.0.1:9901") address: Located<SocketAddr>,
        /// Another address and port, for probes and metrics alone: /livez, /readyz and /metrics,
        /// without login.
        optional probe_address: Located<SocketAddr>,
        /// Speaks TLS at address: certificates and what clients must show. Without it, the admin
        /// server speaks HTTP in the clear.
        optional tls: RawListenerTls,
        /// Where browsers find the console, such as https://gate.example.com, if not at address:
        /// behind a proxy.
        optional public_url: Located<PublicUrl>,
        /// A provider of OpenID Connect, at which people may sign in to the console.
        optional openid_connect: RawOpenId,
    }
}

/// `off`, or where the admin server listens.
pub enum RawAdmin {
    Off,
    On(Box<RawAdminServer>),
}

impl Decode for RawAdmin {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if text == "off" => Some(Self::Off),
            YamlValue::Map(_) => {
                RawAdminServer::decode(node, report).map(|server| Self::On(Box::new(server)))
            }
            _ => {
                let hint = "write {address: \"127.0.0.1:9901\"}, or off";
                mismatch(node, "a mapping or the word off", Some(hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        // An editor that reads YAML 1.1 takes a bare `off` for `false`.
        json!({ "anyOf": [{ "enum": ["off", false] }, RawAdminServer::schema(definitions)] })
    }
}

impl Scalar for PublicUrl {
    const WHAT: &'static str = "where browsers find the console";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = ValueProblem::new(format!("{} is not where browsers find the console", quote(text)))
            .hint("write scheme and host, and the port if it has one of its own: https://gate.example.com");
        let Ok(uri) = text.parse::<Uri>() else {
            return Err(problem);
        };
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(problem),
        };
        let Some(authority) = uri.authority() else {
            return Err(problem);
        };
        let has_more = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        if has_more || text.contains('#') || authority.as_str().contains('@') {
            return Err(problem);
        }
        Ok(Self {
            is_secure,
            authority: authority.clone(),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("https?://[^/?#@]+/?") })
    }
}

/// The address of the admin server when the file has none.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);

/// The admin server. `Some(None)`: turned off. `None`: a mistake was reported.
pub fn build(setting: &Setting<RawAdmin>, report: &mut Report) -> Option<Option<AdminSpec>> {
    match setting {
        Setting::Absent => Some(Some(AdminSpec::at(DEFAULT_ADDRESS))),
        Setting::Invalid => None,
        Setting::Valid(RawAdmin::Off) => Some(None),
        Setting::Valid(RawAdmin::On(raw)) => server(raw, report).map(Some),
    }
}

/// Where browsers find the admin server, and where that is written.
pub fn public_url(setting: &Setting<RawAdmin>) -> Option<Located<PublicUrl>> {
    let Setting::Valid(RawAdmin::On(raw)) = setting else {
        return None;
    };
    let Located { location, value } = raw.public_url.valid()?;
    Some(Located {
        location: location.clone(),
        value: value.clone(),
    })
}

fn server(raw: &RawAdminServer, report: &mut Report) -> Option<AdminSpec> {
    let hsts = hsts(&raw.tls, report);
    let tls = raw.tls.build(|raw| tls(raw, report));
    let openid = raw.openid_connect.build(|raw| sign_in(raw, report));
    Some(AdminSpec {
        address: raw.address.value()?,
        probe_address: raw.probe_address.optional()?,
        tls: tls?,
        hsts: hsts?,
        public_url: raw.public_url.optional()?,
        openid: openid?,
    })
}

/// The address of the admin server, or of its probes. `None`: the file does not say where it is.
pub fn probed_address(setting: &Setting<RawAdmin>) -> Option<Option<ProbedAddress>> {
    let raw = match setting {
        Setting::Absent => return Some(Some(ProbedAddress::in_the_clear(DEFAULT_ADDRESS))),
        Setting::Invalid => return None,
        Setting::Valid(RawAdmin::Off) => return Some(None),
        Setting::Valid(RawAdmin::On(raw)) => raw,
    };
    match raw.probe_address.optional()? {
        Some(address) => Some(Some(ProbedAddress::in_the_clear(address))),
        None => Some(Some(ProbedAddress {
            address: raw.address.value()?,
            needs_tls: raw.tls.is_present(),
        })),
    }
}

/// The place that answers `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedAddress {
    pub address: SocketAddr,
    /// Whether the server speaks TLS alone.
    pub needs_tls: bool,
}

impl ProbedAddress {
    fn in_the_clear(address: SocketAddr) -> Self {
        Self {
            address,
            needs_tls: false,
        }
    }
}
