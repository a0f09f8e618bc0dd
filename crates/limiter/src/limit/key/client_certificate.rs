//! The certificate by which a client has authenticated itself, as keys see it.

/// A client's certificate that was verified. Whoever terminates TLS fills it in, each part in its
/// one spelling; the layer takes it from the request's extensions.
///
/// ```
/// use tollgate_limiter::limit::key::{CertificatePart, KeyPart};
/// use tollgate_limiter::Limit;
///
/// let limit = Limit::per_hour("per-service", 1_000).key(KeyPart::ClientCertificate(CertificatePart::Subject));
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject, as RFC 4514 writes it: `CN=billing,O=Example`.
    pub subject: String,
    /// The subject alternative names in their order: `DNS:a.example,URI:spiffe://example/a`.
    pub alternative_names: String,
    /// The SHA-256 of the certificate, in hexadecimal digits of lower case.
    pub fingerprint: String,
}

/// The part of a certificate that a key counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePart {
    Subject,
    /// All subject alternative names together.
    AlternativeNames,
    Fingerprint,
}

impl CertificatePart {
    /// The word for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::AlternativeNames => "san",
            Self::Fingerprint => "fingerprint",
        }
    }

    /// This part of `certificate`. `None`: it has none.
    pub fn value(self, certificate: &ClientCertificate) -> Option<&str> {
        let text = match self {
            Self::Subject => &certificate.subject,
            Self::AlternativeNames => &certificate.alternative_names,
            Self::Fingerprint => &certificate.fingerprint,
        };
        Some(text.as_str()).filter(|text| !text.is_empty())
    }
}
