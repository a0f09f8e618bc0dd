//! Opens connections to Redis, and keeps them.
//!
//! Guarantees that a client neither waits for Redis at start nor gives up on it, sends no command
//! twice, bounds the commands that wait, and notices a connection that went silent: the client
//! library's defaults do the opposite. The URL is never printed, since it has the credentials.

use std::fmt;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::{
    Config, ReconnectPolicy, Server, ServerConfig, TcpConfig, UnresponsiveConfig,
};

use crate::store::redis::connection::address::{Address, Host, ServerLocation};
use crate::store::redis::connection::connection_log;
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::connection::tls::{self, TlsError};

/// Why a store's description cannot be used. A server that is away is no such reason.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "the store's URL must be redis://[user:password@]host[:port][/database], or one of docs/configuration/store.md"
    )]
    Url,
    #[error("TLS to the store cannot be set up: {0}")]
    Certificates(#[from] TlsError),
    #[error("the client library refuses its configuration")]
    Client,
}

/// The message: what `main` returns is printed by `Debug`.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a connection's failures are logged. One connection of a process logs them, so that there
/// is one line for all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEvents {
    Logged,
    Silent,
}

/// The times of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallLimits {
    /// The longest that a request waits. Past it the script refuses.
    pub timeout: Duration,
    /// The longest that an answer may take.
    pub answer: Duration,
}

impl CallLimits {
    /// Calls whose answer is of no use after `timeout`.
    pub fn strict(timeout: Duration) -> Self {
        Self {
            timeout,
            answer: timeout,
        }
    }
}

/// Opens the connections of a store: the settings that they share.
pub(crate) struct Connector {
    config: Config,
    pub location: ServerLocation,
    pub limits: CallLimits,
    events: ConnectionEvents,
}

/// Pause before each attempt to reconnect, plus up to the jitter. It may be short: there is one
/// attempt at a time.
const RECONNECT_MS: u32 = 50;
const RECONNECT_JITTER_MS: u32 = 20;

/// A connection attempt, and each step of its handshake, that takes longer has failed. Two of them
/// in a row must fit the two seconds in which a Redis that is back must decide again.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection without an answer for so long beyond the time limit of a call is replaced. Shorter
/// than the breaker's pause between probes, because each write starts the count anew.
const SILENCE: Duration = Duration::from_millis(50);

/// Commands that may wait for the connection: more than one worker has requests in flight within a
/// time limit.
const MAX_WAITING_COMMANDS: usize = 8_192;

impl Connector {
    pub fn new(
        spec: &RedisSpec,
        limits: CallLimits,
        events: ConnectionEvents,
    ) -> Result<Self, ConnectError> {
        let address = Address::parse(&spec.url).ok_or(ConnectError::Url)?;
        let mut config = Config {
            fail_fast: false,
            username: address.login.username,
            password: address.login.password,
            database: address.database,
            ..Config::default()
        };
        if address.tls {
            spec.tls.apply(&mut config)?;
        }
        Ok(Self {
            config,
            location: address.location,
            limits,
            events,
        })
    }

    /// Starts a client of the one server, or of the primary that the sentinels name, in the current
    /// runtime. Returns before the connection is open.
    pub fn connect(&self) -> Result<Client, ConnectError> {
        self.connect_to(
            &self.config,
            match &self.location {
                ServerLocation::Server(host) => ServerConfig::Centralized {
                    server: server(host),
                },
                ServerLocation::Socket(path) => ServerConfig::Unix { path: path.clone() },
                ServerLocation::Sentinel {
                    sentinels,
                    service,
                    login,
                } => ServerConfig::Sentinel {
                    hosts: sentinels.iter().map(server).collect(),
                    service_name: service.clone(),
                    username: login.username.clone(),
                    password: login.password.clone(),
                },
                ServerLocation::Cluster(_) => return Err(ConnectError::Client),
            },
        )
    }

    /// Starts a client of one server of a cluster. The client library takes it for a single server:
    /// its own way of following redirections takes the next reply of a shared connection for that
    /// of its own command, and needs commands that may be sent twice.
    pub fn connect_node(&self, host: &Host) -> Result<Client, ConnectError> {
        self.connect_to(
            &self.config,
            ServerConfig::Centralized {
                server: server(host),
            },
        )
    }

    /// Starts a client of a sentinel, with its own login.
    pub fn connect_sentinel(&self, host: &Host) -> Result<Client, ConnectError> {
        let ServerLocation::Sentinel { login, .. } = &self.location else {
            return Err(ConnectError::Client);
        };
        let username = login.username.clone();
        let password = login.password.clone();
        let config = Config {
            username,
            password,
            database: None,
            ..self.config.clone()
        };
        self.connect_to(
            &config,
            ServerConfig::Centralized {
                server: server(host),
            },
        )
    }

    fn connect_to(&self, config: &Config, server: ServerConfig) -> Result<Client, ConnectError> {
        let CallLimits { timeout, answer } = self.limits;
        let connect_timeout = CONNECT_TIMEOUT.max(timeout);
        let label = label(&server);
        let client = Builder::from_config(Config {
            server,
            ..config.clone()
        })
        .with_performance_config(|performance| performance.default_command_timeout = answer)
        .with_connection_config(|connection| {
            connection.connection_timeout = connect_timeout;
            connection.internal_command_timeout = connect_timeout;
            connection.max_command_attempts = 1;
            connection.max_command_buffer_len = MAX_WAITING_COMMANDS;
            connection.reconnect_on_auth_error = true;
            connection.unresponsive = UnresponsiveConfig {
                max_timeout: Some(timeout + SILENCE),
                interval: SILENCE / 2,
            };
            connection.tcp = TcpConfig {
                nodelay: Some(true),
                user_timeout: Some(connect_timeout),
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
        if self.events == ConnectionEvents::Logged {
            connection_log::start(&client, label);
        }
        drop(client.connect());
        Ok(client)
    }
}

/// A server as the client library wants it: it resolves `host:port`, and verifies certificates by
/// the bare name.
fn server(host: &Host) -> Server {
    let mut server = if host.name.contains(':') {
        Server::new(format!("[{}]", host.name), host.port)
    } else {
        Server::new(&*host.name, host.port)
    };
    tls::verify_as(&mut server, &host.name);
    server
}

/// A server's name in the log, without credentials.
fn label(config: &ServerConfig) -> String {
    match config {
        ServerConfig::Unix { path } => path.display().to_string(),
        ServerConfig::Sentinel { service_name, .. } => format!("{service_name}, by its sentinels"),
        ServerConfig::Centralized { server } => server.to_string(),
        ServerConfig::Clustered { .. } => String::new(),
    }
}
