//! The URL of a Redis.
//!
//! Guarantees that each accepted URL names a possible server, and that no part of a URL is silently
//! without effect.

use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The parts of a URL. Not printable: it has the credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub login: Login,
    pub database: Option<u8>,
    pub tls: bool,
    pub location: ServerLocation,
}

/// A name and a password, or the password alone, or nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum ServerLocation {
    /// `redis://[user:password@]host[:port][/database]`, or `rediss://`.
    Server(Host),
    /// `redis+unix://[user:password@]/path[?db=database]`.
    Socket(PathBuf),
    /// `redis-sentinel://[user:password@]host[:port][,…]/service[/database]`, or
    /// `rediss-sentinel://`. The login of the sentinels themselves is in the query:
    /// `sentinel_username`, `sentinel_password`.
    Sentinel {
        sentinels: Vec<Host>,
        service: String,
        login: Login,
    },
    /// `redis-cluster://[user:password@]host[:port][,…]`, or `rediss-cluster://`: some of the
    /// cluster's nodes.
    Cluster(Vec<Host>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// A name or an IP address, without brackets.
    pub name: Arc<str>,
    pub port: u16,
}

/// Written like in a URL.
impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Address {
    /// Reads a URL. `None`: not the address of a Redis. No reason is given, because that would
    /// quote the password.
    pub fn parse(url: &str) -> Option<Self> {
        if !url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
        {
            return None;
        }
        let (scheme, rest) = url.split_once("://")?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::parse(login)?, hosts),
            None => (Login::default(), authority),
        };
        let mut query = Query::parse(query)?;
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis")?),
        };
        let (location, database) = match kind {
            "" => (
                ServerLocation::Server(Host::parse(hosts, PORT)?),
                database(path.unwrap_or_default())?,
            ),
            "+unix" if !tls && hosts.is_empty() => (
                ServerLocation::Socket(socket(path?)?),
                database(&query.take("db").unwrap_or_default())?,
            ),
            "-sentinel" => {
                let (service, number) = path?.split_once('/').unwrap_or((path?, ""));
                let login = Login {
                    username: query.take("sentinel_username"),
                    password: query.take("sentinel_password"),
                };
                let service = Some(decoded(service)?).filter(|service| !service.is_empty())?;
                let location = ServerLocation::Sentinel {
                    sentinels: Host::list(hosts, SENTINEL_PORT)?,
                    service,
                    login,
                };
                (location, database(number)?)
            }
            // A cluster has no databases.
            "-cluster" if path.unwrap_or_default().is_empty() => {
                (ServerLocation::Cluster(Host::list(hosts, PORT)?), None)
            }
            _ => return None,
        };
        query.is_empty().then_some(Self {
            login,
            database,
            tls,
            location,
        })
    }
}

impl Login {
    fn parse(text: &str) -> Option<Self> {
        // A name alone would be no login at all.
        let (username, password) = text.split_once(':')?;
        let username = Some(decoded(username)?).filter(|username| !username.is_empty());
        let password = Some(decoded(password)?).filter(|password| !password.is_empty());
        (password.is_some() || username.is_none()).then_some(Self { username, password })
    }
}

impl Host {
    fn list(text: &str, port: u16) -> Option<Vec<Self>> {
        text.split(',')
            .map(|host| Self::parse(host, port))
            .collect()
    }

    /// `host`, `host:port`, `[address]` or `[address]:port`.
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                address.parse::<std::net::Ipv6Addr>().ok()?;
                (address, port)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None => port.is_empty().then_some(default_port)?,
        };
        (!name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)))
        .then(|| Self {
            name: name.into(),
            port,
        })
    }
}

/// The parameters of a URL. Each is taken out by its name; one that is left is a mistake.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: Option<&str>) -> Option<Self> {
        let mut pairs = Vec::new();
        for pair in text.into_iter().flat_map(|text| text.split('&')) {
            let (name, value) = pair.split_once('=')?;
            pairs.push((name.to_owned(), decoded(value)?));
        }
        Some(Self(pairs))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

fn database(text: &str) -> Option<Option<u8>> {
    if text.is_empty() {
        Some(None)
    } else {
        text.parse().ok().map(Some)
    }
}

fn socket(path: &str) -> Option<PathBuf> {
    if path.is_empty() {
        return None;
    }
    Some(PathBuf::from(format!("/{}", decoded(path)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }

    fn location(url: &str) -> ServerLocation {
        Address::parse(url)
            .unwrap_or_else(|| panic!("{url} is refused"))
            .location
    }

    #[test]
    fn each_scheme_has_its_location() {
        assert!(location("redis://h") == ServerLocation::Server(host("h", 6379)));
        assert!(location("rediss://[::1]:7") == ServerLocation::Server(host("::1", 7)));
        assert!(
            location("redis+unix:///run/redis.sock")
                == ServerLocation::Socket("/run/redis.sock".into())
        );
        assert!(
            location("redis-cluster://a,b:7")
                == ServerLocation::Cluster(vec![host("a", 6379), host("b", 7)])
        );
        let sentinels = vec![host("a", 26379), host("b", 7)];
        let main = |login| ServerLocation::Sentinel {
            sentinels: sentinels.clone(),
            service: "main".into(),
            login,
        };
        assert!(location("redis-sentinel://a,b:7/main/3") == main(Login::default()));
        let login = Login {
            username: Some("s".into()),
            password: Some("p@".into()),
        };
        let url = "rediss-sentinel://a,b:7/main?sentinel_username=s&sentinel_password=p%40";
        assert!(location(url) == main(login));
    }

    #[test]
    fn credentials_and_database_are_read_wherever_they_stand() {
        for url in [
            "redis://u:p%2F@h/3",
            "redis+unix://u:p%2F@/run/x?db=3",
            "rediss-sentinel://u:p%2F@h/main/3",
        ] {
            let address = Address::parse(url).unwrap_or_else(|| panic!("{url} is refused"));
            let login = Login {
                username: Some("u".into()),
                password: Some("p/".into()),
            };
            assert!(
                address.login == login && address.database == Some(3),
                "{url}"
            );
            assert_eq!(address.tls, url.starts_with("rediss"));
        }
    }

    #[test]
    fn a_part_without_effect_is_refused() {
        for url in [
            "redis://user@h",
            "redis://user:@h",
            "redis://h?db=3",
            "redis://h,i",
            "redis-cluster://h/1",
            "redis-sentinel://h",
            "redis-sentinel://h/main?password=x",
            "rediss+unix:///run/x",
            "redis+unix://host/run/x",
            "redis+unix://",
            "redis-cluster://a,,b",
            "redis-other://h",
        ] {
            assert!(Address::parse(url).is_none(), "{url}");
        }
    }
}
