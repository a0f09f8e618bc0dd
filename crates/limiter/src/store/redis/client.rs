//! How a connection to Redis is kept.
//!
//! Guarantees that a client neither waits for Redis at start nor gives up on it, sends no command twice, keeps few commands
//! waiting, and notices a connection that went silent. The settings answer to the client library's defaults, which do the
//! opposite. Never prints the URL: it holds the credentials.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::{
    Config, ReconnectPolicy, Server, ServerConfig, TcpConfig, TlsConfig, TlsConnector, UnresponsiveConfig,
};

use crate::store::redis::address::{Address, Host, ServerLocation};
use crate::store::redis::spec::RedisSpec;
use crate::store::redis::tls::TlsError;
use crate::store::redis::topology::connection_log as diary;

/// Why a store's description cannot be used. Whether the server is there is not among the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("the store's URL must be redis://[user:password@]host[:port][/database], or one of docs/configuration.md")]
    Url,
    #[error("TLS to the store cannot be set up: {0}")]
    Certificates(#[from] TlsError),
    #[error("the client library refuses its configuration")]
    Client,
}

/// Who tells the operator when a connection fails. One does per process, so that there is one line for all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Aloud,
    Quiet,
}

/// What all connections of a store have in common.
pub(crate) struct Dial {
    config: Config,
    pub place: ServerLocation,
    pub timeout: Duration,
    voice: Voice,
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

impl Dial {
    /// For calls that fail after `timeout`.
    pub fn new(spec: &RedisSpec, timeout: Duration, voice: Voice) -> Result<Self, ConnectError> {
        let address = Address::parse(&spec.url).ok_or(ConnectError::Url)?;
        let tls = address.tls.then(|| spec.tls.client()).transpose()?;
        let config = Config {
            fail_fast: false,
            username: address.login.username,
            password: address.login.password,
            database: address.database,
            tls: tls.map(|config| TlsConfig::from(TlsConnector::from(config))),
            ..Config::default()
        };
        Ok(Self { config, place: address.place, timeout, voice })
    }

    /// Starts a client of the one server, or of the primary that the sentinels name, in the current runtime. Returns before
    /// it is connected.
    pub fn start(&self) -> Result<Client, ConnectError> {
        self.start_at(
            &self.config,
            match &self.place {
                ServerLocation::Server(host) => ServerConfig::Centralized { server: server(host) },
                ServerLocation::Socket(path) => ServerConfig::Unix { path: path.clone() },
                ServerLocation::Sentinel { sentinels, service, login } => ServerConfig::Sentinel {
                    hosts: sentinels.iter().map(server).collect(),
                    service_name: service.clone(),
                    username: login.username.clone(),
                    password: login.password.clone(),
                },
                ServerLocation::Cluster(_) => return Err(ConnectError::Client),
            },
        )
    }

    /// The same for a server of a cluster. To the client library it is a server like any other: its own way of following
    /// redirections takes the next reply of a shared connection for that of its own command, and needs commands that may
    /// be sent twice.
    pub fn start_node(&self, host: &Host) -> Result<Client, ConnectError> {
        self.start_at(&self.config, ServerConfig::Centralized { server: server(host) })
    }

    /// The same for a sentinel, with its own login.
    pub fn start_sentinel(&self, host: &Host) -> Result<Client, ConnectError> {
        let ServerLocation::Sentinel { login, .. } = &self.place else { return Err(ConnectError::Client) };
        let (username, password) = (login.username.clone(), login.password.clone());
        let config = Config { username, password, database: None, ..self.config.clone() };
        self.start_at(&config, ServerConfig::Centralized { server: server(host) })
    }

    fn start_at(&self, config: &Config, server: ServerConfig) -> Result<Client, ConnectError> {
        let patience = CONNECT_TIMEOUT.max(self.timeout);
        let label = label(&server);
        let client = Builder::from_config(Config { server, ..config.clone() })
            .with_performance_config(|performance| performance.default_command_timeout = self.timeout)
            .with_connection_config(|connection| {
                connection.connection_timeout = patience;
                connection.internal_command_timeout = patience;
                connection.max_command_attempts = 1;
                connection.max_command_buffer_len = QUEUE;
                connection.reconnect_on_auth_error = true;
                connection.unresponsive =
                    UnresponsiveConfig { max_timeout: Some(self.timeout + SILENCE), interval: SILENCE / 2 };
                connection.tcp = TcpConfig { nodelay: Some(true), user_timeout: Some(patience), ..Default::default() };
            })
            .set_policy(ReconnectPolicy::Constant {
                attempts: 0,
                max_attempts: 0,
                delay: RECONNECT_MS,
                jitter: RECONNECT_JITTER_MS,
            })
            .build()
            .map_err(|_| ConnectError::Client)?;
        if self.voice == Voice::Aloud {
            diary::keep(&client, label);
        }
        drop(client.connect());
        Ok(client)
    }
}

/// The client library resolves `host:port`, and verifies certificates by the bare name.
fn server(host: &Host) -> Server {
    let mut server = match host.name.contains(':') {
        true => Server::new(format!("[{}]", host.name), host.port),
        false => Server::new(&*host.name, host.port),
    };
    server.tls_server_name = Some((&*host.name).into());
    server
}

/// For the log: no credentials are in it.
fn label(config: &ServerConfig) -> String {
    match config {
        ServerConfig::Unix { path } => path.display().to_string(),
        ServerConfig::Sentinel { service_name, .. } => format!("{service_name}, by its sentinels"),
        ServerConfig::Centralized { server } => server.to_string(),
        ServerConfig::Clustered { .. } => String::new(),
    }
}
