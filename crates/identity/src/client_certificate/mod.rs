//! Authentication by a part of the client's certificate, which the TLS handshake has verified.

use std::sync::Arc;

use tollgate_limiter::limit::key::{CallerIdentity, CertificatePart};

use super::authenticator::{Authenticator, BuildContext, Finding};
use super::key_table::ApiKeyTable;
use super::refusal::AuthenticationRefusal;
use super::source::CredentialSource;

mod spec;

const NO_NAME: AuthenticationRefusal =
    AuthenticationRefusal::Forbidden("the certificate has no such name");

/// Authenticates clients by their certificates.
pub struct CertificateAuthenticator {
    name: Arc<str>,
    part: CertificatePart,
}

impl CertificateAuthenticator {
    pub fn new(part: CertificatePart, context: BuildContext<'_>) -> Self {
        Self {
            name: context.name.clone(),
            part,
        }
    }
}

impl Authenticator for CertificateAuthenticator {
    fn check(&self, source: CredentialSource<'_>, _: Option<&ApiKeyTable>) -> Finding {
        let Some(certificate) = source.client_certificate else {
            return Finding::Absent;
        };
        match self.part.value(certificate) {
            Some(id) => Finding::checked(Ok(Arc::new(CallerIdentity::new(&self.name, id)))),
            None => Finding::refused(NO_NAME),
        }
    }
}
