//! A JSON Web Key Set (RFC 7517): the keys of an issuer.
//!
//! Guarantees that each key has the algorithms of its own kind alone, and that a secret is taken
//! from a file only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value as Json;

use super::algorithm::install_verifiers;
use crate::key_table::{CredentialHash, hash};

/// The keys of an issuer.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<SetKey>,
    /// The hash of its text: two sets differ if their texts do.
    pub version: CredentialHash,
}

#[derive(Debug)]
struct SetKey {
    id: Option<String>,
    /// The algorithms of the key's kind, or the one that it is for.
    algorithms: Vec<Algorithm>,
    /// Never shown.
    key: DecodingKey,
}

/// The origin of a set, which says what may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySetOrigin {
    /// Anyone may read it: a secret in it is none.
    Url,
    File,
}

/// Why a text is no set of keys. Never quotes it: a file may have secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    #[error("it is over 256 KiB")]
    TooLarge,
    #[error("it is no JSON Web Key Set")]
    NotASet,
    #[error("it has more than 256 keys")]
    TooMany,
    #[error(
        "no key in it can verify a token: RSA of 2048 bits or more, P-256, P-384, Ed25519 or, in a file, a secret of 32 \
         bytes or more"
    )]
    NoKey,
}

/// Bytes of a set at most. Those of large issuers have a tenth of it.
pub const MAX_SET: usize = 256 << 10;

const MAX_KEYS: usize = 256;

/// Keys of one `kid` that a token is verified by: RFC 7517 §4.5 allows several, and each costs a
/// signature.
const MAX_CANDIDATES: usize = 4;

/// Bytes of a secret at least: those of the shortest hash (RFC 7518 §3.2).
const MIN_SECRET: usize = 32;

/// Bytes of an RSA modulus at least (RFC 7518 §3.3).
const MIN_MODULUS: usize = 256;

#[derive(Deserialize)]
struct JwkSetText {
    keys: Vec<Json>,
}

impl KeySet {
    /// Reads a set. Keys of kinds that verify no token here are passed over: issuers have some for
    /// encryption.
    ///
    /// # Errors
    /// When it is no set, or no key in it is of use.
    pub fn read(text: &[u8], origin: KeySetOrigin) -> Result<Self, KeySetError> {
        install_verifiers();
        if text.len() > MAX_SET {
            return Err(KeySetError::TooLarge);
        }
        let set: JwkSetText = serde_json::from_slice(text).map_err(|_| KeySetError::NotASet)?;
        if set.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }
        // Each key is read by itself: one that cannot be read spoils no other.
        let mut keys = Vec::new();
        for key in set.keys {
            if let Ok(jwk) = serde_json::from_value(key) {
                keys.extend(SetKey::from_jwk(&jwk, origin));
            }
        }
        if keys.is_empty() {
            Err(KeySetError::NoKey)
        } else {
            Ok(Self {
                keys,
                version: hash(text),
            })
        }
    }

    /// The keys called `id` that `algorithm` needs, at most [`MAX_CANDIDATES`]; without an id, the
    /// only one.
    pub fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        // Trying all keys would be work that anyone can ask for.
        let most = match id {
            Some(_) => MAX_CANDIDATES,
            None => usize::from(self.keys_for(algorithm).nth(1).is_none()),
        };
        self.keys_for(algorithm)
            .filter(move |key| id.is_none() || key.id.as_deref() == id)
            .take(most)
            .map(|key| &key.key)
    }

    fn keys_for(&self, algorithm: Algorithm) -> impl Iterator<Item = &SetKey> {
        self.keys
            .iter()
            .filter(move |key| key.algorithms.contains(&algorithm))
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl SetKey {
    /// A key of a set. `None`: it verifies no token here.
    fn from_jwk(jwk: &Jwk, origin: KeySetOrigin) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures = common
            .public_key_use
            .as_ref()
            .is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|list| list.contains(&KeyOperations::Verify));
        if !is_for_signatures || !verifies {
            return None;
        }
        let mut algorithms = algorithms(&jwk.algorithm, origin)?.to_vec();
        if let Some(named) = common.key_algorithm {
            let only = Algorithm::try_from(named).ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
            if algorithms.is_empty() {
                return None;
            }
        }
        Some(Self {
            id: common.key_id.clone(),
            algorithms,
            key: decoding_key(&jwk.algorithm)?,
        })
    }
}

/// The algorithms of a key's kind. `None`: tokens signed by that kind are not taken.
fn algorithms(
    parameters: &AlgorithmParameters,
    origin: KeySetOrigin,
) -> Option<&'static [Algorithm]> {
    match parameters {
        AlgorithmParameters::RSA(_) => Some(AlgorithmFamily::Rsa.algorithms()),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(&[Algorithm::ES256]),
            EllipticCurve::P384 => Some(&[Algorithm::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(AlgorithmFamily::Ed.algorithms())
        }
        AlgorithmParameters::OctetKey(_) if origin == KeySetOrigin::File => {
            Some(AlgorithmFamily::Hmac.algorithms())
        }
        _ => None,
    }
}

/// The key, if it is as long as its kind must be.
fn decoding_key(parameters: &AlgorithmParameters) -> Option<DecodingKey> {
    match parameters {
        AlgorithmParameters::RSA(key) => rsa(&key.n, &key.e),
        AlgorithmParameters::EllipticCurve(key) => {
            let length = if key.curve == EllipticCurve::P256 {
                65
            } else {
                97
            };
            with_length(
                DecodingKey::from_ec_components(&key.x, &key.y).ok()?,
                length,
            )
        }
        AlgorithmParameters::OctetKeyPair(key) => {
            with_length(DecodingKey::from_ed_components(&key.x).ok()?, 32)
        }
        AlgorithmParameters::OctetKey(key) => secret(&key.value),
        _ => None,
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn rsa(modulus: &str, exponent: &str) -> Option<DecodingKey> {
    let modulus = bytes(modulus)?;
    let exponent = bytes(exponent)?;
    let modulus = without_zeros(&modulus)?;
    if modulus.len() < MIN_MODULUS {
        return None;
    }
    Some(DecodingKey::from_rsa_raw_components(
        modulus,
        without_zeros(&exponent)?,
    ))
}

/// A number without its leading zeros.
fn without_zeros(number: &[u8]) -> Option<&[u8]> {
    number.get(number.iter().position(|byte| *byte != 0)?..)
}

fn secret(text: &str) -> Option<DecodingKey> {
    let secret = bytes(text)?;
    if secret.len() < MIN_SECRET {
        return None;
    }
    Some(DecodingKey::from_secret(&secret))
}

fn with_length(key: DecodingKey, length: usize) -> Option<DecodingKey> {
    let found = key.try_get_as_bytes().map(<[u8]>::len).ok()?;
    (found == length).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str, origin: KeySetOrigin) -> Result<KeySet, KeySetError> {
        KeySet::read(format!("{{\"keys\":[{keys}]}}").as_bytes(), origin)
    }

    fn secret(id: &str, length: usize) -> String {
        let k = URL_SAFE_NO_PAD.encode(vec![7; length]);
        format!(r#"{{"kty":"oct","kid":"{id}","k":"{k}"}}"#)
    }

    #[test]
    fn a_secret_is_taken_from_a_file_alone_and_only_if_it_is_long() {
        assert!(read(&secret("a", 32), KeySetOrigin::File).is_ok());
        assert_eq!(
            read(&secret("a", 32), KeySetOrigin::Url).err(),
            Some(KeySetError::NoKey)
        );
        assert_eq!(
            read(&secret("a", 31), KeySetOrigin::File).err(),
            Some(KeySetError::NoKey)
        );
    }

    fn count(set: &KeySet, id: Option<&str>, algorithm: Algorithm) -> usize {
        set.candidates(id, algorithm).count()
    }

    #[test]
    fn a_key_is_found_by_its_id_or_if_it_is_the_only_one() {
        let one = read(&secret("a", 32), KeySetOrigin::File).unwrap();
        assert_eq!(
            [
                count(&one, None, Algorithm::HS256),
                count(&one, Some("a"), Algorithm::HS256)
            ],
            [1, 1]
        );
        assert_eq!(
            [
                count(&one, Some("b"), Algorithm::HS256),
                count(&one, None, Algorithm::RS256)
            ],
            [0, 0]
        );
        let two = read(
            &[secret("a", 32), secret("b", 33)].join(","),
            KeySetOrigin::File,
        )
        .unwrap();
        assert_eq!(
            [
                count(&two, None, Algorithm::HS256),
                count(&two, Some("b"), Algorithm::HS256)
            ],
            [0, 1]
        );
    }

    #[test]
    fn all_keys_of_one_id_are_found_up_to_a_bound() {
        fn keys(number: usize) -> String {
            let keys: Vec<_> = (0..number).map(|n| secret("a", 32 + n)).collect();
            keys.join(",")
        }
        let two = read(&[keys(2), secret("b", 32)].join(","), KeySetOrigin::File).unwrap();
        assert_eq!(
            [
                count(&two, Some("a"), Algorithm::HS256),
                count(&two, Some("b"), Algorithm::HS256)
            ],
            [2, 1]
        );
        let many = read(&keys(MAX_CANDIDATES + 1), KeySetOrigin::File).unwrap();
        assert_eq!(count(&many, Some("a"), Algorithm::HS256), MAX_CANDIDATES);
    }

    #[test]
    fn a_key_is_for_its_own_algorithm_and_purpose_alone() {
        fn with(more: &str) -> Result<KeySet, KeySetError> {
            let key = secret("a", 64).replace("\"kid\"", &format!("{more},\"kid\""));
            read(&key, KeySetOrigin::File)
        }
        let named = with(r#""alg":"HS512""#).unwrap();
        assert_eq!(
            [
                count(&named, Some("a"), Algorithm::HS512),
                count(&named, Some("a"), Algorithm::HS256)
            ],
            [1, 0]
        );
        for (more, is_taken) in [
            (r#""use":"sig""#, true),
            (r#""use":"enc""#, false),
            (r#""key_ops":["verify"]"#, true),
            (r#""key_ops":["encrypt"]"#, false),
            (r#""alg":"RS256""#, false),
            (r#""alg":"A256KW""#, false),
        ] {
            assert_eq!(with(more).is_ok(), is_taken, "{more}");
        }
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over_and_no_set_is_refused() {
        let others = r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},
            {"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"X25519","x":"AA"},{"kty":5},[],"x",null"#;
        let set = read(&[others, &secret("a", 32)].join(","), KeySetOrigin::File).unwrap();
        assert_eq!(
            (set.len(), read(others, KeySetOrigin::File).err()),
            (1, Some(KeySetError::NoKey))
        );
        for text in ["", "{}", "[]", "{\"keys\":{}}", "<html>"] {
            assert_eq!(
                KeySet::read(text.as_bytes(), KeySetOrigin::Url).err(),
                Some(KeySetError::NotASet),
                "{text}"
            );
        }
        let many = vec![secret("a", 32); MAX_KEYS + 1].join(",");
        assert_eq!(
            read(&many, KeySetOrigin::File).err(),
            Some(KeySetError::TooMany)
        );
        assert_eq!(
            KeySet::read(&vec![b' '; MAX_SET + 1], KeySetOrigin::Url).err(),
            Some(KeySetError::TooLarge)
        );
    }

    #[test]
    fn no_secret_is_shown() {
        let set = read(&secret("a", 32), KeySetOrigin::File).unwrap();
        let shown = format!("{set:?}");
        assert!(
            shown.contains("redacted") && !shown.contains("7, 7"),
            "{shown}"
        );
    }
}
