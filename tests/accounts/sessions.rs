//! Sessions: what opens with one, and that none outlives its end.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _};
use tollgate_policies::people::{AuthorProof, ChangeAuthor, SessionTerms};

use crate::house::{House, PASSWORD};

#[test]
fn only_probes_and_metrics_are_open_to_everybody() {
    let house = House::with(&[("ada", &["--admin"])]);
    for open in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(house.get(open).status, 200, "{open}");
    }
    for closed in [
        "/",
        "/limits",
        "/upstreams",
        "/openapi.json",
        "/buckets/per-client?client_ip=127.0.0.1",
        "/nowhere",
    ] {
        let reply = house.get(closed);
        assert_eq!(reply.status, 401, "{closed}");
        assert_eq!(
            reply.header("www-authenticate"),
            Some("Bearer realm=\"tollgate\""),
            "{closed}"
        );
    }
    for page in [
        "/console",
        "/console/limits/per-client",
        "/console/people",
        "/console/audit",
        "/console/account",
    ] {
        let reply = house.get(page);
        let sign_in = format!(
            "/console/sign-in?page={}",
            page.replace('/', "%2F").replace('-', "%2D")
        );
        assert_eq!(
            (reply.status, reply.header("location")),
            (303, Some(sign_in.as_str())),
            "{page}"
        );
    }
    assert_eq!(house.get("/console/data?view=overview").status, 401);
    let token = house.token("ada");
    for path in [
        "/limits",
        "/policies",
        "/nowhere",
        "/buckets/per-client?client_ip=127.0.0.1",
    ] {
        for reply in [house.by_token("GET", path, &token), house.get(path)] {
            let fields = ["cache-control", "x-content-type-options"].map(|name| reply.header(name));
            assert_eq!(
                fields,
                [Some("no-store"), Some("nosniff")],
                "{path}: {}",
                reply.head
            );
        }
    }
}

#[test]
fn without_an_account_everybody_is_told_how_to_make_the_first() {
    let house = House::empty();
    for page in ["/limits", "/console/sign-in"] {
        let reply = house.get(page);
        assert_eq!(reply.status, 401, "{page}");
        assert!(
            reply
                .body
                .contains("tollgate account create NAME --admin --config FILE"),
            "{page}: {}",
            reply.body
        );
    }
    assert_eq!(house.get("/readyz").status, 200);
    house.done(&["account", "create", "ada", "--admin"]);
    let ada = house.sign_in("ada");
    assert_eq!(ada.get("/console").status, 200);
}

#[test]
fn a_stolen_cookie_opens_nothing_after_its_owner_has_signed_out() {
    let house = House::with(&[("ada", &["--admin"])]);
    let ada = house.sign_in("ada");
    let form = ada.form_token();
    assert_eq!(ada.get("/console/people").status, 200);
    let out = ada.post("/console/sign-out", &[]);
    assert_eq!(
        (out.status, out.header("location")),
        (303, Some("/console/sign-in"))
    );
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    let late = ada.get("/console/people");
    assert_eq!(late.status, 303);
    assert!(
        late.header("set-cookie").unwrap().contains("Max-Age=0"),
        "the browser sends it no more: {}",
        late.head
    );
    assert_eq!(
        house
            .ask(
                "GET",
                "/limits",
                &["-H", &format!("Cookie: {}", ada.cookie)]
            )
            .status,
        401
    );
    // Nor does a form that was open when its owner left.
    let fields = [
        ("token", form.as_str()),
        ("name", "eve"),
        ("fleet", "admin"),
        ("password", PASSWORD),
    ];
    let late = house.send_form(
        "/console/people",
        &fields,
        &[&format!("Cookie: {}", ada.cookie)],
    );
    assert_eq!(late.status, 401);
    assert!(!house.done(&["account", "list"]).contains("eve"));
}

#[test]
fn whoever_signs_out_everywhere_leaves_no_session_behind() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    let (here, elsewhere, bob, token) = (
        house.sign_in("ada"),
        house.sign_in("ada"),
        house.sign_in("bob"),
        house.token("ada"),
    );
    assert!(
        here.get("/console/account")
            .body
            .contains(">Sign out everywhere</button>")
    );
    let out = here.post("/console/account", &[("action", "sign_out")]);
    assert_eq!(
        (out.status, out.header("location")),
        (303, Some("/console/sign-in")),
        "{}",
        out.body
    );
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(
        [&here, &elsewhere, &bob].map(|browser| browser.get("/console").status),
        [303, 303, 200]
    );
    assert_eq!(
        house.by_token("GET", "/limits", &token).status,
        200,
        "a token is no session"
    );
    let log = house.sign_in("ada").get("/console/audit").body;
    assert!(log.contains("everywhere: 2 sessions"), "{log}");
}

#[test]
fn each_sign_in_begins_a_session_of_its_own() {
    let house = House::with(&[("ada", &["--admin"])]);
    // A secret that somebody else has put there is not taken over.
    let planted = "tollgate=tgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let reply = house.try_to_sign_in("ada", PASSWORD, planted);
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/console/limits"))
    );
    assert_ne!(reply.cookie(), planted);
    assert_eq!(
        house
            .ask("GET", "/console", &["-H", &format!("Cookie: {planted}")])
            .status,
        303
    );
    let cookie = reply.header("set-cookie").unwrap().to_owned();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let other = house.sign_in("ada");
    assert_ne!(other.cookie, reply.cookie());
}

#[test]
fn whoever_is_disabled_is_out_at_once() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    let (bob, token) = (house.sign_in("bob"), house.token("bob"));
    assert_eq!(
        (
            bob.get("/console").status,
            house.by_token("GET", "/limits", &token).status
        ),
        (200, 200)
    );
    let ada = house.sign_in("ada");
    assert_eq!(
        ada.post("/console/people/bob", &[("action", "disable")])
            .status,
        303
    );
    assert_eq!(
        (
            bob.get("/console").status,
            house.by_token("GET", "/limits", &token).status
        ),
        (303, 401)
    );
    // Somebody who is let in again signs in again.
    house.done(&["account", "change", "bob", "--enable"]);
    assert_eq!(bob.get("/console").status, 303);
    house.sign_in("bob");
}

#[test]
fn a_new_password_ends_all_other_sessions() {
    let house = House::with(&[("ada", &["--admin"])]);
    let (here, elsewhere) = (house.sign_in("ada"), house.sign_in("ada"));
    let new = [
        ("action", "password"),
        ("current", PASSWORD),
        ("new", "another long one"),
        ("again", "another long one"),
    ];
    let wrong = [
        ("action", "password"),
        ("current", "not the password"),
        ("new", "another long one"),
        ("again", "another long one"),
    ];
    assert_eq!(here.post("/console/account", &wrong).status, 400);
    assert_eq!(elsewhere.get("/console").status, 200);
    let changed = here.post("/console/account", &new);
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(
        (
            here.get("/console").status,
            elsewhere.get("/console").status
        ),
        (303, 303)
    );
    assert_eq!(
        house
            .ask(
                "GET",
                "/console",
                &["-H", &format!("Cookie: {}", changed.cookie())]
            )
            .status,
        200
    );
    assert_eq!(house.try_to_sign_in("ada", PASSWORD, "").status, 401);
    assert_eq!(
        house.try_to_sign_in("ada", "another long one", "").status,
        303
    );
}

#[test]
fn a_page_that_is_left_open_keeps_no_session_alive() {
    const TERMS: SessionTerms = SessionTerms {
        idle: Duration::from_secs(900),
        absolute: Duration::from_secs(3_600),
    };
    let house = House::with(&[("ada", &["--admin"])]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let people = house.people();
    let operator = ChangeAuthor {
        account: "",
        address: "command line",
        proof: AuthorProof::Trusted,
    };
    let secret = runtime.block_on(async {
        let mut change = people.begin(&operator).await.unwrap();
        let (secret, _) = change.begin_session("ada", TERMS).await.unwrap();
        change.commit_unrecorded().await.unwrap();
        secret
    });
    let ada = house.browser(format!("tollgate={}", secret.expose()));
    let idle_until = || {
        runtime
            .block_on(people.idle_session(secret.expose()))
            .unwrap()
            .unwrap()
            .1
            .idle_until
    };
    // The passing of time, done by hand.
    runtime.block_on(async {
        let mut database = house.connect().await;
        let later = "UPDATE tollgate_sessions SET idle_until = idle_until - 600000";
        database.execute(later).await.unwrap();
        database.close().await.unwrap();
    });
    let before = idle_until();
    assert_eq!(ada.get("/console/data?view=overview").status, 200);
    assert_eq!(idle_until(), before);
    // A page that somebody opens keeps it alive.
    assert_eq!(ada.get("/console/limits").status, 200);
    assert!(idle_until() > before);
}
