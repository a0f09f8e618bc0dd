//! The console over HTTPS: the admin port's own, or that of a proxy in front.

use std::path::Path;
use std::process::Command;

use tollgate_testing::topology::CertificateAuthority;

use crate::house::{House, PASSWORD};
use crate::process::curl;

const SECURE: &str = "; Path=/; HttpOnly; SameSite=Strict; Secure";

/// Signs in, looks around, changes something and signs out: all by one cookie, which is returned.
fn live_a_day(house: &House) -> String {
    house.done(&["account", "create", "ada", "--admin"]);
    let signed_in = house.try_to_sign_in("ada", PASSWORD, "");
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
    let ada = house.sign_in("ada");
    assert_eq!(ada.get("/console/people").status, 200);
    assert_eq!(ada.post("/console/sign-out", &[]).status, 303);
    assert_eq!(ada.get("/console/people").status, 303);
    signed_in.header("set-cookie").unwrap().to_owned()
}

#[test]
fn over_tls_of_the_port_a_session_is_sent_by_https_to_this_host_alone() {
    let authority = CertificateAuthority::create();
    authority.issue("admin", "IP:127.0.0.1");
    let (cert, key) = (authority.path("admin.pem"), authority.path("admin.key"));
    let tls = format!(
        ", tls: {{certificates: [{{cert: '{}', key: '{}'}}]}}",
        cert.display(),
        key.display()
    );
    let cookie = live_a_day(&House::at(&tls, "https", None));
    assert!(
        cookie.starts_with("__Host-tollgate=tgs_") && cookie.ends_with(SECURE),
        "{cookie}"
    );
}

#[test]
fn a_command_asks_by_https_and_sends_no_token_in_the_clear() {
    let authority = CertificateAuthority::create();
    authority.issue("admin", "IP:127.0.0.1");
    let (cert, key) = (authority.path("admin.pem"), authority.path("admin.key"));
    let tls = format!(
        ", tls: {{certificates: [{{cert: '{}', key: '{}'}}]}}",
        cert.display(),
        key.display()
    );
    let house = House::at(&tls, "https", None);
    house.done(&["account", "create", "ada", "--admin"]);
    let token = house.token("ada");
    let peek = |admin: &str, ca: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args([
            "bucket",
            "peek",
            "per-client",
            "--client-ip",
            "127.0.0.1",
            "--admin",
            admin,
        ]);
        command
            .env("TOLLGATE_TOKEN", &token)
            .env_remove("TOLLGATE_ADMIN_CA");
        if let Some(ca) = ca {
            command.arg("--admin-ca").arg(ca);
        }
        let output = command.output().unwrap();
        (
            output.status.code(),
            [output.stdout, output.stderr]
                .map(|text| String::from_utf8(text).unwrap())
                .concat(),
        )
    };
    let admin = format!("https://{}", house.gateway.admin);
    let ca = authority.path("ca.pem");
    let (code, text) = peek(&admin, Some(&ca));
    assert!(code == Some(0) && text.contains("3 of 3"), "{text}");
    let (code, text) = peek(&admin, None);
    assert!(code == Some(1) && text.contains("--admin-ca"), "{text}");
    // Documentation's network (RFC 5737): it is refused before anybody is asked.
    let (code, text) = peek("http://198.51.100.7:9901", None);
    assert!(
        code == Some(1) && text.contains("the token would go to 198.51.100.7:9901 in the clear"),
        "{text}"
    );
    assert!(text.contains("hint: ask by https://"), "{text}");
    let health = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["health", "--admin", &admin, "--admin-ca"])
        .arg(&ca)
        .output();
    assert!(health.unwrap().status.success());
}

#[test]
fn behind_a_proxy_with_tls_so_it_is() {
    let house = House::at(
        ", public_url: 'https://gate.example'",
        "http",
        Some("https://gate.example"),
    );
    let cookie = live_a_day(&house);
    assert!(
        cookie.starts_with("__Host-tollgate=tgs_") && cookie.ends_with(SECURE),
        "{cookie}"
    );
    // Another name that leads here is not taken, nor is a form of a page in the clear.
    let page = format!("http://{}/console/sign-in", house.gateway.admin);
    let other = curl(&["-w", "%{http_code}", "-H", "Host: evil.example", &page]);
    assert!(
        other.ends_with("403") && other.contains("use https://gate.example"),
        "{other}"
    );
    for origin in [
        "Origin: http://gate.example",
        "Origin: https://evil.example",
    ] {
        let sent = house.send_form_of("/console/sign-in", &[("name", "ada")], &[origin]);
        assert_eq!(sent.status, 403, "{origin}");
        assert!(
            sent.body.contains("another origin"),
            "{origin}: {}",
            sent.body
        );
    }
}

#[test]
fn in_the_clear_on_this_machine_a_browser_keeps_it_all_the_same() {
    let cookie = live_a_day(&House::empty());
    assert!(
        cookie.starts_with("tollgate=tgs_")
            && cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
}
