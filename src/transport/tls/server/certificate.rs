//! Certificates of a listener: read from files, checked, and chosen for a client by the name it
//! asks for.
//!
//! Guarantees that a certificate and its key match, and that a wildcard gives way to an exact name.

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

/// Bytes of a file of certificates or keys at most. Bundles of every public authority have a fifth
/// of it.
const MOST_BYTES: u64 = 1 << 20;

/// A file of certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    problem: String,
    /// It could not be read, and perhaps can be in a moment.
    passes: bool,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct ServerCertificate {
    pub file: PathBuf,
    pub names: CertificateNames,
    /// From when to when it is valid, in seconds since 1970.
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
            passes: false,
        }
    }

    fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| {
            let passes = regular_file::is_transient(&error);
            Self {
                passes,
                ..Self::new(path, format!("cannot read: {error}"))
            }
        }
    }

    /// Whether it could not be read for a reason that may pass.
    pub fn may_pass(&self) -> bool {
        self.passes
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

    /// Shows in the metrics when it ends to be valid.
    pub fn record_expiry(&self) {
        self.expiry.set(self.validity.1 as f64);
    }

    fn fits(&self, schemes: &[SignatureScheme]) -> bool {
        self.key.key.choose_scheme(schemes).is_some()
    }
}

impl ServerCertificates {
    /// Those for a client that asks for `name`, the best first: all that have it, else all with a
    /// wildcard for it, else the first one.
    pub fn of_name(&self, name: Option<&str>) -> Vec<&ServerCertificate> {
        let name = name
            .map(|name| name.trim_end_matches('.').to_ascii_lowercase())
            .unwrap_or_default();
        let exact: Vec<_> = self
            .0
            .iter()
            .filter(|certificate| certificate.names.has(&name))
            .collect();
        if !exact.is_empty() {
            return exact;
        }
        let wildcard: Vec<_> = self
            .0
            .iter()
            .filter(|certificate| certificate.names.has_wildcard_for(&name))
            .collect();
        if wildcard.is_empty() {
            self.0.iter().take(1).collect()
        } else {
            wildcard
        }
    }

    /// Whether a client that asked for `name` was shown a certificate for `host`.
    pub fn shown_covers(&self, name: Option<&str>, host: &str) -> bool {
        self.of_name(name)
            .iter()
            .any(|certificate| certificate.names.covers(host))
    }

    /// Whether any of them is for `host`.
    pub fn any_covers(&self, host: &str) -> bool {
        self.0
            .iter()
            .any(|certificate| certificate.names.covers(host))
    }
}

impl ResolvesServerCert for ServerCertificates {
    /// Of several certificates for one name, with keys of different kinds, the first that the
    /// client can verify.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.of_name(hello.server_name());
        let fitting = found
            .iter()
            .find(|certificate| certificate.fits(hello.signature_schemes()));
        fitting
            .or(found.first())
            .map(|certificate| Arc::clone(&certificate.key))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    regular_file::read(path, MOST_BYTES).map_err(TlsFileError::unreadable(path))
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
        parsed
            .subject()
            .iter_common_name()
            .filter_map(|name| name.as_str().ok())
            .for_each(|name| names.add(name));
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
