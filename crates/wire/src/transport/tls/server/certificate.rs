//! Certificates of a listener: read from files, checked, and chosen for a client by the name that
//! it asks for.
//!
//! Guarantees that a certificate and its key match, and that an exact name precedes a wildcard.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics::{Gauge, gauge};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::names::CertificateNames;
use super::spec::CertificateFiles;
use crate::regular_file;

/// Bytes of a file of certificates or keys at most: five times a bundle of every public authority.
const MOST_BYTES: u64 = 1 << 20;

/// A file of certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    problem: String,
    /// The file may be readable in a moment.
    is_transient: bool,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct ServerCertificate {
    pub file: PathBuf,
    pub names: CertificateNames,
    /// The beginning and the end of the validity, in seconds since 1970.
    pub validity: (i64, i64),
    key: Arc<CertifiedKey>,
    expiry: Gauge,
}

/// The certificates of a listener, at least one.
#[derive(Debug)]
pub struct ServerCertificates(pub Vec<ServerCertificate>);

impl TlsFileError {
    pub fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.into(),
            is_transient: false,
        }
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            problem: format!("cannot read: {error}"),
            is_transient: regular_file::is_transient(error),
        }
    }

    /// Whether the file may be readable in a moment.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

impl ServerCertificate {
    /// Reads and checks a certificate and its key.
    pub fn load(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Self, TlsFileError> {
        let chain = certificates(&files.cert)?;
        let key = private_key(&files.key)?;
        let (names, validity) = names_and_validity(&chain[0])
            .map_err(|problem| TlsFileError::new(&files.cert, problem))?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFileError::new(
                &files.key,
                format!("is not the key of {}", files.cert.display()),
            ),
            error => TlsFileError::new(&files.key, format!("cannot be used: {error}")),
        })?;
        let expiry = gauge!(
            "tollgate_tls_certificate_expiry_timestamp_seconds",
            "certificate" => files.cert.display().to_string()
        );
        Ok(Self {
            file: files.cert.clone(),
            names,
            validity,
            key: Arc::new(key),
            expiry,
        })
    }

    /// Shows the end of the validity in the metrics.
    pub fn record_expiry(&self) {
        self.expiry.set(self.validity.1 as f64);
    }

    fn fits(&self, schemes: &[SignatureScheme]) -> bool {
        self.key.key.choose_scheme(schemes).is_some()
    }
}

impl ServerCertificates {
    /// The certificates for a client that asks for `name`: all with this name, else all with a
    /// wildcard for it, else the first one.
    pub fn for_name(&self, name: Option<&str>) -> Vec<&ServerCertificate> {
        let name = name
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_ascii_lowercase();
        let mut exact = Vec::new();
        let mut wildcard = Vec::new();
        for certificate in &self.0 {
            if certificate.names.has(&name) {
                exact.push(certificate);
            } else if certificate.names.has_wildcard_for(&name) {
                wildcard.push(certificate);
            }
        }
        if !exact.is_empty() {
            exact
        } else if !wildcard.is_empty() {
            wildcard
        } else {
            self.0.iter().take(1).collect()
        }
    }

    /// Whether a client that asked for `name` was shown a certificate for `host`.
    pub fn shown_covers(&self, name: Option<&str>, host: &str) -> bool {
        self.for_name(name)
            .iter()
            .any(|certificate| certificate.names.covers(host))
    }

    /// Whether any certificate is for `host`.
    pub fn any_covers(&self, host: &str) -> bool {
        self.0
            .iter()
            .any(|certificate| certificate.names.covers(host))
    }
}

impl ResolvesServerCert for ServerCertificates {
    /// The first certificate for the name that the client can verify: there may be several, with
    /// keys of different kinds. The first one if the client can verify none.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.for_name(hello.server_name());
        let fitting = found
            .iter()
            .find(|certificate| certificate.fits(hello.signature_schemes()));
        let certificate = fitting.or(found.first())?;
        Some(Arc::clone(&certificate.key))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    regular_file::read(path, MOST_BYTES).map_err(|error| TlsFileError::unreadable(path, &error))
}

/// The certificates in a file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = read(path)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsFileError::new(
            path,
            "holds no certificate (BEGIN CERTIFICATE)",
        )),
        Err(error) => Err(TlsFileError::new(path, format!("is no PEM file: {error}"))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound
            if memchr::memmem::find(&text, b"BEGIN ENCRYPTED PRIVATE KEY").is_some() =>
        {
            TlsFileError::new(
                path,
                "is encrypted: store it without a passphrase (openssl pkey -in … -out …)",
            )
        }
        pem::Error::NoItemsFound => {
            TlsFileError::new(path, "holds no private key (BEGIN PRIVATE KEY)")
        }
        error => TlsFileError::new(path, format!("is no PEM file: {error}")),
    })
}

/// The subject alternative names of a certificate, or its common name if it has none; and its
/// validity.
fn names_and_validity(der: &CertificateDer<'_>) -> Result<(CertificateNames, (i64, i64)), String> {
    let (_, parsed) =
        X509Certificate::from_der(der).map_err(|error| format!("is no certificate: {error}"))?;
    let mut names = CertificateNames::default();
    let extension = parsed
        .subject_alternative_name()
        .map_err(|error| format!("has malformed names: {error}"))?;
    for name in extension
        .iter()
        .flat_map(|extension| &extension.value.general_names)
    {
        match name {
            GeneralName::DNSName(name) => names.add(name),
            GeneralName::IPAddress(bytes) => {
                if let Ok(bytes) = <[u8; 4]>::try_from(*bytes) {
                    names.add_address(bytes.into());
                } else if let Ok(bytes) = <[u8; 16]>::try_from(*bytes) {
                    names.add_address(bytes.into());
                }
            }
            _ => {}
        }
    }
    if names.is_empty() {
        for name in parsed.subject().iter_common_name() {
            if let Ok(name) = name.as_str() {
                names.add(name);
            }
        }
    }
    let validity = parsed.validity();
    Ok((
        names,
        (
            validity.not_before.timestamp(),
            validity.not_after.timestamp(),
        ),
    ))
}
