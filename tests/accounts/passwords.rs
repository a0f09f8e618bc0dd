//! Passwords that are guessed.

use std::time::Instant;

use crate::house::{House, PASSWORD, form_token};
use crate::process::{curl, eventually};

#[test]
fn nobody_learns_which_accounts_there_are() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    house.done(&["account", "create", "robot", "--operator", "--no-password"]);
    house.done(&["account", "disable", "bob"]);
    let said = |name: &str, password: &str| {
        let reply = house.try_to_sign_in(name, password, "");
        assert_eq!(reply.status, 401, "{name}");
        assert_eq!(reply.header("set-cookie"), None, "{name}");
        let (_, alert) = reply.body.split_once("role=\"alert\"").unwrap();
        alert.split("</div>").next().unwrap().to_owned()
    };
    let wrong = said("ada", "not the password");
    assert_eq!(wrong, said("nobody", PASSWORD));
    assert_eq!(wrong, said("bob", PASSWORD));
    assert_eq!(wrong, said("robot", PASSWORD));
    assert_eq!(wrong, said("ada", &format!("{PASSWORD} ")));
}

/// How many passwords may be guessed for Ada before the next is refused. The bound lets another
/// through each half a minute.
fn guesses_until_refused(house: &House) -> usize {
    let statuses = (0..600).map(|guess| {
        house
            .try_to_sign_in("ada", &format!("guess number {guess}"), "")
            .status
    });
    let admitted = statuses.take_while(|status| *status == 401);
    admitted.count()
}

#[test]
fn a_flood_of_guesses_is_stopped_before_anything_is_hashed() {
    let house = House::with(&[("ada", &["--admin"])]);
    let signed_in = house.sign_in("ada");
    let begun = Instant::now();
    let guesses = guesses_until_refused(&house);
    let most = 10 + begun.elapsed().as_secs() as usize / 30 + 1;
    assert!((10..=most).contains(&guesses), "{guesses} of {most}");
    let stopped = house.try_to_sign_in("ada", PASSWORD, "");
    assert_eq!(stopped.status, 429, "{}", stopped.body);
    assert!(stopped.body.contains("try again in "), "{}", stopped.body);
    // Another name from the same network does not help, and whoever is signed in goes on.
    assert_eq!(house.try_to_sign_in("bob", PASSWORD, "").status, 429);
    assert_eq!(signed_in.get("/console").status, 200);
    let log = signed_in.get("/console/audit").body;
    // Those that the bound lets through: strangers do not fill it.
    assert_eq!(
        log.matches("wrong name or password, or disabled").count(),
        guesses,
        "{log}"
    );
    assert!(!log.contains("too many failed"), "{log}");
}

#[test]
fn what_is_typed_as_a_name_is_kept_only_if_it_is_one() {
    const TYPED: &str = "My-Secret-Passw0rd";
    let house = House::with(&[("ada", &["--admin"])]);
    for name in [TYPED, "My Secret Passw0rd", "ada"] {
        assert_eq!(
            house.try_to_sign_in(name, "not the password", "").status,
            401,
            "{name}"
        );
    }
    let log = house.sign_in("ada").get("/console/audit").body;
    assert!(!log.contains("Secret"), "{log}");
    let refused = log
        .split("<tr>")
        .filter(|row| row.contains("wrong name or password"));
    let objects: Vec<_> = refused
        .map(|row| {
            row.split("class=\"why\">")
                .nth(1)
                .unwrap()
                .split('<')
                .next()
                .unwrap()
        })
        .collect();
    assert_eq!(
        objects,
        ["account ada", "an unknown name", "an unknown name"]
    );
}

#[test]
fn whoever_guesses_elsewhere_keeps_nobody_out() {
    let house = House::with(&[("ada", &["--admin"])]);
    guesses_until_refused(&house);
    assert_eq!(house.try_to_sign_in("ada", PASSWORD, "").status, 429);
    let elsewhere = ["--interface", "127.0.0.2"];
    let token = form_token(&house.ask("GET", "/console/sign-in", &elsewhere).body);
    let (token, password) = (format!("token={token}"), format!("password={PASSWORD}"));
    let form = [
        "-H",
        "Sec-Fetch-Site: same-origin",
        "--data-urlencode",
        &token,
        "-d",
        "name=ada",
        "-d",
        &password,
    ];
    let signed_in = house.ask(
        "POST",
        "/console/sign-in",
        &[&elsewhere[..], &form].concat(),
    );
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
}

#[test]
fn a_flood_of_tokens_is_stopped_before_the_database_is_asked() {
    let house = House::with(&[("ada", &["--admin"])]);
    let token = house.token("ada");
    // More than the bound of valid ones changes nothing.
    (0..70).for_each(|_| assert_eq!(house.by_token("GET", "/limits", &token).status, 200));
    // Another is let in each second meanwhile.
    let refused = (0..600)
        .map(|index| house.by_token("GET", "/limits", &format!("tgt_{index}")))
        .find(|reply| reply.status != 401);
    let refused = refused.unwrap();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("1")),
        "{}",
        refused.body
    );
    assert!(
        refused.body.contains("too many tokens from this address"),
        "{}",
        refused.body
    );
    let bearer = format!("Authorization: Bearer {token}");
    let elsewhere = house.ask(
        "GET",
        "/limits",
        &["--interface", "127.0.0.2", "-H", &bearer],
    );
    assert_eq!(elsewhere.status, 200, "from another address");
    // Sessions ask nobody for a place, nor do probes.
    assert_eq!(house.sign_in("ada").get("/limits").status, 200);
    assert_eq!(house.get("/metrics").status, 200);
}

#[test]
fn a_flood_of_sessions_is_stopped_before_the_database_is_asked() {
    let house = House::with(&[("ada", &["--admin"])]);
    let ada = house.sign_in("ada");
    // More than the bound of valid ones changes nothing.
    (0..70).for_each(|_| assert_eq!(ada.get("/limits").status, 200));
    let ask = |index: usize| {
        house.ask(
            "GET",
            "/limits",
            &["-H", &format!("Cookie: tollgate=tgs_{index:043}")],
        )
    };
    let refused = (0..600).map(ask).find(|reply| reply.status != 401).unwrap();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("1")),
        "{}",
        refused.body
    );
    assert!(
        refused.body.contains("too many sessions from this address"),
        "{}",
        refused.body
    );
    let cookie = format!("Cookie: {}", ada.cookie);
    let elsewhere = house.ask(
        "GET",
        "/limits",
        &["--interface", "127.0.0.2", "-H", &cookie],
    );
    assert_eq!(elsewhere.status, 200, "from another address");
    // Tokens have a bound of their own.
    assert_eq!(
        house.by_token("GET", "/limits", &house.token("ada")).status,
        200
    );
}

#[test]
fn a_page_of_another_name_uses_up_no_bound() {
    let house = House::with(&[("ada", &["--admin"])]);
    let host = format!("evil.example:{}", house.gateway.admin.port());
    for index in 0..100 {
        let url = format!("http://{}/limits", house.gateway.admin);
        let bearer = format!("Authorization: Bearer tgt_{index}");
        let refused = curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &format!("Host: {host}"),
            "-H",
            &bearer,
            &url,
        ]);
        assert_eq!(refused, "403", "no token is looked up");
    }
    assert_eq!(
        house.by_token("GET", "/limits", &house.token("ada")).status,
        200
    );
}

#[test]
fn behind_a_trusted_proxy_the_bounds_and_the_audit_log_have_its_clients() {
    let house = House::behind_proxy("https://gate.example");
    house.done(&["account", "create", "ada", "--admin"]);
    let token = house.token("ada");
    let ask = |client: &str, token: &str| {
        let (client, bearer) = (
            format!("X-Forwarded-For: {client}"),
            format!("Authorization: Bearer {token}"),
        );
        house.ask("GET", "/limits", &["-H", &client, "-H", &bearer])
    };
    let is_refused = |token: &str| ask("203.0.113.1", token).status == 429;
    let mut guesses = (0..600).map(|index| format!("tgt_{index}"));
    assert!(guesses.any(|guess| is_refused(&guess)));
    // The bound lets another through each second.
    eventually("a valid token is refused, too", || {
        (is_refused("tgt_guess") && is_refused(&token)).then_some(())
    });
    assert_eq!(
        ask("203.0.113.2", &token).status,
        200,
        "another client of the proxy"
    );
    let client = ["-H", "X-Forwarded-For: 198.51.100.9, 203.0.113.7"];
    let bearer = format!("Authorization: Bearer {}", house.token("ada"));
    let changed = ["-H", "X-Tollgate-Operator: ada", "-H", &bearer];
    let path = "/buckets/per-client?client_ip=127.0.0.1";
    assert_eq!(
        house
            .ask("DELETE", path, &[&client[..], &changed].concat())
            .status,
        200
    );
    let log = house.sign_in("ada").get("/console/audit").body;
    assert!(
        log.contains("203.0.113.7") && !log.contains("198.51.100.9"),
        "{log}"
    );
}

#[test]
fn a_token_is_made_by_whoever_knows_the_password_and_ends_with_it() {
    const NEXT: &str = "another horse battery";
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    let make = |password: &str| {
        let fields = [
            ("action", "token"),
            ("label", "ci"),
            ("scope", "all"),
            ("days", "0"),
            ("current", password),
        ];
        house.sign_in("bob").post("/console/account", &fields)
    };
    for wrong in ["", "not the password"] {
        let refused = make(wrong);
        assert_eq!(refused.status, 400, "an open browser is not enough");
        assert!(
            refused.body.contains("the current password is wrong")
                && !refused.body.contains("tgt_")
        );
        assert!(
            refused.body.contains("value=\"ci\"")
                && refused.body.contains("<option value=\"all\" selected>"),
            "the rest of the form is still there: {}",
            refused.body
        );
    }
    let made = || {
        let page = make(PASSWORD).body;
        let (_, rest) = page
            .split_once("<code>tgt_")
            .unwrap_or_else(|| panic!("no token: {page}"));
        format!("tgt_{}", rest.split('<').next().unwrap())
    };
    let is_valid = |token: &str| house.by_token("GET", "/limits", token).status == 200;
    let (token, bob) = (made(), house.sign_in("bob"));
    assert!(is_valid(&token));
    let change = |current, new, tokens| {
        [
            ("action", "password"),
            ("current", current),
            ("new", new),
            ("again", new),
            ("earlier_tokens", tokens),
        ]
    };
    let kept = bob.post("/console/account", &change(PASSWORD, NEXT, "keep"));
    assert!(
        kept.body.contains("Your other sessions have ended.") && is_valid(&token),
        "{}",
        kept.body
    );
    let bob = house.try_to_sign_in("bob", NEXT, "");
    let cookie = format!("Cookie: {}", bob.cookie());
    let form = form_token(&house.ask("GET", "/console/account", &["-H", &cookie]).body);
    let mut fields = change(NEXT, PASSWORD, "revoke").to_vec();
    fields.push(("token", &form));
    let revoked = house.send_form("/console/account", &fields, &[&cookie]);
    assert!(
        revoked
            .body
            .contains("have ended, and the tokens were revoked")
            && !is_valid(&token),
        "{}",
        revoked.body
    );

    // By an administrator, too, whether by a form or by a command.
    let (ada, token) = (house.sign_in("ada"), made());
    let new = [
        ("action", "password"),
        ("password", PASSWORD),
        ("current", PASSWORD),
    ];
    assert_eq!(ada.post("/console/people/bob", &new).status, 303);
    assert!(!is_valid(&token));
    let (kept, revoked) = (house.token("bob"), house.token("ada"));
    assert!(
        house
            .done(&["account", "password", "bob", "--keep-tokens"])
            .ends_with("its sessions have ended\n")
    );
    assert!(
        house
            .done(&["account", "password", "ada"])
            .ends_with("and its tokens were revoked\n")
    );
    assert_eq!((is_valid(&kept), is_valid(&revoked)), (true, false));
}

#[test]
fn an_open_browser_of_an_admin_makes_no_lasting_way_in() {
    const NEXT: &str = "another horse battery";
    let house = House::with(&[("ada", &["--admin"]), ("bob", &[])]);
    house.done(&["account", "disable", "bob"]);
    let ada = house.sign_in("ada");
    let before = house.done(&["account", "list"]);
    let forms: [(&str, &[(&str, &str)]); 5] = [
        (
            "/console/people",
            &[("name", "eve"), ("fleet", "admin"), ("password", NEXT)],
        ),
        (
            "/console/people/bob",
            &[("action", "password"), ("password", NEXT)],
        ),
        (
            "/console/people/bob",
            &[
                ("action", "role"),
                ("application", "shop"),
                ("role", "owner"),
            ],
        ),
        (
            "/console/people/bob",
            &[("action", "fleet"), ("role", "admin")],
        ),
        ("/console/people/bob", &[("action", "enable")]),
    ];
    for (at, (path, fields)) in forms.into_iter().enumerate() {
        // So many guesses may fail, and no more.
        let wrong: [&[(&str, &str)]; 2] = [&[("current", "not the password")], &[]];
        for wrong in &wrong[..if at == 0 { 2 } else { 1 }] {
            let refused = ada.post(path, &[fields, *wrong].concat());
            assert_eq!(refused.status, 400, "{path} {fields:?} {wrong:?}");
            assert!(
                refused.body.contains("the current password is wrong"),
                "{path}: {}",
                refused.body
            );
        }
    }
    assert_eq!(house.done(&["account", "list"]), before);
    // One's own password is a matter of the page that ends the other sessions, and asks for the one
    // before.
    for current in [PASSWORD, ""] {
        let own = [
            ("action", "password"),
            ("password", NEXT),
            ("current", current),
        ];
        let refused = ada.post("/console/people/ada", &own);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(
            refused
                .body
                .contains("your own password is changed on the page of your account"),
            "{}",
            refused.body
        );
    }
    assert!(
        !ada.get("/console/people/ada")
            .body
            .contains("A new password")
    );
    assert!(
        ada.get("/console/people/bob")
            .body
            .contains("A new password")
    );
    for (path, fields) in forms {
        let done = ada.post(path, &[fields, &[("current", PASSWORD)]].concat());
        assert_eq!(done.status, 303, "{path} {fields:?}: {}", done.body);
    }
    let list = house.done(&["account", "list"]);
    assert!(
        list.contains("eve  admin\n") && list.contains("bob  admin, shop=owner\n"),
        "{list}"
    );
}

#[test]
fn nobody_fills_the_audit_log_by_their_own_account() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &[])]);
    let bob = house.sign_in("bob");
    let fields = [
        ("action", "token"),
        ("label", "ci"),
        ("scope", "all"),
        ("days", "1"),
        ("current", PASSWORD),
    ];
    assert_eq!(bob.post("/console/account", &fields).status, 200);
    let id = house
        .done(&["token", "list", "bob"])
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let (form, cookie) = (bob.form_token(), format!("Cookie: {}", bob.cookie));
    let revoke = |form: &str| {
        house.send_form(
            "/console/account",
            &[("token", form), ("action", "revoke"), ("id", &id)],
            &[&cookie],
        )
    };
    assert_eq!(revoke(&form).status, 200);
    assert_eq!(revoke(&form).status, 400, "the form was sent before");
    let again = revoke(&bob.form_token());
    assert!(
        again.status == 404 && again.body.contains("or it was revoked before"),
        "{}",
        again.body
    );
    let begun = Instant::now();
    for _ in 0..70 {
        house.sign_in("bob");
    }
    // Another is kept each minute.
    let most = 62 + begun.elapsed().as_secs() as usize / 60;
    let (ada, mut before, mut rows) = (house.sign_in("ada"), String::new(), Vec::new());
    for _ in 0..2 {
        let page = ada.get(&format!("/console/audit{before}")).body;
        rows.extend(
            page.split("<tr>")
                .filter(|row| row.contains("<td>bob</td>"))
                .map(str::to_owned),
        );
        before = format!(
            "?before={}",
            page.split("before=")
                .nth(1)
                .unwrap_or("1\"")
                .split('"')
                .next()
                .unwrap()
        );
    }
    let count = |what: &str| rows.iter().filter(|row| row.contains(what)).count();
    assert_eq!(count("token revoke"), 1, "{rows:?}");
    assert!(
        (60..=most).contains(&count("sign in")),
        "{} of {most}",
        count("sign in")
    );
}

#[test]
fn a_form_with_a_wrong_password_keeps_all_else_that_it_had() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    let ada = house.sign_in("ada");
    let fields = [
        ("name", "vera"),
        ("display_name", "Vera of the shop"),
        ("password", "a secret of Vera"),
        ("fleet", "operator"),
        ("current", "not the password"),
    ];
    let refused = ada.post("/console/people", &fields);
    assert_eq!(refused.status, 400, "{}", refused.body);
    for kept in [
        "value=\"vera\"",
        "value=\"Vera of the shop\"",
        "<option value=\"operator\" selected>",
    ] {
        assert!(refused.body.contains(kept), "{kept}: {}", refused.body);
    }
    assert!(!refused.body.contains("a secret of Vera"));
}
