//! The algorithms that tokens are signed by (RFC 7518 §3.1, RFC 8037), and their verification by
//! `ring`.
//!
//! Guarantees that a key verifies only what is signed by an algorithm of its own family: a public
//! key is never the secret of an HMAC, and `none` does not exist.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// Every algorithm that is taken, and its name in tokens and in the file.
pub const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];

/// Verification by `ring`, which the crate has no feature for. It signs nothing.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

/// Verifies signatures of one algorithm by one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Whether a key that verifies could sign, too.
pub fn is_symmetric(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}

/// Lets the crate verify by `ring`. Without it the crate would panic, so every set of keys begins
/// with it.
pub fn install_verifiers() {
    // An error says that it was done before.
    let _ = PROVIDER.install_default();
}

fn unsupported() -> jsonwebtoken::errors::Error {
    new_error(ErrorKind::UnsupportedAlgorithm)
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(unsupported())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if algorithm.family() != key.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(RingVerifier {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), SignatureError> {
        let key = self.key.kind();
        let is_right = match self.algorithm {
            Algorithm::RS256 => rsa(key, &RSA_PKCS1_2048_8192_SHA256, message, signature),
            Algorithm::RS384 => rsa(key, &RSA_PKCS1_2048_8192_SHA384, message, signature),
            Algorithm::RS512 => rsa(key, &RSA_PKCS1_2048_8192_SHA512, message, signature),
            Algorithm::PS256 => rsa(key, &RSA_PSS_2048_8192_SHA256, message, signature),
            Algorithm::PS384 => rsa(key, &RSA_PSS_2048_8192_SHA384, message, signature),
            Algorithm::PS512 => rsa(key, &RSA_PSS_2048_8192_SHA512, message, signature),
            Algorithm::ES256 => curve(key, &ECDSA_P256_SHA256_FIXED, message, signature),
            Algorithm::ES384 => curve(key, &ECDSA_P384_SHA384_FIXED, message, signature),
            Algorithm::EdDSA => curve(key, &ED25519, message, signature),
            Algorithm::HS256 => mac(key, hmac::HMAC_SHA256, message, signature),
            Algorithm::HS384 => mac(key, hmac::HMAC_SHA384, message, signature),
            Algorithm::HS512 => mac(key, hmac::HMAC_SHA512, message, signature),
            _ => false,
        };
        if is_right {
            Ok(())
        } else {
            Err(SignatureError::new())
        }
    }
}

fn rsa(
    key: &DecodingKeyKind,
    parameters: &'static RsaParameters,
    message: &[u8],
    signature: &[u8],
) -> bool {
    match key {
        DecodingKeyKind::RsaModulusExponent { n, e } => RsaPublicKeyComponents { n, e }
            .verify(parameters, message, signature)
            .is_ok(),
        DecodingKeyKind::SecretOrDer(_) => false,
    }
}

fn curve(
    key: &DecodingKeyKind,
    algorithm: &'static dyn VerificationAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> bool {
    match key {
        DecodingKeyKind::SecretOrDer(point) => UnparsedPublicKey::new(algorithm, point)
            .verify(message, signature)
            .is_ok(),
        DecodingKeyKind::RsaModulusExponent { .. } => false,
    }
}

/// Compares in constant time.
fn mac(
    key: &DecodingKeyKind,
    algorithm: hmac::Algorithm,
    message: &[u8],
    signature: &[u8],
) -> bool {
    match key {
        DecodingKeyKind::SecretOrDer(secret) => {
            hmac::verify(&hmac::Key::new(algorithm, secret), message, signature).is_ok()
        }
        DecodingKeyKind::RsaModulusExponent { .. } => false,
    }
}
