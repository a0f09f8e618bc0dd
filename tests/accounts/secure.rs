//! The console over HTTPS: the admin port's own, or that of a proxy in front.

use tollgate_test_support::topology::CertificateAuthority;
use tollgate_test_support::turns;

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
    let _turn = turns::beside_others();
    let authority = CertificateAuthority::create();
    authority.issue("admin", "IP:127.0.0.1");
    let (cert, key) = (authority.path("admin.pem"), authority.path("admin.key"));
    let tls = format!(", tls: {{certificates: [{{cert: '{}', key: '{}'}}]}}", cert.display(), key.display());
    let cookie = live_a_day(&House::at(&tls, "https", None));
    assert!(cookie.starts_with("__Host-tollgate=tgs_") && cookie.ends_with(SECURE), "{cookie}");
}

#[test]
fn behind_a_proxy_with_tls_so_it_is() {
    let _turn = turns::beside_others();
    let house = House::at(", public_url: 'https://gate.example'", "http", Some("https://gate.example"));
    let cookie = live_a_day(&house);
    assert!(cookie.starts_with("__Host-tollgate=tgs_") && cookie.ends_with(SECURE), "{cookie}");
    // Another name that leads here is not taken, nor is a form of a page in the clear.
    let page = format!("http://{}/console/sign-in", house.gateway.admin);
    let other = curl(&["-w", "%{http_code}", "-H", "Host: evil.example", &page]);
    assert!(other.ends_with("403") && other.contains("use https://gate.example"), "{other}");
    for origin in ["Origin: http://gate.example", "Origin: https://evil.example"] {
        let sent = house.send_form_of("/console/sign-in", &[("name", "ada")], &[origin]);
        assert_eq!(sent.status, 403, "{origin}");
        assert!(sent.body.contains("another origin"), "{origin}: {}", sent.body);
    }
}

#[test]
fn in_the_clear_on_this_machine_a_browser_keeps_it_all_the_same() {
    let _turn = turns::beside_others();
    let cookie = live_a_day(&House::empty());
    assert!(cookie.starts_with("tollgate=tgs_") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
}
