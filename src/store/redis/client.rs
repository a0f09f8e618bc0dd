//! How a connection to Redis is kept.
//!
//! Guarantees that a client neither waits for Redis at start nor gives up on it, sends no command twice, keeps few commands
//! waiting, and notices a connection that went silent. The settings answer to the client library's defaults, which do the
//! opposite. Never prints the URL: it holds the credentials.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::{Config, ReconnectPolicy, TcpConfig, UnresponsiveConfig};

use crate::store::RedisSpec;

/// Why a store's description cannot be used. Whether the server is there is not among the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("the store's URL must be redis://[user:password@]host[:port][/database], or rediss:// for TLS")]
    Url,
    #[error("the system's root certificates cannot be loaded, which rediss:// needs")]
    Certificates,
    #[error("the client library refuses its configuration")]
    Client,
}

/// Pause before each attempt to reconnect, plus up to the jitter. Short: what limits the load is one attempt at a time.
const RECONNECT_MS: u32 = 50;
const RECONNECT_JITTER_MS: u32 = 20;

/// A connection attempt, and each step of its handshake, that takes longer has failed. Two of them in a row must fit the
/// two seconds in which a Redis that is back must decide again.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Beyond the time limit of a call, the connection is silent and replaced. Shorter than the breaker's pause between probes,
/// because each write starts the count anew.
const SILENCE: Duration = Duration::from_millis(50);

/// Commands that may wait for the connection. More than one worker has requests in flight within a time limit.
const QUEUE: usize = 8_192;

/// Starts a client in the current runtime, whose calls fail after `timeout`. Returns before it is connected.
pub(super) fn start(spec: &RedisSpec, timeout: Duration) -> Result<Client, ConnectError> {
    let client = Builder::from_config(config(&spec.url)?)
        .with_performance_config(|performance| performance.default_command_timeout = timeout)
        .with_connection_config(|connection| {
            connection.connection_timeout = CONNECT_TIMEOUT.max(timeout);
            connection.internal_command_timeout = CONNECT_TIMEOUT.max(timeout);
            connection.max_command_attempts = 1;
            connection.max_command_buffer_len = QUEUE;
            connection.reconnect_on_auth_error = true;
            connection.unresponsive =
                UnresponsiveConfig { max_timeout: Some(timeout + SILENCE), interval: SILENCE / 2 };
            connection.tcp = TcpConfig {
                nodelay: Some(true),
                user_timeout: Some(CONNECT_TIMEOUT.max(timeout)),
                ..Default::default()
            };
        })
        .set_policy(ReconnectPolicy::Constant {
            attempts: 0,
            max_attempts: 0,
            delay: RECONNECT_MS,
            jitter: RECONNECT_JITTER_MS,
        })
        .build()
        .map_err(|_| ConnectError::Client)?;
    drop(client.connect());
    Ok(client)
}

/// Errors of the library may quote the URL, so none of them is passed on.
fn config(url: &str) -> Result<Config, ConnectError> {
    let tls = url.starts_with("rediss://");
    if !tls && !url.starts_with("redis://") {
        return Err(ConnectError::Url);
    }
    let plain = url.replacen("rediss://", "redis://", 1);
    let mut config = Config::from_url_centralized(&plain).map_err(|_| ConnectError::Url)?;
    if tls {
        let connector = fred::types::config::TlsConnector::default_rustls().map_err(|_| ConnectError::Certificates)?;
        config.tls = Some(connector.into());
    }
    config.fail_fast = false;
    Ok(config)
}
