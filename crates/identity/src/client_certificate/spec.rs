//! A client certificate as data: the part that has the client's id.

use tollgate_limiter::limit::key::CertificatePart;

use crate::method::MethodSpec;

impl MethodSpec for CertificatePart {
    /// RFC 9110 §15.5.2 wants a challenge in every 401, and there is none for certificates.
    fn unchallenged_need(&self) -> Option<&'static str> {
        Some("a client certificate is needed")
    }
}
