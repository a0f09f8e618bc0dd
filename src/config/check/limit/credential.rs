//! Parts of a request that have a credential of some authenticator: they leave the process only as
//! a hash.

use tollgate_limiter::limit::key::KeyPart;

use crate::identity::credential::CredentialPlace;

/// `part`, as a secret if an authenticator finds a credential there.
pub fn hashed(part: KeyPart, credentials: &[CredentialPlace]) -> KeyPart {
    let is_credential = credentials.iter().any(|place| match (place, &part) {
        (CredentialPlace::Header(place), KeyPart::Header(name)) => place == name,
        (CredentialPlace::Query(place), KeyPart::Query(name)) => place == name,
        _ => false,
    });
    if is_credential {
        KeyPart::Secret(Box::new(part))
    } else {
        part
    }
}
