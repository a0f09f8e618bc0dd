//! An issuer of tokens: its keys, and the web server that publishes them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use ring::{hmac, rsa};
use serde_json::{Value as Json, json};

/// Base64 as tokens have it.
pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an issuer.
pub enum IssuerKey {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair, &'static str),
    Rsa(Box<RsaKeyPair>),
    Secret(Vec<u8>),
}

impl IssuerKey {
    pub fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    pub fn p256() -> Self {
        Self::ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256")
    }

    pub fn p384() -> Self {
        Self::ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384")
    }

    fn ecdsa(signing: &'static EcdsaSigningAlgorithm, name: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
        Self::Ecdsa(
            EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).unwrap(),
            name,
        )
    }

    pub fn rsa() -> Self {
        let made = Command::new("sh")
            .args([
                "-c",
                "openssl genrsa 2048 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -outform DER",
            ])
            .output()
            .expect("openssl is needed: `make test` installs what tests need");
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(&made.stdout).unwrap()))
    }

    pub fn secret() -> Self {
        Self::Secret(vec![7; 32])
    }

    pub fn jwk(&self, id: &str) -> Json {
        match self {
            Self::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": base64(pair.public_key())})
            }
            Self::Ecdsa(pair, name) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(if *name == "ES256" {
                    32
                } else {
                    48
                });
                let curve = if *name == "ES256" { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "kid": id, "x": base64(x), "y": base64(y), "alg": name})
            }
            Self::Rsa(pair) => {
                let public = rsa::PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": id, "n": base64(public.n), "e": base64(public.e), "x5c": ["AA=="]})
            }
            Self::Secret(secret) => json!({"kty": "oct", "kid": id, "k": base64(secret)}),
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::Ecdsa(_, name) => name,
            Self::Rsa(_) => "RS256",
            Self::Secret(_) => "HS256",
        }
    }

    fn sign(&self, algorithm: &str, message: &str) -> Vec<u8> {
        let (random, message) = (SystemRandom::new(), message.as_bytes());
        match self {
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Ecdsa(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let padding: &dyn RsaEncoding = match algorithm {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signature)
                    .unwrap();
                signature
            }
            Self::Secret(secret) => {
                let hash = match algorithm {
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(hash, secret), message)
                    .as_ref()
                    .to_vec()
            }
        }
    }

    pub fn token(&self, id: &str, claims: &Json) -> String {
        self.token_with(
            &json!({"alg": self.algorithm(), "kid": id, "typ": "JWT"}),
            claims,
        )
    }

    pub fn token_with(&self, header: &Json, claims: &Json) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    /// A token of any text.
    pub fn token_of(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64(header), base64(claims));
        let header: Json = serde_json::from_str(header).unwrap_or_default();
        let signature = self.sign(header["alg"].as_str().unwrap_or_default(), &message);
        format!("{message}.{}", base64(signature))
    }
}

/// The claims of a good token, with these besides or instead. Null takes a claim away.
pub fn claims(changes: &Json) -> Json {
    let mut claims = json!({"iss": "https://id.example", "aud": ["other", "api"], "sub": "ada", "exp": now() + 600});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Json::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// The web server of an issuer.
pub struct Issuer {
    pub address: SocketAddr,
    /// A whole response. `None`: it is away.
    pub answer: Arc<Mutex<Option<String>>>,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    pub fn start(keys: &[Json]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, requests) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
        let (answering, counting): (Arc<Mutex<Option<String>>>, _) =
            (answer.clone(), requests.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counting.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4096]);
                if let Some(answer) = answering.lock().unwrap().clone() {
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        let issuer = Self {
            address,
            answer,
            requests,
        };
        issuer.publishes(keys);
        issuer
    }

    pub fn publishes(&self, keys: &[Json]) {
        self.answers("200 OK", &json!({ "keys": keys }).to_string());
    }

    pub fn answers(&self, status: &str, body: &str) {
        let length = body.len();
        *self.answer.lock().unwrap() = Some(format!(
            "HTTP/1.1 {status}\r\nlocation: /keys\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }

    pub fn goes_away(&self) {
        *self.answer.lock().unwrap() = None;
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}
