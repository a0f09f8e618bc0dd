//! The client side of TLS: connects to upstreams.
//!
//! Guarantees that a certificate is verified, its name included, unless verification is switched
//! off, and that sessions are resumed only among connections with the same settings.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

pub use super::client_spec::{ClientTlsSpec, Pem};
use super::stream::{EncryptedSocket, TlsStream};
use crate::transport::ClearStream;

/// Bytes of plain text that wait for a slow upstream, at most.
const BUFFER: usize = 64 * 1024;

/// The settings, ready to connect with.
#[derive(Clone)]
pub struct ClientTls {
    spec: ClientTlsSpec,
    /// Offers HTTP/2 and HTTP/1.1.
    any_version: Arc<ClientConfig>,
    /// Offers HTTP/1.1 alone.
    http1: Arc<ClientConfig>,
}

/// The name that a certificate must have: a host name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName(ServerName<'static>);

/// The versions of HTTP that ALPN offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpOffer {
    Any,
    Http1,
}

/// The fault of a PEM text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientTlsError {
    #[error("there is no certificate in it")]
    NoAuthority,
    #[error("a certificate in it cannot serve as an authority")]
    Authority,
    #[error("there is no certificate in it")]
    Certificate,
    #[error("there is no private key in it")]
    Key,
    #[error("the key is not the certificate's")]
    Pair,
    #[error("the system has no certificate authorities")]
    System,
}

/// Takes any certificate, but not one whose key the peer does not have.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientTls").field(&self.spec).finish()
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for ClientTls {}

impl PeerName {
    /// The name `host`. `None`: neither a host name nor an IP address, or with a port.
    pub fn parse(host: &str) -> Option<Self> {
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let name = ServerName::try_from(host).ok()?;
        Some(Self(name.to_owned()))
    }
}

/// Whether a handshake failed because the server speaks none of the offered versions of HTTP (RFC
/// 7301 §3.2).
pub fn is_offer_refused(error: &io::Error) -> bool {
    let tls = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>());
    matches!(
        tls,
        Some(Error::AlertReceived(
            AlertDescription::NoApplicationProtocol
        ))
    )
}

impl ClientTls {
    /// Prepares the settings.
    ///
    /// # Errors
    /// A PEM text lacks its content, or the system has no certificate authorities.
    pub fn new(spec: ClientTlsSpec) -> Result<Self, ClientTlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        // The provider has a cipher suite for both versions of TLS.
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|_| ClientTlsError::System)?;
        let verifier: Arc<dyn ServerCertVerifier> = if spec.verify {
            let roots = Arc::new(roots(spec.ca.as_deref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
            verifier.build().map_err(|_| ClientTlsError::NoAuthority)?
        } else {
            Arc::new(AnyCertificate(provider))
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &spec.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, ClientTlsError::Certificate)?;
                let key = private_key(key)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|_| ClientTlsError::Pair)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        Ok(Self {
            spec,
            any_version: Arc::new(config),
            http1,
        })
    }

    /// Does the handshake over `socket`, with the upstream that is called `name`.
    ///
    /// # Errors
    /// The handshake fails, for example because the certificate is not trusted.
    pub async fn connect(
        &self,
        socket: ClearStream,
        name: &PeerName,
        offer: HttpOffer,
    ) -> io::Result<TlsStream> {
        let config = match offer {
            HttpOffer::Any => &self.any_version,
            HttpOffer::Http1 => &self.http1,
        };
        let socket = EncryptedSocket::new(socket, Bytes::new());
        let tls = TlsConnector::from(Arc::clone(config))
            .connect_with(name.0.clone(), socket, |session| {
                session.set_buffer_limit(Some(BUFFER));
            })
            .await?;
        Ok(TlsStream::new(tls))
    }
}

fn roots(ca: Option<&[u8]>) -> Result<RootCertStore, ClientTlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for authority in certificates(pem, ClientTlsError::NoAuthority)? {
                roots
                    .add(authority)
                    .map_err(|_| ClientTlsError::Authority)?;
            }
        }
        None => {
            // A system may have a few authorities that cannot be read.
            let (added, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(ClientTlsError::System);
            }
        }
    }
    Ok(roots)
}

fn certificates(
    pem: &[u8],
    none: ClientTlsError,
) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(none),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, ClientTlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| ClientTlsError::Key)
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
