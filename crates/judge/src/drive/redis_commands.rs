//! The few commands that a run itself sends to Redis: what its clock says, which master has a key,
//! a pause.
//!
//! Guarantees to share nothing with the limiter's own connections, and to wait for no answer longer
//! than [`PATIENCE`].

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate_limiter::clock;
use tollgate_limiter::store::redis::address::{Address, Host, Login, ServerLocation};

use crate::error::Error;
use crate::judge::server_clock::ServerClock;

const PATIENCE: Duration = Duration::from_secs(5);

/// How often a clock is read.
const READINGS: usize = 8;

/// A connection to one server.
pub struct RedisCommands(BufReader<TcpStream>);

/// An answer of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    Text(String),
    Number(i64),
    List(Vec<Self>),
    Nothing,
}

/// The addresses and the login of a URL without TLS: of the server, or of some nodes of a cluster.
pub fn servers_of(url: &str) -> Option<(Vec<Host>, Login)> {
    let address = Address::parse(url).filter(|address| !address.tls)?;
    match address.location {
        ServerLocation::Server(host) => Some((vec![host], address.login)),
        ServerLocation::Cluster(hosts) => Some((hosts, address.login)),
        ServerLocation::Socket(_) | ServerLocation::Sentinel { .. } => None,
    }
}

/// The clock of the server at this URL, or of the first one. `None`: it is not asked with TLS,
/// through a socket or by sentinels.
///
/// # Errors
/// When it does not tell.
pub fn clock_of(url: &str) -> Result<Option<ServerClock>, Error> {
    let Some((servers, login)) = servers_of(url) else {
        return Ok(None);
    };
    let server = servers.first().ok_or(Error::NoRedis)?;
    let server = RedisCommands::connect(server, &login);
    server.map_err(|_| Error::NoRedis)?.clock().map(Some)
}

impl RedisCommands {
    /// # Errors
    /// When nothing answers there, or the login is refused.
    pub fn connect(host: &Host, login: &Login) -> Result<Self, Error> {
        let stream = TcpStream::connect((&*host.name, host.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut commands = Self(BufReader::new(stream));
        if let Some(password) = &login.password {
            let username = login.username.as_deref().unwrap_or("default");
            commands.send(&["AUTH", username, password])?;
        }
        Ok(commands)
    }

    /// # Errors
    /// When there is no answer in time, or an error. The error does not quote the command, which
    /// may be a login.
    pub fn send(&mut self, command: &[&str]) -> Result<RedisReply, Error> {
        let mut bytes = format!("*{}\r\n", command.len());
        for word in command {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes())?;
        read(&mut self.0)
    }

    /// The server's clock, by the quickest of a few answers.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn clock(&mut self) -> Result<ServerClock, Error> {
        let mut quickest = self.read_clock()?;
        for _ in 1..READINGS {
            let clock = self.read_clock()?;
            if clock.most_us - clock.least_us < quickest.most_us - quickest.least_us {
                quickest = clock;
            }
        }
        Ok(quickest)
    }

    fn read_clock(&mut self) -> Result<ServerClock, Error> {
        let asked_us = clock::monotonic_micros();
        let reply = self.send(&["TIME"])?;
        // The next whole microsecond, since this one is cut.
        let answered_us = clock::monotonic_micros() + 1;
        let RedisReply::List(parts) = &reply else {
            return Err(strange(&reply));
        };
        let numbers: Option<Vec<u64>> =
            parts.iter().map(|part| part.text()?.parse().ok()).collect();
        let Some([seconds, micros]) = numbers.as_deref() else {
            return Err(strange(&reply));
        };
        let server_us = seconds * 1_000_000 + micros;
        Ok(ServerClock::new(server_us, asked_us, answered_us))
    }
}

impl RedisReply {
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }
}

fn read(from: &mut impl BufRead) -> Result<RedisReply, Error> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
    match kind {
        "+" => Ok(RedisReply::Text(rest.to_owned())),
        ":" => number(rest, line).map(RedisReply::Number),
        "$" => {
            let Ok(length) = usize::try_from(number(rest, line)?) else {
                return Ok(RedisReply::Nothing);
            };
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(RedisReply::Text(
                String::from_utf8_lossy(&bytes).into_owned(),
            ))
        }
        "*" => {
            let Ok(length) = usize::try_from(number(rest, line)?) else {
                return Ok(RedisReply::Nothing);
            };
            (0..length)
                .map(|_| read(from))
                .collect::<Result<_, _>>()
                .map(RedisReply::List)
        }
        _ => Err(Error::Redis(line.to_owned())),
    }
}

fn number(text: &str, line: &str) -> Result<i64, Error> {
    text.parse().map_err(|_| Error::Redis(line.to_owned()))
}

pub fn strange(reply: &RedisReply) -> Error {
    Error::Redis(format!("{reply:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_whatever_they_nest() {
        let mut bytes: &[u8] = b"*3\r\n:-7\r\n*2\r\n+OK\r\n$4\r\na\r\nb\r\n$-1\r\n";
        fn text(text: &str) -> RedisReply {
            RedisReply::Text(text.to_owned())
        }
        let inner = RedisReply::List(vec![text("OK"), text("a\r\nb")]);
        let expected = RedisReply::List(vec![RedisReply::Number(-7), inner, RedisReply::Nothing]);
        assert_eq!(read(&mut bytes).unwrap(), expected);
        assert!(read(&mut &b"-ERR no\r\n"[..]).is_err());
        assert!(read(&mut &b""[..]).is_err());
    }

    #[test]
    fn servers_are_those_that_speak_without_tls() {
        let names = |url| {
            servers_of(url).map(|(hosts, _)| hosts.iter().map(Host::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names("redis://u:p@h"), Some(vec!["h:6379".to_owned()]));
        assert_eq!(
            names("redis-cluster://a:1,b:2"),
            Some(vec!["a:1".to_owned(), "b:2".to_owned()])
        );
        assert_eq!(names("rediss://h"), None);
    }
}
