//! A provider of OpenID Connect that tests make say what they want, and browsers that sign in at
//! it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use percent_encoding::percent_decode_str;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::house::{House, Reply};
use crate::issuer::{IssuerKey, base64, now};

const SECRET: &str = "a secret of the two: ü+&";

/// A provider: it publishes what it is and its keys, and redeems each code once.
#[derive(Clone)]
pub struct Provider {
    address: SocketAddr,
    pub state: Arc<Mutex<ProviderState>>,
    pub secret_file: PathBuf,
    lookups: Arc<AtomicUsize>,
    _folder: Arc<tempfile::TempDir>,
}

pub struct ProviderState {
    /// The key that it signs with and publishes, and its name.
    pub key: (Arc<IssuerKey>, &'static str),
    pub mood: ProviderMood,
    /// By code.
    grants: HashMap<String, Grant>,
    /// Members of its metadata besides or instead.
    pub metadata: Json,
}

/// How it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ProviderMood {
    Well,
    /// It closes connections.
    Away,
    /// It says nothing.
    Slow,
    /// It says too much.
    Endless,
}

/// The grant that a code stands for.
#[derive(Clone)]
struct Grant {
    challenge: String,
    redirect_uri: String,
    token: String,
}

/// The query of a redirect to the provider.
pub struct Asked(HashMap<String, String>);

impl Asked {
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

fn pairs(query: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let secret_file = folder.path().join("secret");
        std::fs::write(&secret_file, format!("{SECRET}\n")).unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(ProviderState {
                key: (Arc::new(IssuerKey::ed25519()), "k"),
                mood: ProviderMood::Well,
                grants: HashMap::new(),
                metadata: Json::Null,
            })),
            secret_file,
            lookups: Arc::default(),
            _folder: Arc::new(folder),
        };
        let serving = provider.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        provider
    }

    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The gateway's key for it, with `more` keys.
    pub fn admin(&self, more: &str) -> String {
        let (issuer, file) = (self.issuer(), self.secret_file.display());
        format!(
            ", openid_connect: {{issuer: '{issuer}', client_id: 'gate way', client_secret_file: '{file}'{more}}}"
        )
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut line, mut length, mut authorization) = (String::new(), 0, String::new());
        reader.read_line(&mut line).unwrap();
        loop {
            let mut field = String::new();
            if reader.read_line(&mut field).unwrap() <= 2 {
                break;
            }
            let (name, value) = field.trim().split_once(": ").unwrap();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => value.clone_into(&mut authorization),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mood = self.state.lock().unwrap().mood;
        let is_lookup = line.contains("/.well-known/");
        self.lookups
            .fetch_add(usize::from(is_lookup), Ordering::SeqCst);
        match mood {
            ProviderMood::Well => {}
            ProviderMood::Away => return,
            // Until the gateway has had enough.
            ProviderMood::Slow => return drop(reader.read(&mut [0])),
            ProviderMood::Endless => {
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
                );
                while stream.write_all(&[b' '; 65_536]).is_ok() {}
                return;
            }
        }
        let (status, answer) = match line.split(' ').nth(1).unwrap() {
            "/.well-known/openid-configuration" => ("200 OK", self.metadata()),
            "/keys" => ("200 OK", json!({"keys": [self.jwk()]})),
            "/token" => {
                match self.redeem(&authorization, &pairs(std::str::from_utf8(&body).unwrap())) {
                    Ok(token) => (
                        "200 OK",
                        json!({"access_token": "x", "token_type": "Bearer", "id_token": token}),
                    ),
                    Err(error) => (
                        "400 Bad Request",
                        json!({"error": error, "error_description": "see RFC 6749"}),
                    ),
                }
            }
            _ => ("404 Not Found", json!({})),
        };
        let text = answer.to_string();
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
    }

    pub fn jwk(&self) -> Json {
        let (key, name) = self.state.lock().unwrap().key.clone();
        key.jwk(name)
    }

    /// How often it was asked what it is.
    pub fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }

    fn metadata(&self) -> Json {
        let issuer = self.issuer();
        let mut metadata = json!({
            "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize?realm=a"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            "authorization_response_iss_parameter_supported": true,
        });
        for (name, value) in self
            .state
            .lock()
            .unwrap()
            .metadata
            .as_object()
            .into_iter()
            .flatten()
        {
            metadata[name] = value.clone();
        }
        metadata
    }

    fn redeem(
        &self,
        authorization: &str,
        asked: &HashMap<String, String>,
    ) -> Result<String, &'static str> {
        let has = |name: &str, value: &str| asked.get(name).is_some_and(|found| found == value);
        let pair = format!(
            "gate%20way:{}",
            "a%20secret%20of%20the%20two%3A%20%C3%BC%2B%26"
        );
        let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pair);
        if authorization != format!("Basic {basic}")
            && !(has("client_id", "gate way") && has("client_secret", SECRET))
        {
            return Err("invalid_client");
        }
        let grant = self
            .state
            .lock()
            .unwrap()
            .grants
            .remove(asked.get("code").ok_or("invalid_request")?);
        let grant = grant.ok_or("invalid_grant")?;
        let verifier = asked.get("code_verifier").ok_or("invalid_request")?;
        let right = has("grant_type", "authorization_code")
            && has("redirect_uri", &grant.redirect_uri)
            && base64(Sha256::digest(verifier)) == grant.challenge;
        if right {
            Ok(grant.token)
        } else {
            Err("invalid_grant")
        }
    }

    /// A code for what was asked, with these claims besides or instead. Null takes a claim away.
    pub fn grant(&self, asked: &Asked, changes: &Json) -> String {
        let mut claims = json!({
            "iss": self.issuer(), "aud": "gate way", "sub": "248289761001", "exp": now() + 300, "iat": now(),
            "nonce": asked.get("nonce"), "preferred_username": "ada", "name": "Ada Lovelace", "groups": ["staff", "ops"],
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        let (key, name) = self.state.lock().unwrap().key.clone();
        self.grant_token(asked, key.token(name, &claims))
    }

    pub fn grant_token(&self, asked: &Asked, token: String) -> String {
        let mut state = self.state.lock().unwrap();
        let code = format!("code{}", state.grants.len());
        let (challenge, redirect_uri) = (
            asked.get("code_challenge").to_owned(),
            asked.get("redirect_uri").to_owned(),
        );
        state.grants.insert(
            code.clone(),
            Grant {
                challenge,
                redirect_uri,
                token,
            },
        );
        code
    }

    /// The query that a browser brings back.
    pub fn answer(&self, asked: &Asked, code: &str) -> String {
        format!(
            "code={code}&state={}&iss={}",
            asked.get("state"),
            self.issuer()
        )
    }
}

/// Begins to sign in: what the provider is asked, and the browser's cookie.
pub fn begin(house: &House) -> (Asked, String) {
    begin_at(
        house,
        "/console/sign-in/provider?page=%2Fconsole%2Flimits%3Fq%3Da",
    )
}

pub fn begin_at(house: &House, path: &str) -> (Asked, String) {
    let begun = house.get(path);
    assert_eq!(begun.status, 303, "{}", begun.body);
    let (_, query) = begun
        .header("location")
        .unwrap()
        .split_once("/authorize?realm=a&")
        .unwrap();
    (Asked(pairs(query)), begun.cookie())
}

pub fn finish(house: &House, query: &str, cookie: &str) -> Reply {
    house.ask(
        "GET",
        &format!("/console/sign-in/return?{query}"),
        &["-H", &format!("Cookie: {cookie}")],
    )
}

/// The whole way, with these claims changed.
pub fn sign_in(house: &House, provider: &Provider, changes: &Json) -> Reply {
    let (asked, cookie) = begin(house);
    let code = provider.grant(&asked, changes);
    finish(house, &provider.answer(&asked, &code), &cookie)
}

/// The session that an answer begins, among its other cookies.
pub fn session(reply: &Reply) -> Option<&str> {
    let fields = reply.head.lines().filter_map(|line| line.split_once(": "));
    let mut cookies = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        .map(|(_, value)| value);
    cookies.find(|cookie| cookie.contains("tollgate=tgs_"))
}
