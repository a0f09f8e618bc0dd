//! The TLS side of a listener, shared by its workers: the certificates at work, and handshakes with
//! them.
//!
//! Guarantees that new files are taken over whole or not at all, that no connection notices, and
//! that the present certificates count for a client which resumes a session.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{Acceptor, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{HandshakeKind, RootCertStore, ServerConfig, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::LazyConfigAcceptor;

use super::certificate::{ServerCertificate, ServerCertificates, TlsFileError, certificates};
use super::client_certificate::ClientIdentity;
use super::metrics::{HandshakeMetrics, HandshakeOutcome};
use super::session::TlsSession;
use super::spec::{ClientAuthRequirement, ClientAuthSpec, MinTlsVersion, TlsServerSpec};
use crate::transport::ClearStream;
use crate::transport::tls::stream::{EncryptedSocket, TlsStream};
use tollgate_limiter::clock;

/// Bytes that the first read takes at most: most ClientHellos have 300 to 1 800.
const FIRST_READ: usize = 2048;

/// Most bytes of ciphertext and plaintext, each, that a connection holds for a client that does not
/// read: two records.
const BUFFER_LIMIT: usize = 32 * 1024;

/// Bytes that are read from a client whose handshake failed: the client gets to read the alert.
const LINGER_BYTES: usize = 64 * 1024;
/// Time in which these bytes are read.
const LINGER: Duration = Duration::from_secs(1);

/// The TLS side of a listener.
pub struct TlsAcceptor {
    settings: ArcSwap<TlsSettings>,
    metrics: HandshakeMetrics,
}

/// A version of a listener's certificates and settings.
pub struct TlsSettings {
    pub spec: TlsServerSpec,
    config: Arc<ServerConfig>,
    certificates: Arc<ServerCertificates>,
    clients: Option<ClientAuth>,
    turns: Arc<Semaphore>,
}

/// The authentication of clients.
struct ClientAuth {
    spec: ClientAuthSpec,
    roots: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A connection that goes on.
pub enum Accepted {
    Tls(Box<TlsStream>, TlsSession),
    /// The client speaks HTTP in the clear, and gets an answer that says so. Has the bytes that
    /// were read already.
    PlainHttp(ClearStream, BytesMut),
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct HandshakeError {
    outcome: HandshakeOutcome,
    error: io::Error,
}

impl TlsSettings {
    /// Reads the files that `spec` names. `before`: the version at work, whose tickets stay good.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(spec: &TlsServerSpec, before: Option<&Self>) -> Result<Self, TlsFileError> {
        let provider = Arc::new(default_provider());
        let mut certificates = Vec::new();
        for files in &spec.certificates {
            certificates.push(ServerCertificate::load(files, &provider)?);
        }
        let certificates = Arc::new(ServerCertificates(certificates));
        let clients = match &spec.client_auth {
            Some(auth) => Some(ClientAuth::load(auth, &provider)?),
            None => None,
        };
        let versions = match spec.min_version {
            MinTlsVersion::Tls12 => &[&version::TLS13, &version::TLS12][..],
            MinTlsVersion::Tls13 => &[&version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| unusable(spec, &error))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(&clients.verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as Arc<_>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Tickets need no memory here, and all workers read them. Their keys change every six
        // hours.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = match before {
            Some(before) if before.authenticates_like(clients.as_ref()) => {
                Arc::clone(&before.config.ticketer)
            }
            // Tickets stand for an authentication: another one needs new tickets.
            Some(_) | None => Ticketer::new().map_err(|error| unusable(spec, &error))?,
        };
        let turns = match before {
            Some(before) if before.spec.max_handshakes == spec.max_handshakes => {
                Arc::clone(&before.turns)
            }
            Some(_) | None => {
                let turns = spec.max_handshakes.min(Semaphore::MAX_PERMITS);
                Arc::new(Semaphore::new(turns))
            }
        };
        Ok(Self {
            spec: spec.clone(),
            config: Arc::new(config),
            certificates,
            clients,
            turns,
        })
    }

    pub fn certificates(&self) -> &[ServerCertificate] {
        &self.certificates.0
    }

    fn authenticates_like(&self, other: Option<&ClientAuth>) -> bool {
        match (&self.clients, other) {
            (None, None) => true,
            (Some(one), Some(other)) => one.spec == other.spec && one.roots == other.roots,
            _ => false,
        }
    }

    /// The facts about a client once its handshake has ended. A client that resumes a session shows
    /// no certificate: its certificate of that session must still be valid.
    fn session(&self, tls: &rustls::ServerConnection) -> Result<TlsSession, rustls::Error> {
        let presented = tls.peer_certificates().unwrap_or_default();
        if tls.handshake_kind() == Some(HandshakeKind::Resumed)
            && let (Some(clients), Some((own, others))) = (&self.clients, presented.split_first())
        {
            clients
                .verifier
                .verify_client_cert(own, others, UnixTime::now())?;
        }
        Ok(TlsSession {
            server_name: tls
                .server_name()
                .map(|name| name.trim_end_matches('.').to_ascii_lowercase().into()),
            client: presented
                .first()
                .map(|own| Arc::new(ClientIdentity::from_certificate(own))),
            is_http2: tls.alpn_protocol() == Some(b"h2"),
            authenticates: self.clients.is_some(),
            certificates: Arc::clone(&self.certificates),
        })
    }
}

/// The error for settings that rustls refuses. Names the first certificate.
fn unusable(spec: &TlsServerSpec, error: &rustls::Error) -> TlsFileError {
    TlsFileError::new(&spec.certificates[0].cert, error.to_string())
}

impl ClientAuth {
    fn load(spec: &ClientAuthSpec, provider: &Arc<CryptoProvider>) -> Result<Self, TlsFileError> {
        let roots = certificates(&spec.ca)?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|error| {
                let problem = format!("holds an authority that cannot be used: {error}");
                TlsFileError::new(&spec.ca, problem)
            })?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
        let builder = match spec.requirement {
            ClientAuthRequirement::Required => builder,
            ClientAuthRequirement::Optional => builder.allow_unauthenticated(),
        };
        let verifier = builder
            .build()
            .map_err(|error| TlsFileError::new(&spec.ca, error.to_string()))?;
        Ok(Self {
            spec: spec.clone(),
            roots,
            verifier,
        })
    }
}

impl TlsAcceptor {
    /// An acceptor that speaks TLS by these settings. Its metrics belong to the recorder that is
    /// installed now.
    pub fn new(settings: TlsSettings) -> Self {
        Self {
            settings: ArcSwap::from_pointee(settings),
            metrics: HandshakeMetrics::new(),
        }
    }

    /// The version at work.
    pub fn settings(&self) -> Arc<TlsSettings> {
        self.settings.load_full()
    }

    /// Takes over another version for handshakes that begin from now on.
    pub fn install(&self, settings: TlsSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Makes the handshake on a connection from which `early` was read already, within `limit`.
    /// Calls `begin` when the first byte has come.
    ///
    /// # Errors
    /// The handshake failed, and the connection is closed.
    pub async fn accept(
        &self,
        stream: ClearStream,
        early: BytesMut,
        limit: Duration,
        begin: impl FnOnce(),
    ) -> Result<Accepted, HandshakeError> {
        let begun = clock::now();
        let counted = self.metrics.begin();
        let settings = self.settings.load_full();
        let accepted =
            match timeout_at(begun + limit, handshake(&settings, stream, early, begin)).await {
                Ok(accepted) => accepted,
                Err(_) => Err(HandshakeError {
                    outcome: HandshakeOutcome::Timeout,
                    error: io::ErrorKind::TimedOut.into(),
                }),
            };
        let outcome = match &accepted {
            Ok((_, outcome)) => *outcome,
            Err(error) => error.outcome,
        };
        counted.end(outcome, clock::now().saturating_duration_since(begun));
        accepted.map(|(accepted, _)| accepted)
    }
}

async fn handshake(
    settings: &TlsSettings,
    mut stream: ClearStream,
    mut early: BytesMut,
    begin: impl FnOnce(),
) -> Result<(Accepted, HandshakeOutcome), HandshakeError> {
    if early.is_empty() {
        early.reserve(FIRST_READ);
        if stream.read_buf(&mut early).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    begin();
    // A record of TLS begins with a number below 32, a request with a method, and methods in use
    // are upper-case words.
    if early[0].is_ascii_uppercase() {
        return Ok((
            Accepted::PlainHttp(stream, early),
            HandshakeOutcome::PlainHttp,
        ));
    }
    let socket = EncryptedSocket::new(stream, early.freeze());
    let mut hello = LazyConfigAcceptor::new(Acceptor::default(), socket);
    let hello = match (&mut hello).await {
        Ok(hello) => hello,
        Err(error) => return Err(refuse(error, hello.take_io()).await),
    };
    // The semaphore is never closed: an error would mean that there is no bound to keep.
    let turn = settings.turns.acquire().await.ok();
    // The signature is made here: the costly step.
    let finishing = hello.into_stream_with(Arc::clone(&settings.config), |tls| {
        tls.set_buffer_limit(Some(BUFFER_LIMIT))
    });
    // A client that is slow to finish takes nobody's turn.
    drop(turn);
    let tls = match finishing.into_fallible().await {
        Ok(tls) => tls,
        Err((error, socket)) => return Err(refuse(error, Some(socket)).await),
    };
    let connection = tls.get_ref().1;
    let outcome = match connection.handshake_kind() {
        Some(HandshakeKind::Resumed) => HandshakeOutcome::Resumed,
        _ => HandshakeOutcome::Full,
    };
    let session = settings
        .session(connection)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((
        Accepted::Tls(Box::new(TlsStream::new(tls)), session),
        outcome,
    ))
}

/// Ends a connection whose client was sent an alert. A close with unread input would reset the
/// connection, and the reset can overtake the alert.
async fn refuse(error: io::Error, socket: Option<EncryptedSocket>) -> HandshakeError {
    // There is an alert only for errors of rustls, which the client's bytes have caused.
    if let (Some(mut socket), Some(_)) = (socket, error.get_ref()) {
        let lingering = async {
            let _ = socket.shutdown().await;
            let mut left = LINGER_BYTES;
            let mut read = [0; 1024];
            while let Ok(length @ 1..) = socket.read(&mut read).await
                && left > length
            {
                left -= length;
            }
        };
        let _ = timeout(LINGER, lingering).await;
    }
    error.into()
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        use rustls::Error as E;
        let outcome = match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(E::NoCertificatesPresented | E::InvalidCertificate(_)) => {
                HandshakeOutcome::ClientCertificate
            }
            Some(_) => HandshakeOutcome::Failed,
            None => HandshakeOutcome::Closed,
        };
        Self { outcome, error }
    }
}
