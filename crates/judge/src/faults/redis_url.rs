//! Finds the address within a Redis URL and puts a [`FaultyProxy`] in its place.

use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::error::Error;
use crate::faults::proxy::{Fault, FaultyProxy};

const PORT: u16 = 6379;

/// Opens a proxy to the Redis of `spec`, and returns it with a `spec` that goes through it.
///
/// # Errors
/// When the URL speaks TLS, whose certificates do not name the proxy, or the proxy cannot be
/// opened.
pub fn through_proxy(
    spec: &RedisSpec,
    fault: Fault,
    seed: u64,
) -> Result<(FaultyProxy, RedisSpec), Error> {
    let (before, server, after) = split(&spec.url).ok_or(Error::NoProxy)?;
    let proxy = FaultyProxy::open(&with_port(server), fault, seed)?;
    let url = format!("{before}{}{after}", proxy.address);
    Ok((
        proxy,
        RedisSpec {
            url: url.into(),
            ..spec.clone()
        },
    ))
}

/// Whether a proxy can stand in the place of the address.
pub fn takes_proxy(url: &str) -> bool {
    split(url).is_some()
}

/// The URL in three parts: before the address, the address, after it.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let authority = "redis://".len();
    let rest = url.strip_prefix("redis://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let begin = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let begin = authority + begin;
    let end = authority + end;
    (begin < end).then(|| (&url[..begin], &url[begin..end], &url[end..]))
}

fn with_port(server: &str) -> String {
    let has_port = server
        .rsplit_once(':')
        .is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    if has_port {
        server.to_owned()
    } else {
        format!("{server}:{PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address_wherever_it_stands() {
        for (url, before, server, after) in [
            ("redis://127.0.0.1:6379", "redis://", "127.0.0.1:6379", ""),
            ("redis://u:p@h/3", "redis://u:p@", "h", "/3"),
            ("redis://u:p@ss@h:1?x=/@", "redis://u:p@ss@", "h:1", "?x=/@"),
            ("redis://[::1]:7/0", "redis://", "[::1]:7", "/0"),
        ] {
            assert_eq!(split(url), Some((before, server, after)), "{url}");
        }
        assert_eq!(split("rediss://h:1"), None);
        assert_eq!(split("redis:///0"), None);
    }

    #[test]
    fn a_server_without_a_port_has_the_usual_one() {
        assert_eq!(with_port("h"), "h:6379");
        assert_eq!(with_port("h:1"), "h:1");
        assert_eq!(with_port("[::1]"), "[::1]:6379");
        assert_eq!(with_port("[::1]:1"), "[::1]:1");
    }
}
