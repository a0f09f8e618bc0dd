//! Tokens of an issuer that rotates its keys and goes away, as clients with curl see it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::pace;
use tollgate_testing::topology::CertificateAuthority;

use crate::issuer::{Issuer, IssuerKey, base64, claims, now};
use crate::process::{Gateway, curl, eventually, status};

fn routes(jwks: &str, more: &str) -> String {
    format!(
        "
workers: 1
access_log: json
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
authenticators:
  users: {{jwt: {{issuer: 'https://id.example', audience: api, jwks: '{jwks}', plan: tier{more}}}}}
limits:
  per-user: {{key: {{claim: sub}}, rate: 100000/h, plans: {{by: {{identity: plan}}, table: {{small: {{rate: 1/h}}}}}}}}
  per-tenant: {{key: {{claim: tenant}}, rate: 1/h, on_missing: refuse}}
routes:
  - name: closed
    match: {{path: /closed}}
    echo: true
    authenticate: [users]
    limits: [per-user]
    request_headers: {{set: {{x-user: '{{claim.sub}}', x-tenant: '{{claim.tenant}}', x-tier: '{{identity.plan}}'}}}}
  - {{name: tenants, match: {{path: /tenants}}, echo: true, authenticate: [users], limits: [per-tenant]}}
"
    )
}

fn start(issuer: &Issuer, more: &str) -> Gateway {
    Gateway::start(&routes(
        &format!("http://{}/jwks.json", issuer.address),
        more,
    ))
}

fn with_token(gateway: &Gateway, path: &str, token: &str) -> u16 {
    status(&[
        "-H",
        &format!("authorization: Bearer {token}"),
        &gateway.url(path),
    ])
}

fn answer(gateway: &Gateway, token: &str) -> String {
    curl(&[
        "-i",
        "-H",
        &format!("authorization: bearer {token}"),
        &gateway.url("/closed"),
    ])
}

#[test]
fn tokens_of_every_kind_of_key_say_who_the_client_is_and_go_no_further() {
    let keys = [
        IssuerKey::ed25519(),
        IssuerKey::p256(),
        IssuerKey::p384(),
        IssuerKey::rsa(),
    ];
    let issuer = Issuer::start(
        &keys
            .iter()
            .zip(["a", "b", "c", "d"])
            .map(|(key, id)| key.jwk(id))
            .collect::<Vec<_>>(),
    );
    let gateway = start(&issuer, "");
    let of_rsa =
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|name| (&keys[3], "d", name));
    let all = [
        (&keys[0], "a", "EdDSA"),
        (&keys[1], "b", "ES256"),
        (&keys[2], "c", "ES384"),
    ]
    .into_iter()
    .chain(of_rsa);
    for (key, id, algorithm) in all {
        let header = json!({"alg": algorithm, "kid": id});
        let token = key.token_with(&header, &claims(&json!({"tenant": 7, "tier": "large"})));
        let echoed = answer(&gateway, &token);
        assert!(
            echoed.contains("\"x-user\": [\n      \"ada\"\n    ]") && echoed.contains("\"7\""),
            "{echoed}"
        );
        assert!(
            echoed.contains("\"large\"") && !echoed.contains("authorization"),
            "{echoed}"
        );
    }
    assert_eq!(issuer.requests(), 1);
    let log = eventually("the lines", || {
        Some(gateway.log()).filter(|log| log.matches("\"identity\":\"ada\"").count() == 9)
    });
    assert!(
        !log.contains("eyJ") && !gateway.metrics().contains("eyJ"),
        "no token is in the log or the metrics"
    );
}

#[test]
fn tokens_that_are_not_what_they_should_be_are_refused_with_the_reason() {
    let (key, stranger) = (IssuerKey::p256(), IssuerKey::p256());
    let issuer = Issuer::start(&[key.jwk("a"), IssuerKey::rsa().jwk("r")]);
    let gateway = start(&issuer, ", leeway: 0s, max_token: 4KiB");
    let good = key.token("a", &claims(&json!({})));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let of = |changes: &Json| key.token("a", &claims(changes));
    let header = |header: &Json| key.token_with(header, &claims(&json!({})));
    let text = claims(&json!({})).to_string();
    let with = |member: &str| {
        key.token_of(
            "{\"alg\":\"ES256\",\"kid\":\"a\"}",
            &text.replacen('{', &format!("{{{member},"), 1),
        )
    };
    let forged = |secret: String| {
        IssuerKey::Secret(secret.into_bytes())
            .token_with(&json!({"alg": "HS256", "kid": "a"}), &claims(&json!({})))
    };
    for (token, why) in [
        ("x".to_owned(), "malformed"),
        ("a.b.c".to_owned(), "malformed"),
        ("..".to_owned(), "malformed"),
        (format!("{good}="), "malformed"),
        (format!("{good}.x"), "malformed"),
        (format!("{good}.x.y"), "malformed"),
        (format!("{good}, Bearer {good}"), "malformed"),
        (good.replacen('.', " .", 1), "malformed"),
        (format!("{message}."), "signature is wrong"),
        (
            format!("{message}.{}", base64([0; 64])),
            "signature is wrong",
        ),
        (
            format!("{}.{signature}", message.replacen("eyJ", "eyI", 1)),
            "malformed",
        ),
        (
            stranger.token("a", &claims(&json!({}))),
            "signature is wrong",
        ),
        (
            header(&json!({"alg": "none", "kid": "a"})),
            "names an algorithm that there is not",
        ),
        (
            format!("{}.{}.", base64("{\"alg\":\"none\"}"), base64(&text)),
            "names an algorithm that there is not",
        ),
        (
            header(&json!({"alg": "es256", "kid": "a"})),
            "names an algorithm that there is not",
        ),
        (header(&json!({"alg": ["ES256"], "kid": "a"})), "malformed"),
        (
            forged(key.jwk("a").to_string()),
            "algorithm that is not taken",
        ),
        (
            forged(key.jwk("a")["x"].as_str().unwrap().to_owned()),
            "algorithm that is not taken",
        ),
        (
            header(&json!({"alg": "RS256", "kid": "r"})),
            "signature is wrong",
        ),
        (
            header(&json!({"alg": "ES256", "kid": "a", "crit": ["b64"], "b64": false})),
            "extension",
        ),
        (
            header(&json!({"alg": "ES256", "kid": "a", "crit": null})),
            "extension",
        ),
        (header(&json!({"alg": "ES256", "kid": 7})), "malformed"),
        (
            key.token_of("{\"alg\":\"ES256\",\"kid\":\"r\",\"kid\":\"a\"}", &text),
            "malformed",
        ),
        (
            key.token_of("{\"alg\":\"none\",\"alg\":\"ES256\",\"kid\":\"a\"}", &text),
            "malformed",
        ),
        (with("\"sub\":\"eve\""), "malformed"),
        (with("\"iss\":\"https://id.example\""), "malformed"),
        (
            key.token_of(
                "{\"alg\":\"ES256\",\"kid\":\"a\"}",
                "[\"https://id.example\"]",
            ),
            "malformed",
        ),
        (
            key.token_of("{\"alg\":\"ES256\",\"kid\":\"a\"}", &"[".repeat(900)),
            "malformed",
        ),
        (of(&json!({"exp": now() - 1})), "has expired"),
        (of(&json!({"exp": -1})), "has expired"),
        (of(&json!({"exp": null})), "has no exp"),
        (of(&json!({"exp": "9999999999"})), "exp is no time"),
        (of(&json!({"exp": true})), "exp is no time"),
        (
            key.token_of(
                "{\"alg\":\"ES256\",\"kid\":\"a\"}",
                &text.replace("\"exp\":", "\"exp\":1e400,\"was\":"),
            ),
            "malformed",
        ),
        (of(&json!({"nbf": now() + 600})), "not valid yet"),
        (of(&json!({"nbf": "soon"})), "nbf is no time"),
        (
            of(&json!({"iss": "https://evil.example"})),
            "another issuer",
        ),
        (
            of(&json!({"iss": ["https://id.example"]})),
            "another issuer",
        ),
        (of(&json!({"iss": null})), "another issuer"),
        (of(&json!({"aud": "other"})), "another audience"),
        (of(&json!({"aud": null})), "another audience"),
        (of(&json!({"aud": {"api": true}})), "another audience"),
        (of(&json!({"aud": []})), "another audience"),
        (of(&json!({"sub": null})), "does not name its client"),
        (of(&json!({"sub": ["ada"]})), "malformed"),
        (of(&json!({"sub": ""})), "does not name its client"),
        (of(&json!({"sub": "a\nb"})), "does not name its client"),
        (of(&json!({"sub": " root"})), "does not name its client"),
        (
            of(&json!({"sub": "root\u{a0}"})),
            "does not name its client",
        ),
        (of(&json!({"pad": "x".repeat(4000)})), "too large"),
    ] {
        let answer = answer(&gateway, &token);
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains(why),
            "{why}, {token}: {answer}"
        );
        assert!(
            answer.contains("www-authenticate: Bearer realm=\"tollgate\", error=\"invalid_token\""),
            "{answer}"
        );
    }
    assert_eq!(with_token(&gateway, "/closed", &good), 200);
    let missing = curl(&["-i", &gateway.url("/closed")]);
    assert!(
        missing.contains("www-authenticate: Bearer realm=\"tollgate\"\r\n"),
        "no error without a token: {missing}"
    );
}

#[test]
fn a_token_that_is_sent_twice_or_is_huge_is_refused_by_every_version() {
    let key = IssuerKey::ed25519();
    let issuer = Issuer::start(&[key.jwk("a")]);
    let gateway = start(&issuer, "");
    let good = format!(
        "authorization: Bearer {}",
        key.token("a", &claims(&json!({})))
    );
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let answer = |fields: &[&str]| {
            let fields = fields.iter().flat_map(|field| ["-H", field]);
            let fields: Vec<&str> = [version, "-i"].into_iter().chain(fields).collect();
            let url = gateway.url("/closed");
            curl(&[&fields[..], &[&url]].concat())
        };
        assert!(answer(&[&good]).contains(" 200"));
        for fields in [
            [&*good, &*good],
            [&good, "authorization: Bearer x"],
            [&good, "authorization: Basic YTpi"],
        ] {
            let answer = answer(&fields);
            assert!(
                answer.contains(" 401") && answer.contains("sent more than once"),
                "{answer}"
            );
        }
        assert!(
            answer(&[&format!("{good}{}", "x".repeat(9_000))]).contains("the token is too large")
        );
    }
    let over_the_head = format!("{good}{}", "x".repeat(90_000));
    assert_eq!(
        status(&["-H", &over_the_head, &gateway.url("/closed")]),
        431
    );
    let before = gateway.memory();
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    let head = format!("GET /closed HTTP/1.1\r\nhost: a\r\n{good}");
    // It is refused before it has been sent, so both may fail.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&vec![b'x'; 10 << 20]));
    let mut refused = Vec::new();
    let _ = stream.read_to_end(&mut refused);
    assert!(
        refused.is_empty() || refused.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&refused)
    );
    assert!(gateway.memory() < before + (4 << 20), "it is not kept");
    assert_eq!(
        status(&["-H", &good, &gateway.url("/closed")]),
        200,
        "others are served"
    );
}

#[test]
fn a_claim_that_is_missing_or_of_another_type_is_a_missing_part_of_the_key() {
    let key = IssuerKey::ed25519();
    let issuer = Issuer::start(&[key.jwk("a")]);
    let gateway = start(&issuer, "");
    let tenant = |tenant: Json| {
        with_token(
            &gateway,
            "/tenants",
            &key.token("a", &claims(&json!({ "tenant": tenant }))),
        )
    };
    assert_eq!(
        [json!("x"), json!("x"), json!("y"), json!(7)].map(tenant),
        [200, 429, 200, 200]
    );
    let others = [
        json!(null),
        json!(["x"]),
        json!({"x": 1}),
        json!(true),
        json!(1.5),
        json!(""),
    ];
    assert_eq!(others.map(tenant), [400; 6]);
    let small = key.token("a", &claims(&json!({"tier": "small", "sub": "bob"})));
    assert_eq!(
        [0; 2].map(|_| with_token(&gateway, "/closed", &small)),
        [200, 429],
        "the plan is a claim"
    );
}

#[test]
fn a_claim_with_white_space_around_it_reaches_no_upstream_as_another_one() {
    let key = IssuerKey::p256();
    let gateway = start(&Issuer::start(&[key.jwk("a")]), "");
    let echoed = answer(
        &gateway,
        &key.token("a", &claims(&json!({"tenant": " acme", "tier": "small "}))),
    );
    assert!(
        echoed.starts_with("HTTP/1.1 200 ") && echoed.contains("x-user"),
        "{echoed}"
    );
    assert!(
        !echoed.contains("x-tenant") && !echoed.contains("x-tier"),
        "{echoed}"
    );
    let again = answer(
        &gateway,
        &key.token("a", &claims(&json!({"tier": "small "}))),
    );
    assert!(
        again.starts_with("HTTP/1.1 200 "),
        "no plan either: {again}"
    );
}

#[test]
fn keys_that_share_an_id_all_verify() {
    let keys = [IssuerKey::p256(), IssuerKey::p256(), IssuerKey::ed25519()];
    let issuer = Issuer::start(&keys.iter().map(|key| key.jwk("a")).collect::<Vec<_>>());
    let gateway = start(&issuer, "");
    for key in &keys {
        assert_eq!(
            with_token(&gateway, "/closed", &key.token("a", &claims(&json!({})))),
            200
        );
    }
    let forged = answer(&gateway, &IssuerKey::p256().token("a", &claims(&json!({}))));
    assert!(
        forged.starts_with("HTTP/1.1 401 ") && forged.contains("signature is wrong"),
        "{forged}"
    );
    assert_eq!(
        issuer.requests(),
        1,
        "its key is known: nobody asks for another"
    );
}

/// Between two requests of a client. Each is a process.
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn keys_rotate_under_load_and_no_request_fails_whatever_strangers_send() {
    let keys = [
        IssuerKey::ed25519(),
        IssuerKey::p256(),
        IssuerKey::p384(),
        IssuerKey::ed25519(),
    ];
    let issuer = Issuer::start(&[keys[0].jwk("0")]);
    let gateway = start(&issuer, "");
    let (done, stranger) = (AtomicBool::new(false), IssuerKey::ed25519());
    let begun = Instant::now();
    let first = keys[0].token("0", &claims(&json!({})));
    thread::scope(|scope| {
        let _ending = EndsAtLast(&done);
        let flood = scope.spawn(|| {
            let mut statuses = Vec::new();
            while !done.load(Ordering::Relaxed) {
                pace::pause(PAUSE);
                let id = format!("stranger-{}", statuses.len());
                statuses.push(with_token(
                    &gateway,
                    "/closed",
                    &stranger.token(&id, &claims(&json!({}))),
                ));
            }
            statuses
        });
        let steady = scope.spawn(|| {
            let mut statuses = Vec::new();
            while !done.load(Ordering::Relaxed) {
                pace::pause(PAUSE);
                statuses.push(with_token(&gateway, "/closed", &first));
            }
            statuses
        });
        for (number, key) in keys.iter().enumerate() {
            // Both keys stand in the set while tokens of either are about.
            let published: Vec<Json> = keys[..=number]
                .iter()
                .enumerate()
                .map(|(id, key)| key.jwk(&id.to_string()))
                .collect();
            issuer.publishes(&published);
            let of_new = key.token(
                &number.to_string(),
                &claims(&json!({"sub": format!("user-{number}")})),
            );
            assert_eq!(
                with_token(&gateway, "/closed", &of_new),
                200,
                "a key that was published before it signs"
            );
        }
        done.store(true, Ordering::Relaxed);
        let (flood, steady) = (flood.join().unwrap(), steady.join().unwrap());
        assert!(
            steady.len() > 10 && steady.iter().all(|status| *status == 200),
            "{steady:?}"
        );
        assert!(
            !flood.is_empty() && flood.iter().all(|status| *status == 401),
            "{flood:?}"
        );
    });
    // The first fetch, one at once for a key that is unknown, and then one in five seconds at most.
    let most = 2 + begun.elapsed().as_secs() / 5;
    let fetches = u64::try_from(issuer.requests()).unwrap();
    assert!((2..=most).contains(&fetches), "{fetches} of {most}");
}

/// Ends the threads of a test also when it fails.
struct EndsAtLast<'a>(&'a AtomicBool);

impl Drop for EndsAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_key_that_was_taken_back_ends_the_tokens_that_it_has_verified() {
    let (old, new) = (IssuerKey::ed25519(), IssuerKey::p256());
    let issuer = Issuer::start(&[old.jwk("old")]);
    let gateway = start(&issuer, "");
    let [of_old, of_new] = [
        old.token("old", &claims(&json!({}))),
        new.token("new", &claims(&json!({}))),
    ];
    assert_eq!(
        [0; 2].map(|_| with_token(&gateway, "/closed", &of_old)),
        [200, 200]
    );
    issuer.publishes(&[new.jwk("new")]);
    assert_eq!(with_token(&gateway, "/closed", &of_new), 200);
    assert_eq!(
        with_token(&gateway, "/closed", &of_old),
        401,
        "it was verified before, by a key that is gone"
    );
    assert!(answer(&gateway, &of_old).contains("signed by a key that the issuer does not have"));
}

#[test]
fn an_issuer_that_is_away_at_the_start_is_503_and_its_keys_are_taken_when_it_comes() {
    let key = IssuerKey::ed25519();
    let issuer = Issuer::start(&[key.jwk("a")]);
    issuer.goes_away();
    let gateway = start(&issuer, "");
    let token = key.token("a", &claims(&json!({})));
    let away = answer(&gateway, &token);
    assert!(
        away.starts_with("HTTP/1.1 503 ") && away.contains("retry-after: 1"),
        "{away}"
    );
    assert!(away.contains("authentication-unavailable"), "{away}");
    issuer.publishes(&[key.jwk("a")]);
    eventually("the keys", || {
        (with_token(&gateway, "/closed", &token) == 200).then_some(())
    });
}

#[test]
fn keys_outlive_an_issuer_that_goes_away_for_as_long_as_is_said() {
    let key = IssuerKey::ed25519();
    let issuer = Issuer::start(&[key.jwk("a")]);
    let gateway = start(&issuer, ", refresh: 10s, stale: 20s");
    let token = key.token("a", &claims(&json!({})));
    assert_eq!(with_token(&gateway, "/closed", &token), 200);
    issuer.goes_away();
    eventually("it is missed", || {
        assert_eq!(
            with_token(&gateway, "/closed", &token),
            200,
            "the last keys hold on"
        );
        gateway
            .log()
            .contains("cannot fetch the issuer's keys")
            .then_some(())
    });
    // Another audience is another authenticator: it goes on with the keys of the one before.
    let other = routes(
        &format!("http://{}/jwks.json", issuer.address),
        ", refresh: 10s, stale: 20s",
    );
    gateway.rewrite(&other.replace("audience: api", "audience: [api, web]"));
    eventually("it is reloaded", || {
        gateway.log().contains("reloaded").then_some(())
    });
    assert_eq!(
        with_token(&gateway, "/closed", &token),
        200,
        "the keys outlive a reload"
    );
    eventually("they are too old", || {
        (with_token(&gateway, "/closed", &token) == 503).then_some(())
    });
    issuer.publishes(&[key.jwk("a")]);
    eventually("it is back", || {
        (with_token(&gateway, "/closed", &token) == 200).then_some(())
    });
}

#[test]
fn an_answer_that_is_no_set_of_keys_changes_nothing() {
    let (key, stranger) = (IssuerKey::ed25519(), IssuerKey::ed25519());
    let issuer = Issuer::start(&[key.jwk("a")]);
    let gateway = start(&issuer, "");
    let good = key.token("a", &claims(&json!({})));
    assert_eq!(with_token(&gateway, "/closed", &good), 200);
    let set = json!({ "keys": [stranger.jwk("b")] }).to_string();
    for (status, body, why) in [
        ("302 Found", &*set, "the answer is 302 and not 200"),
        (
            "500 Internal Server Error",
            "",
            "the answer is 500 and not 200",
        ),
        ("200 OK", &"x".repeat(300 << 10), "over 256 KiB"),
        (
            "200 OK",
            &json!({"keys": [IssuerKey::secret().jwk("a")]}).to_string(),
            "no key in it can verify a token",
        ),
        ("200 OK", "<html>", "it is no JSON Web Key Set"),
    ] {
        issuer.answers(status, body);
        assert_eq!(
            with_token(
                &gateway,
                "/closed",
                &stranger.token("b", &claims(&json!({})))
            ),
            401
        );
        eventually(why, || gateway.log().contains(why).then_some(()));
        assert_eq!(with_token(&gateway, "/closed", &good), 200);
    }
    let rejected =
        "tollgate_authenticator_reloads_total{authenticator=\"users\",outcome=\"rejected\"}";
    assert!(gateway.metric(rejected) >= 5.0);
}

#[test]
fn a_secret_in_a_file_verifies_what_is_asked_for_and_scopes_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    let key = IssuerKey::secret();
    fs::write(&file, json!({"keys": [key.jwk("a")]}).to_string()).unwrap();
    let more = ", algorithms: [HS256], scopes: [read, write], header: x-token";
    let gateway = Gateway::start(&routes(&file.display().to_string(), more));
    let answer = |changes: &Json| {
        let field = format!("x-token: bearer {}", key.token("a", &claims(changes)));
        curl(&["-i", "-H", &field, &gateway.url("/closed")])
    };
    let echoed = answer(&json!({"scope": "write read more"}));
    assert!(
        echoed.starts_with("HTTP/1.1 200 ") && !echoed.contains("x-token"),
        "{echoed}"
    );
    assert!(answer(&json!({"scp": ["write", "read"]})).starts_with("HTTP/1.1 200 "));
    for scope in [
        json!("read writes"),
        json!(null),
        json!(7),
        json!(["read write"]),
    ] {
        let lacking = answer(&json!({ "scope": scope }));
        assert!(
            lacking.starts_with("HTTP/1.1 403 ")
                && lacking.contains("error=\"insufficient_scope\""),
            "{lacking}"
        );
        assert!(lacking.contains("identity-refused"), "{lacking}");
    }
    fs::write(
        &file,
        json!({"keys": [IssuerKey::Secret(vec![8; 40]).jwk("a")]}).to_string(),
    )
    .unwrap();
    let all = json!({"scope": "read write"});
    eventually("the file is taken over", || {
        answer(&all).starts_with("HTTP/1.1 401 ").then_some(())
    });
    fs::write(&file, "{}").unwrap();
    eventually("the bad file is refused", || {
        gateway
            .log()
            .contains("it is no JSON Web Key Set")
            .then_some(())
    });
}

#[test]
fn a_secret_verifies_the_algorithms_that_are_named_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    let key = IssuerKey::Secret(vec![7; 64]);
    fs::write(&file, json!({"keys": [key.jwk("a")]}).to_string()).unwrap();
    let gateway = Gateway::start(&routes(
        &file.display().to_string(),
        ", algorithms: [HS384, HS512]",
    ));
    let of = |algorithm: &str| {
        key.token_with(&json!({"alg": algorithm, "kid": "a"}), &claims(&json!({})))
    };
    for algorithm in ["HS384", "HS512"] {
        let token = of(algorithm);
        assert_eq!(with_token(&gateway, "/closed", &token), 200, "{algorithm}");
        let wrong = IssuerKey::Secret(vec![8; 64])
            .token_with(&json!({"alg": algorithm, "kid": "a"}), &claims(&json!({})));
        assert!(
            answer(&gateway, &wrong).contains("signature is wrong"),
            "{algorithm}"
        );
    }
    assert!(answer(&gateway, &of("HS256")).contains("algorithm that is not taken"));
    // A signature of one algorithm in a token that names another.
    let (short, long) = (of("HS384"), of("HS512"));
    let (message, signature) = (
        long.rsplit_once('.').unwrap().0,
        short.rsplit_once('.').unwrap().1,
    );
    assert!(answer(&gateway, &format!("{message}.{signature}")).contains("signature is wrong"));
}

#[test]
fn keys_behind_https_are_taken_from_an_issuer_that_the_named_authority_knows() {
    let (authority, stranger) = (
        CertificateAuthority::create(),
        CertificateAuthority::create(),
    );
    authority.issue("server", "DNS:localhost");
    let path = |file: &str| authority.path(file).display().to_string();
    let key = IssuerKey::p256();
    let set = authority.path("jwks.json");
    fs::write(&set, json!({"keys": [key.jwk("a")]}).to_string()).unwrap();
    let server = NginxServer::start(
        "ssl",
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; location = /jwks.json {{ alias {}; }}",
            path("server.pem"),
            path("server.key"),
            set.display()
        ),
    );
    let url = format!("https://localhost:{}/jwks.json", server.address.port());
    let token = key.token("a", &claims(&json!({})));
    let trusting =
        |ca: String| Gateway::start(&routes(&url, &format!(", ca: '{ca}', timeout: 10s")));
    let gateway = trusting(path("ca.pem"));
    assert_eq!(with_token(&gateway, "/closed", &token), 200);
    for (ca, url) in [
        (stranger.path("ca.pem"), &url),
        (
            authority.path("ca.pem"),
            &url.replace("localhost", "127.0.0.1"),
        ),
    ] {
        let gateway = Gateway::start(&routes(
            url,
            &format!(", ca: '{}', timeout: 10s", ca.display()),
        ));
        assert_eq!(
            with_token(&gateway, "/closed", &token),
            503,
            "an issuer that nobody vouches for has no keys"
        );
        eventually("the log says why", || {
            gateway.log().contains("certificate").then_some(())
        });
    }
}

#[test]
fn a_token_of_another_issuer_is_left_to_the_authenticator_that_knows_it() {
    let (one, two) = (IssuerKey::ed25519(), IssuerKey::ed25519());
    let issuers = [
        Issuer::start(&[one.jwk("a")]),
        Issuer::start(&[two.jwk("a")]),
    ];
    let routes = routes(&format!("http://{}/", issuers[0].address), "");
    let staff = format!(
        "authenticators:\n  staff: {{jwt: {{issuer: 'https://staff.example', jwks: 'http://{}/'}}}}\n",
        issuers[1].address
    );
    let routes = routes.replace("authenticate: [users]", "authenticate: [users, staff]");
    let gateway = Gateway::start(&routes.replace("authenticators:\n", &staff));
    let of_staff = claims(&json!({"iss": "https://staff.example", "aud": null}));
    assert_eq!(
        with_token(&gateway, "/closed", &two.token("a", &of_staff)),
        200
    );
    assert_eq!(
        with_token(&gateway, "/closed", &one.token("a", &of_staff)),
        401,
        "each issuer's key for itself"
    );
    assert_eq!(
        with_token(&gateway, "/closed", &one.token("a", &claims(&json!({})))),
        200
    );
    let for_somebody = claims(&json!({"iss": "https://staff.example"}));
    let answer = answer(&gateway, &two.token("a", &for_somebody));
    assert!(
        answer.contains("another audience"),
        "what is for somebody is not for all: {answer}"
    );
}

#[test]
fn a_token_that_nobody_knows_is_refused_beside_a_good_api_key() {
    let key = IssuerKey::ed25519();
    let issuer = Issuer::start(&[key.jwk("a")]);
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.yaml");
    // Of the key "secret".
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    std::fs::write(&keys, format!("- {{id: ada, key_sha256: {hash}}}\n")).unwrap();
    let partners = format!(
        "authenticators:\n  partners: {{api_key: {{header: x-api-key, keys: '{}'}}}}\n",
        keys.display()
    );
    let routes = routes(&format!("http://{}/", issuer.address), "");
    let routes = routes.replace("authenticate: [users]", "authenticate: [users, partners]");
    let gateway = Gateway::start(&routes.replace("authenticators:\n", &partners));
    let ask = |token: Option<&str>| {
        let url = gateway.url("/closed");
        let mut args = vec!["-H".to_owned(), "x-api-key: secret".to_owned()];
        if let Some(token) = token {
            args.extend(["-H".to_owned(), format!("authorization: Bearer {token}")]);
        }
        args.push(url);
        status(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(ask(None), 200);
    let foreign = key.token("a", &claims(&json!({"iss": "https://elsewhere.example"})));
    assert_eq!(ask(Some(&foreign)), 401);
    assert_eq!(ask(Some(&key.token("a", &claims(&json!({}))))), 200);
}

#[test]
fn an_issuer_that_is_away_keeps_no_token_of_another_one_waiting() {
    let key = IssuerKey::p256();
    let issuer = Issuer::start(&[key.jwk("a")]);
    let away = "authenticators:\n  away: {jwt: {issuer: 'https://away.example', jwks: 'http://127.0.0.1:9/'}}\n";
    let routes = routes(&format!("http://{}/", issuer.address), "");
    let routes = routes.replace("authenticate: [users]", "authenticate: [away, users]");
    let gateway = Gateway::start(&routes.replace("authenticators:\n", away));
    assert_eq!(
        with_token(&gateway, "/closed", &key.token("a", &claims(&json!({})))),
        200
    );
    assert_eq!(
        with_token(&gateway, "/closed", "x"),
        401,
        "it is no token at all"
    );
    let of_away = claims(&json!({"iss": "https://away.example"}));
    assert_eq!(
        with_token(&gateway, "/closed", &key.token("a", &of_away)),
        503
    );
}
