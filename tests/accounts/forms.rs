//! Forms that somebody else has made up.

use crate::house::House;

const RESET: [(&str, &str); 4] = [
    ("bucket.key", "per-client:127.0.0.1"),
    ("action", "reset"),
    ("step", "apply"),
    ("reason", "a test"),
];

#[test]
fn a_form_is_taken_from_its_own_session_and_site_alone() {
    let house = House::with(&[("ada", &["--admin"]), ("eve", &["--operator"])]);
    let (ada, eve) = (house.sign_in("ada"), house.sign_in("eve"));
    let path = "/console/limits/per-client/bucket";
    let cookie = format!("Cookie: {}", ada.cookie);
    let own_site = format!("Origin: http://{}", house.gateway.admin);
    let send = |token: &str, headers: &[&str]| {
        let mut fields = vec![("token", token)];
        fields.extend(RESET);
        house.send_form_of(path, &fields, headers).status
    };
    let (own, others) = (ada.form_token(), eve.form_token());
    assert_eq!(
        send(&others, &[&own_site, &cookie]),
        403,
        "a token of another session"
    );
    let shown = house.get("/console/sign-in").body;
    assert_eq!(
        send(&crate::house::form_token(&shown), &[&own_site, &cookie]),
        403,
        "a token of nobody's session"
    );
    assert_eq!(send("", &[&own_site, &cookie]), 403, "no token");
    assert_eq!(
        send(&own, &["Origin: http://evil.example", &cookie]),
        403,
        "another site"
    );
    assert_eq!(send(&own, &["Origin: null", &cookie]), 403, "no site");
    assert_eq!(
        send(&own, &[&own_site, "Origin: http://evil.example", &cookie]),
        403,
        "its own and another"
    );
    assert_eq!(
        send(&own, &[&own_site, "Sec-Fetch-Site: cross-site", &cookie]),
        403,
        "a browser that says so"
    );
    assert_eq!(send(&own, &[&own_site]), 401, "no session");
    assert_eq!(send(&own, &[&own_site, &cookie]), 200, "its own");
    // Once.
    assert_eq!(send(&own, &[&own_site, &cookie]), 400, "a second time");
}

#[test]
fn a_session_changes_nothing_by_the_pages_of_programs() {
    let house = House::with(&[("ada", &["--admin"])]);
    let ada = house.sign_in("ada");
    let path = "/buckets/per-client?client_ip=127.0.0.1";
    let by_cookie = |method| {
        house.ask(
            method,
            path,
            &[
                "-H",
                &format!("Cookie: {}", ada.cookie),
                "-H",
                "X-Tollgate-Operator: ada",
            ],
        )
    };
    assert_eq!(by_cookie("DELETE").status, 401);
    assert_eq!(by_cookie("GET").status, 200);
    // Nor does its secret pass as a token, nor a token as a session.
    let secret = ada.cookie.split_once('=').unwrap().1;
    assert_eq!(house.by_token("GET", "/limits", secret).status, 401);
    let token = house.token("ada");
    assert_eq!(house.by_token("GET", "/limits", &token).status, 200);
    assert_eq!(
        house
            .ask(
                "GET",
                "/console",
                &["-H", &format!("Cookie: tollgate={token}")]
            )
            .status,
        303
    );
    assert_eq!(house.by_token("GET", "/console", &token).status, 303);
}
