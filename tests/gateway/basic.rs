//! User names and passwords, as curl sends them.

use std::fs;
use std::thread;

use argon2::password_hash::{PasswordHasher as _, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use tempfile::TempDir;

use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
workers: 2
access_log: json
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
trusted_proxies: [127.0.0.1]
authenticators:
  staff: {basic: {users: 'FOLDER/htpasswd', realm: Staff only, failed_attempts: {rate: 5/h}}}
routes:
  - name: closed
    match: {path: /closed}
    echo: true
    authenticate: [staff]
    request_headers: {set: {x-user: '{identity}'}}
";

/// Passwords that may stand nowhere but in requests.
const PASSWORDS: [&str; 2] = ["ada-secret", "b\u{f6}b:secret"];

fn bcrypt(password: &str) -> String {
    // A line as htpasswd writes it.
    bcrypt::hash(password, 4)
        .unwrap()
        .replacen("$2b$", "$2y$", 1)
}

fn argon2id(password: &str) -> String {
    let salt = SaltString::encode_b64(b"0123456789abcdef").unwrap();
    let argon2 = Argon2::new(
        Algorithm::Argon2id,
        Version::V0x13,
        Params::new(64, 1, 1, None).unwrap(),
    );
    argon2
        .hash_password(password.as_bytes(), &salt)
        .unwrap()
        .to_string()
}

fn users() -> String {
    format!(
        "# staff\nada:{}\n\nbob:{}\n",
        bcrypt(PASSWORDS[0]),
        argon2id(PASSWORDS[1])
    )
}

/// The gateway, and the folder with its file of users.
fn start() -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("htpasswd"), users()).unwrap();
    let gateway = Gateway::start(&ROUTES.replace("FOLDER", &folder.path().display().to_string()));
    (gateway, folder)
}

/// Replaces the file of users, and waits until it is `applied` or `rejected`. Requests would be
/// failed attempts.
fn replace(gateway: &Gateway, folder: &TempDir, text: &str, outcome: &str) {
    let labels = format!("authenticator=\"staff\",outcome=\"{outcome}\"");
    let reloads = || {
        gateway
            .find_metric(&format!("tollgate_authenticator_reloads_total{{{labels}}}"))
            .unwrap_or(0.0)
    };
    let before = reloads();
    fs::write(folder.path().join("next"), text).unwrap();
    fs::rename(folder.path().join("next"), folder.path().join("htpasswd")).unwrap();
    eventually("the file is read", || (reloads() > before).then_some(()));
}

/// The status of a request by `user`, from a client at `ip`.
fn by(gateway: &Gateway, user: &str, ip: &str) -> u16 {
    status(&[
        "-u",
        user,
        "-H",
        &format!("x-forwarded-for: {ip}"),
        &gateway.url("/closed"),
    ])
}

fn hashes(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_password_hashes_total{authenticator=\"staff\"}")
}

#[test]
fn a_user_with_the_right_password_passes_and_the_password_goes_no_further() {
    let (gateway, _folder) = start();
    for (user, password) in [("ada", PASSWORDS[0]), ("bob", PASSWORDS[1])] {
        let answer = curl(&[
            "-u",
            &format!("{user}:{password}"),
            "-H",
            "x-user: root",
            &gateway.url("/closed"),
        ]);
        assert!(
            answer.contains(&format!("\"x-user\": [\n      \"{user}\"\n    ]")),
            "{answer}"
        );
        assert!(!answer.contains("authorization"), "{answer}");
    }
    let log = eventually("the lines", || {
        Some(gateway.log()).filter(|log| log.contains("\"identity\":\"bob\""))
    });
    assert!(
        log.contains("\"identity\":\"ada\",\"authenticator\":\"staff\""),
        "{log}"
    );
}

#[test]
fn a_wrong_password_an_unknown_user_and_none_at_all_are_challenged() {
    let (gateway, _folder) = start();
    let url = gateway.url("/closed");
    let header = |value: &str| format!("authorization: {value}");
    let (not_base64, no_colon) = (header("Basic !!!"), header("Basic YWRh"));
    let wrong: [&[&str]; 6] = [
        &[],
        &["-u", "ada:wrong"],
        &["-u", "eve:ada-secret"],
        &["-u", "bob:ada-secret"],
        &["-H", &not_base64],
        &["-H", &no_colon],
    ];
    for options in wrong {
        let answer = curl(&[&["-i"], options, &[&url]].concat());
        assert!(answer.starts_with("HTTP/1.1 401 "), "{options:?}: {answer}");
        let challenge = "www-authenticate: Basic realm=\"Staff only\", charset=\"UTF-8\"\r\n";
        assert!(answer.contains(challenge), "{options:?}: {answer}");
    }
    assert_eq!(
        hashes(&gateway),
        3.0,
        "an unknown user costs what a wrong password does, and what is no pair nothing"
    );
}

#[test]
fn a_right_password_is_hashed_once_however_many_requests_bring_it() {
    let (gateway, _folder) = start();
    let ada = format!("ada:{}", PASSWORDS[0]);
    thread::scope(|scope| {
        for n in 0..8 {
            let (gateway, ada) = (&gateway, &ada);
            scope.spawn(move || assert_eq!(by(gateway, ada, &format!("192.0.2.{n}")), 200));
        }
    });
    let url = gateway.url("/closed");
    assert_eq!(
        curl(&[
            "-u",
            &ada,
            "-o",
            "/dev/null",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} ",
            &url,
            &url
        ]),
        "200 200 "
    );
    assert_eq!(hashes(&gateway), 1.0);
}

#[test]
fn attempts_that_fail_are_limited_by_address_and_by_name_before_anything_is_hashed() {
    let (gateway, _folder) = start();
    let bob = format!("bob:{}", PASSWORDS[1]);
    let ada = format!("ada:{}", PASSWORDS[0]);
    assert_eq!(by(&gateway, &bob, "192.0.2.1"), 200);
    assert_eq!(by(&gateway, &ada, "192.0.2.7"), 200);
    // An address tries many names.
    let guesses: Vec<u16> = (0..6)
        .map(|n| by(&gateway, &format!("user{n}:x"), "192.0.2.1"))
        .collect();
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429]);
    // Many addresses try a name.
    for guess in 0..100 {
        let address = format!("198.51.100.{}", guess / 5);
        assert_eq!(by(&gateway, &format!("ada:{guess}"), &address), 401);
    }
    assert_eq!(by(&gateway, "ada:x", "198.51.100.100"), 429);
    assert_eq!(
        by(&gateway, "ada:x", "192.0.2.7"),
        401,
        "where she has been before, she may mistype it"
    );
    let before = hashes(&gateway);
    let answer = curl(&[
        "-i",
        "-u",
        "ada:7",
        "-H",
        "x-forwarded-for: 192.0.2.9",
        &gateway.url("/closed"),
    ]);
    assert!(
        answer.starts_with("HTTP/1.1 429 ")
            && answer.contains("urn:tollgate:problem:attempts-limited"),
        "{answer}"
    );
    let retry_after = answer
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .unwrap();
    assert!(
        (1..=720).contains(&retry_after.trim().parse::<u64>().unwrap()),
        "{answer}"
    );
    assert_eq!(hashes(&gateway), before);
    assert_eq!(
        by(&gateway, &bob, "192.0.2.1"),
        200,
        "a password that was right is remembered, whoever else fails"
    );
    let limited = "tollgate_authentications_total{authenticator=\"staff\",outcome=\"limited\"}";
    assert_eq!(gateway.metric(limited), 3.0);
}

#[test]
fn many_right_passwords_are_no_failed_attempts() {
    let (gateway, folder) = start();
    let names: Vec<String> = (0..12).map(|n| format!("user{n}")).collect();
    let users: String = names
        .iter()
        .map(|name| format!("{name}:{}\n", bcrypt(name)))
        .collect();
    replace(&gateway, &folder, &users, "applied");
    for name in &names {
        assert_eq!(by(&gateway, &format!("{name}:{name}"), "192.0.2.1"), 200);
    }
}

#[test]
fn users_change_while_requests_come_and_a_bad_file_changes_nothing() {
    let (gateway, folder) = start();
    let old = format!("ada:{}", PASSWORDS[0]);
    assert_eq!(by(&gateway, &old, "192.0.2.1"), 200);
    for (bad, why) in [
        ("", "the file has no user"),
        (
            "ada:$apr1$salt$hash\n",
            "htpasswd:1:1: user \"ada\": the hash is MD5 (apr1), which is not taken",
        ),
        (
            "\nada:{SHA}abc=\n",
            "htpasswd:2:1: user \"ada\": the hash is SHA-1, which is not taken",
        ),
        (
            "ada:hunter2\n",
            "user \"ada\": the hash is plain text or DES, which is not taken",
        ),
        ("ada\n", "htpasswd:1:1: the line has no colon"),
        (
            "ada:$2y$05$short\n",
            "user \"ada\": this is not a hash of bcrypt or Argon2",
        ),
        (
            &*users().replace("$2y$04$", "$2y$31$"),
            "htpasswd:2:1: user \"ada\": each check of this hash would take seconds",
        ),
        (
            &*(users() + &users()),
            "htpasswd:6:1: \"ada\" is on line 2 already",
        ),
    ] {
        replace(&gateway, &folder, bad, "rejected");
        eventually(why, || {
            gateway
                .log()
                .contains(&why.replace('"', "\\\""))
                .then_some(())
        });
        assert_eq!(by(&gateway, &old, "192.0.2.1"), 200);
    }
    replace(
        &gateway,
        &folder,
        &format!("ada:{}\n", bcrypt("another-secret")),
        "applied",
    );
    assert_eq!(by(&gateway, "ada:another-secret", "192.0.2.2"), 200);
    assert_eq!(
        by(&gateway, &old, "192.0.2.3"),
        401,
        "what was remembered goes with the file"
    );
    let (log, metrics) = (gateway.log(), gateway.metrics());
    for secret in PASSWORDS
        .into_iter()
        .chain(["another-secret", "hunter2", "YWRh", "$2y$"])
    {
        assert!(
            !log.contains(secret) && !metrics.contains(secret),
            "{secret} is in the log or the metrics"
        );
    }
}

#[test]
fn a_reload_that_leaves_the_users_alone_hashes_nobody_again() {
    let (gateway, folder) = start();
    let ada = format!("ada:{}", PASSWORDS[0]);
    assert_eq!(by(&gateway, &ada, "192.0.2.1"), 200);
    gateway.rewrite(
        &ROUTES
            .replace("x-user", "x-name")
            .replace("FOLDER", &folder.path().display().to_string()),
    );
    eventually("the reload", || {
        curl(&["-u", &ada, &gateway.url("/closed")])
            .contains("x-name")
            .then_some(())
    });
    assert_eq!(hashes(&gateway), 1.0);
}
