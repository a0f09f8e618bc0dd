//! The rights of each role, point by point: every role against every page and every change, over
//! real sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use sqlx::Executor as _;

use crate::house::{BrowserSession, House, PASSWORD};
use crate::process::{eventually, status};

/// The roles, in the order of the letters of [`PAGES`] and [`CHANGES`].
const ROLES: [(&str, &[&str]); 7] = [
    ("nobody", &[]),
    ("viewer", &["--role", "shop=viewer"]),
    ("editor", &["--role", "shop=editor"]),
    ("owner", &["--role", "shop=owner"]),
    ("watcher", &["--viewer"]),
    ("operator", &["--operator"]),
    ("admin", &["--admin"]),
];

const BUCKET: &str = "/buckets/per-client?client_ip=127.0.0.1";
const EXPLAIN: &str = "/explain?url=http://127.0.0.1/";

/// Requests of programs by a token, and who is answered: nobody, viewer, editor, owner, viewer of
/// the fleet, operator, admin.
const PROGRAMS: [(&str, &str, &str); 8] = [
    ("GET", "/limits", ".vwoVOA"),
    ("GET", "/upstreams", ".vwoVOA"),
    ("GET", "/nodes", ".vwoVOA"),
    ("GET", "/openapi.json", ".vwoVOA"),
    ("GET", BUCKET, "....VOA"),
    ("GET", EXPLAIN, "....VOA"),
    ("DELETE", BUCKET, ".....OA"),
    (
        "POST",
        "/buckets/per-client/grant?client_ip=127.0.0.1&tokens=1",
        ".....OA",
    ),
];

/// The pages of the console.
const PAGES: [(&str, &str); 14] = [
    ("/console", ".vwoVOA"),
    ("/console/routes", ".vwoVOA"),
    ("/console/routes/client", ".vwoVOA"),
    ("/console/limits", ".vwoVOA"),
    ("/console/limits/per-client", ".vwoVOA"),
    ("/console/upstreams", ".vwoVOA"),
    ("/console/nodes", ".vwoVOA"),
    ("/console/data?view=overview", ".vwoVOA"),
    ("/console/account", "nvwoVOA"),
    ("/console/limits/per-client/bucket", "....VOA"),
    ("/console/explain", "....VOA"),
    ("/console/people", "...oVOA"),
    ("/console/people/nobody", "...oVOA"),
    ("/console/audit", "....VOA"),
];

/// The fields of a form.
type FormFields = [(&'static str, &'static str)];

/// The changes that forms of the console make.
const CHANGES: [(&str, &FormFields, &str); 12] = [
    (
        "/console/limits/per-client/bucket",
        &[
            ("bucket.key", "per-client:127.0.0.1"),
            ("action", "reset"),
            ("step", "apply"),
            ("reason", "a test"),
        ],
        ".....OA",
    ),
    (
        "/console/explain",
        &[("url", "http://127.0.0.1/")],
        "....VOA",
    ),
    (
        "/console/account",
        &[
            ("action", "token"),
            ("label", "mine"),
            ("scope", "all"),
            ("days", "1"),
            ("current", PASSWORD),
        ],
        "nvwoVOA",
    ),
    (
        "/console/people/nobody",
        &[
            ("action", "role"),
            ("application", "shop"),
            ("role", "none"),
        ],
        "...o..A",
    ),
    (
        "/console/people/nobody",
        &[
            ("action", "role"),
            ("application", "bank"),
            ("role", "none"),
        ],
        "......A",
    ),
    (
        "/console/people/nobody",
        &[("action", "fleet"), ("role", "none"), ("current", PASSWORD)],
        "......A",
    ),
    (
        "/console/people/nobody",
        &[("action", "enable"), ("current", PASSWORD)],
        "......A",
    ),
    ("/console/people/spare", &[("action", "disable")], "......A"),
    (
        "/console/people/spare",
        &[
            ("action", "password"),
            ("password", "another long one"),
            ("current", PASSWORD),
        ],
        "......A",
    ),
    (
        "/console/people",
        &[("name", "made"), ("fleet", "admin"), ("current", PASSWORD)],
        "......A",
    ),
    ("/console/people/spare", &[("action", "remove")], "......A"),
    (
        "/console/theme",
        &[("theme", "dark"), ("page", "/console")],
        "nvwoVOA",
    ),
];

#[test]
fn every_role_may_do_what_the_tables_say() {
    let house = House::with(&ROLES);
    house.done(&["account", "create", "spare", "--no-password"]);
    for (place, (name, _)) in ROLES.iter().enumerate() {
        let may = |row: &str| row.as_bytes()[place] != b'.';
        let token = house.token(name);
        for (method, path, row) in PROGRAMS {
            let found = house.by_token(method, path, &token).status;
            assert_eq!(
                found,
                if may(row) { 200 } else { 403 },
                "{name}: {method} {path}"
            );
        }
        let session = house.sign_in(name);
        for (path, row) in PAGES {
            assert_eq!(
                session.get(path).status,
                if may(row) { 200 } else { 403 },
                "{name}: GET {path}"
            );
        }
        for (path, fields, row) in CHANGES {
            let reply = session.post(path, fields);
            let allowed = [200, 303].contains(&reply.status);
            assert_eq!(
                allowed,
                may(row),
                "{name}: POST {path} {fields:?}: {}\n{}",
                reply.head,
                reply.body
            );
            assert!(
                allowed || reply.status == 403,
                "{name}: POST {path} {fields:?}: {}",
                reply.status
            );
        }
        links_lead_to_open_pages(name, &session);
    }
    let accounts = house.done(&["account", "list"]);
    assert!(
        accounts.contains("made") && !accounts.contains("spare"),
        "{accounts}"
    );
}

/// The finder of a dashboard's token changes nothing by it.
#[test]
fn a_token_that_looks_resets_no_bucket() {
    let house = House::with(&[("ada", &["--admin"]), ("olga", &["--operator"])]);
    for name in ["ada", "olga"] {
        let fields = [
            ("action", "token"),
            ("label", "mine"),
            ("scope", "view"),
            ("days", "1"),
            ("current", PASSWORD),
        ];
        let made = house.sign_in(name).post("/console/account", &fields);
        let (_, secret) = made.body.split_once("tgt_").unwrap();
        let token = format!("tgt_{}", &secret[..43]);
        assert_eq!(house.by_token("GET", BUCKET, &token).status, 200, "{name}");
        for (method, path) in [
            ("DELETE", BUCKET),
            (
                "POST",
                "/buckets/per-client/grant?client_ip=127.0.0.1&tokens=1",
            ),
        ] {
            assert_eq!(
                house.by_token(method, path, &token).status,
                403,
                "{name}: {method}"
            );
        }
    }
}

/// The navigation offers nothing that is refused.
fn links_lead_to_open_pages(name: &str, session: &BrowserSession<'_>) {
    let page = session.get("/console/account").body;
    let (_, navigation) = page.split_once("<nav").unwrap();
    let links = navigation
        .split("</nav>")
        .next()
        .unwrap()
        .split("href=\"")
        .skip(1);
    for link in links.map(|link| link.split('"').next().unwrap()) {
        if name != "nobody" {
            assert_eq!(session.get(link).status, 200, "{name}: {link}");
        }
    }
}

#[test]
fn a_refusal_names_the_role_and_is_in_the_audit_log() {
    let house = House::with(&[("ada", &["--admin"]), ("eve", &["--role", "shop=viewer"])]);
    let eve = house.sign_in("eve");
    let refused = eve.post(
        "/console/people/eve",
        &[
            ("action", "role"),
            ("application", "shop"),
            ("role", "owner"),
        ],
    );
    assert_eq!(refused.status, 403);
    let refused = house.by_token("DELETE", BUCKET, &house.token("eve"));
    assert!(
        refused
            .body
            .contains("eve may not do this: it needs the role operator"),
        "{}",
        refused.body
    );
    let log = house.sign_in("ada").get("/console/audit").body;
    for refusal in ["POST /console/people/eve", "DELETE /buckets/per-client"] {
        assert!(log.contains(refusal), "{refusal}: {log}");
    }
    assert!(
        house
            .done(&["account", "list"])
            .contains("eve  shop=viewer")
    );
}

#[test]
fn a_refusal_is_in_the_audit_log_though_its_client_goes_away() {
    let house = House::with(&[("ada", &["--admin"]), ("eve", &["--role", "shop=viewer"])]);
    let (token, admin) = (house.token("eve"), house.gateway.admin);
    let head = format!(
        "DELETE {BUCKET} HTTP/1.1\r\nhost: {admin}\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    drop(stream);
    let ada = house.sign_in("ada");
    eventually("it is recorded", || {
        ada.get("/console/audit")
            .body
            .contains("DELETE /buckets/per-client")
            .then_some(())
    });
}

#[test]
fn a_form_changes_one_thing_of_the_account_that_it_was_made_for() {
    let accounts: [(&str, &[&str]); 4] = [
        ("ada", &["--admin"]),
        ("zoe", &["--role", "shop=owner"]),
        ("bob", &["--role", "shop=viewer"]),
        ("eve", &[]),
    ];
    let house = House::with(&accounts);
    let (ada, owner) = (house.sign_in("ada"), house.sign_in("zoe"));
    let made_at = ada.made_at("/console/people/bob").unwrap();
    let with =
        |more: &[(&'static str, &'static str)]| [&[("made_at", made_at.as_str())], more].concat();
    // Whatever others do meanwhile: an owner keeps no admin from shutting somebody out.
    let role = |role| {
        [
            ("action", "role"),
            ("application", "shop"),
            ("role", role),
            ("current", PASSWORD),
        ]
    };
    assert_eq!(
        owner.post("/console/people/bob", &role("editor")).status,
        303
    );
    let fleet = |role| [("action", "fleet"), ("role", role), ("current", PASSWORD)];
    assert_eq!(
        ada.post("/console/people/bob", &with(&fleet("operator")))
            .status,
        303
    );
    assert_eq!(
        owner.post("/console/people/bob", &role("viewer")).status,
        303
    );
    assert!(
        house
            .done(&["account", "list"])
            .contains("bob  operator, shop=viewer\n")
    );
    assert_eq!(owner.post("/console/people/bob", &role("none")).status, 303);
    assert_eq!(
        ada.post("/console/people/bob", &with(&[("action", "disable")]))
            .status,
        303
    );
    assert!(
        house
            .done(&["account", "list"])
            .contains("bob  operator  disabled\n")
    );
    assert_eq!(
        ada.post(
            "/console/people/bob",
            &[("made_at", ""), ("action", "enable")]
        )
        .status,
        400
    );
    let log = ada.get("/console/audit").body;
    assert!(log.contains("shop: none, was viewer"), "{log}");

    // Another one with the name is another one.
    house.done(&["account", "remove", "bob"]);
    house.done(&["account", "create", "bob", "--no-password"]);
    for late in [with(&role("owner")), with(&fleet("admin"))] {
        let refused = ada.post("/console/people/bob", &late);
        assert_eq!(refused.status, 409, "{}", refused.body);
        assert!(
            refused
                .body
                .contains("somebody else has changed the account bob meanwhile"),
            "{}",
            refused.body
        );
    }
}

#[test]
fn whoever_is_shut_out_while_a_form_is_on_its_way_changes_nothing() {
    let accounts: [(&str, &[&str]); 3] = [
        ("ada", &["--admin"]),
        ("zoe", &["--role", "shop=owner"]),
        ("bob", &[]),
    ];
    let house = House::with(&accounts);
    let zoe = house.sign_in("zoe");
    let made_at = zoe.made_at("/console/people/bob").unwrap();
    let begin = || {
        let body = format!(
            "token={}&made_at={made_at}&action=role&application=shop&role=owner",
            zoe.form_token()
        );
        let (first, rest) = body.split_at(body.len() - 1);
        let mut stream = TcpStream::connect(&house.gateway.admin).unwrap();
        let head = format!(
            "POST /console/people/bob HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\ncookie: {}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            zoe.cookie,
            body.len(),
            host = house.gateway.admin,
            origin = house.origin,
        );
        stream.write_all(head.as_bytes()).unwrap();
        // Its rights are known by now: the body is asked for.
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).unwrap();
        assert!(
            asked.starts_with(b"HTTP/1.1 100 "),
            "{:?}",
            String::from_utf8_lossy(&asked)
        );
        stream.write_all(first.as_bytes()).unwrap();
        (stream, rest.to_owned())
    };
    let end = |(mut stream, rest): (TcpStream, String)| {
        stream.write_all(rest.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let begun = begin();
    house.done(&["account", "change", "zoe", "--role", "shop=viewer"]);
    assert_eq!(end(begun), 403);
    house.done(&["account", "change", "zoe", "--role", "shop=owner"]);
    let begun = begin();
    house.done(&["account", "disable", "zoe"]);
    assert_eq!(end(begun), 401);
    assert!(
        !house.done(&["account", "list"]).contains("bob  shop"),
        "bob has no role"
    );
}

#[test]
fn roles_that_come_and_go_keep_nobody_from_signing_in() {
    let accounts: [(&str, &[&str]); 2] =
        [("ada", &["--admin"]), ("owner", &["--role", "shop=owner"])];
    let house = House::with(&accounts);
    let owner = house.sign_in("owner");
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = || {
            let mut changes = 0;
            while !enough.load(Ordering::Relaxed) {
                let role = ["viewer", "none"][changes % 2];
                let form = [
                    ("action", "role"),
                    ("application", "shop"),
                    ("role", role),
                    ("current", PASSWORD),
                ];
                assert_eq!(owner.post("/console/people/ada", &form).status, 303);
                changes += 1;
            }
            changes
        };
        let running = scope.spawn(changing);
        // Looked at once the other has ended: nothing else ends it.
        let signed_in: Vec<u16> = (0..10)
            .map(|_| house.try_to_sign_in("ada", PASSWORD, "").status)
            .collect();
        enough.store(true, Ordering::Relaxed);
        assert!(running.join().unwrap() > 0);
        assert_eq!(signed_in, [303; 10]);
    });
}

#[test]
fn what_an_operator_does_is_in_the_audit_log_by_their_account() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--operator"])]);
    let token = house.token("bob");
    let reset = house.by_token("DELETE", BUCKET, &token);
    assert_eq!(reset.status, 200);
    // The header says "somebody"; the log knows better.
    eventually("the log names the operator", || {
        house
            .gateway
            .log()
            .contains("\"operator\":\"bob\"")
            .then_some(())
    });
    let audit = house.sign_in("ada").get("/console/audit").body;
    let row = audit
        .split("<tr>")
        .find(|row| row.contains("<td>reset "))
        .unwrap_or_else(|| panic!("{audit}"));
    assert!(row.contains("<td>bob</td>"), "{row}");
}

#[test]
fn an_owner_sees_of_others_only_what_is_the_owners_to_give() {
    let accounts: [(&str, &[&str]); 3] = [
        ("ada", &["--admin"]),
        ("owner", &["--role", "shop=owner"]),
        ("bob", &["--role", "bank=editor", "--role", "shop=viewer"]),
    ];
    let house = House::with(&accounts);
    let owner = house.sign_in("owner");
    let (people, bob) = (
        owner.get("/console/people").body,
        owner.get("/console/people/bob").body,
    );
    assert!(
        people.contains("shop: viewer") && !people.contains("bank"),
        "{people}"
    );
    assert!(
        bob.contains("shop: viewer") && !bob.contains("bank"),
        "{bob}"
    );
    let given = owner.post(
        "/console/people/bob",
        &[
            ("action", "role"),
            ("application", "shop"),
            ("role", "editor"),
            ("current", PASSWORD),
        ],
    );
    assert_eq!(given.status, 303);
    assert!(
        house
            .done(&["account", "list"])
            .contains("bob    bank=editor, shop=editor")
    );
}

#[test]
fn keys_of_those_who_are_denied_are_shown_to_whoever_may_look_at_the_limit() {
    let house = House::with(&[
        ("ada", &["--operator"]),
        ("vera", &["--role", "shop=viewer"]),
    ]);
    eventually("somebody is denied", || {
        (status(&[&house.gateway.url("/client")]) == 429).then_some(())
    });
    let page = "/console/limits/per-client";
    let seen = |name: &str| {
        let shown = house.sign_in(name).get(page);
        let is_hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count() == 16;
        (
            shown.status,
            shown.body.contains("per-client:127.0.0.1"),
            shown.body.split("client ").any(is_hex),
        )
    };
    assert_eq!(
        (seen("ada"), seen("vera")),
        ((200, true, false), (200, false, true))
    );
}

#[test]
fn nobody_fills_the_audit_log_with_refusals() {
    let house = House::with(&[("ada", &["--admin"]), ("vera", &["--role", "shop=viewer"])]);
    let token = house.token("vera");
    let begun = Instant::now();
    (0..70).for_each(|_| assert_eq!(house.by_token("DELETE", BUCKET, &token).status, 403));
    // Another is kept each minute.
    let most = 61 + begun.elapsed().as_secs() as usize / 60;
    let ada = house.sign_in("ada");
    let (mut rows, mut before) = (0, String::new());
    for _ in 0..2 {
        let page = ada.get(&format!("/console/audit{before}")).body;
        rows += page
            .matches(&format!("DELETE {}", BUCKET.split('?').next().unwrap()))
            .count();
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
    assert!((60..=most).contains(&rows), "{rows} of {most}");
}

/// The form is on its way, and its password is being checked, while somebody takes the role away.
#[test]
fn an_admin_who_is_demoted_makes_nobody_an_admin_by_a_form_that_waits() {
    let house = House::with(&[("ada", &["--admin"]), ("bob", &["--admin"]), ("eve", &[])]);
    let ada = house.sign_in("ada");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut database = runtime.block_on(house.connect());
    // Nobody else writes until this is done.
    let demote =
        "BEGIN IMMEDIATE; UPDATE tollgate_accounts SET admin = 0, rights = '{}' WHERE name = 'ada'";
    runtime.block_on(database.execute(demote)).unwrap();
    let fields = [
        ("action", "fleet"),
        ("role", "admin"),
        ("current", PASSWORD),
    ];
    let before = house.ticks();
    let refused = std::thread::scope(|scope| {
        let sent = scope.spawn(|| ada.post("/console/people/eve", &fields));
        eventually("the password is hashed", || {
            (house.ticks() > before + 1).then_some(())
        });
        runtime.block_on(database.execute("COMMIT")).unwrap();
        sent.join().unwrap()
    });
    assert_eq!(refused.status, 403, "{}", refused.body);
    let list = house.done(&["account", "list"]);
    assert!(list.contains("eve  no role"), "{list}");
}
