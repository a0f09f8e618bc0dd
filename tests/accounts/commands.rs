//! `tollgate account`, `tollgate token`, and commands that ask with a token.

use std::process::Command;

use crate::house::{House, PASSWORD};

fn said(house: &House, args: &[&str]) -> String {
    let output = house.command(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn accounts_are_made_changed_and_removed_by_commands() {
    let house = House::empty();
    assert_eq!(
        house.done(&["account", "list"]),
        "no account yet: tollgate account create NAME --admin\n"
    );
    assert_eq!(
        house.done(&["account", "create", "ada", "--admin"]),
        "made the account ada (admin)\n"
    );
    house.done(&[
        "account",
        "create",
        "bob",
        "--role",
        "shop=editor",
        "--role",
        "bank=viewer",
    ]);
    assert_eq!(
        house.done(&["account", "list"]),
        "ada  admin\nbob  bank=viewer, shop=editor\n"
    );
    house.done(&[
        "account",
        "change",
        "bob",
        "--role",
        "bank=none",
        "--operator",
    ]);
    assert_eq!(
        house.done(&["account", "list"]),
        "ada  admin\nbob  operator, shop=editor\n"
    );
    house.done(&["account", "disable", "bob"]);
    assert!(
        house
            .done(&["account", "list"])
            .contains("bob  operator, shop=editor  disabled\n")
    );
    house.done(&["account", "remove", "bob"]);
    assert_eq!(house.done(&["account", "list"]), "ada  admin\n");
    assert!(
        said(&house, &["account", "create", "ada"]).contains("there is an account ada already")
    );
    // The history would say of somebody what the gateway has done.
    for name in ["rollout", "@ada"] {
        let refused = said(&house, &["account", "create", name, "--no-password"]);
        assert!(
            refused.contains(&format!("no account is called {name}: @… and rollout are")),
            "{refused}"
        );
    }
    assert!(
        said(&house, &["account", "disable", "ada"]).contains("make somebody else an admin first")
    );
    assert!(said(&house, &["account", "password", "eve"]).contains("there is no account eve"));
    assert!(
        house
            .done(&["account", "list", "--json"])
            .contains("\"name\": \"ada\"")
    );
    let ada = house.sign_in("ada");
    assert!(
        ada.get("/console/audit?verify=true")
            .body
            .contains("entries are as they were written")
    );
}

#[test]
fn a_password_is_no_argument_and_stands_nowhere() {
    let house = House::with(&[("ada", &["--admin"])]);
    let refused = house.command(&["account", "create", "bob", "--password", PASSWORD]);
    assert_eq!(refused.status.code(), Some(2));
    house.sign_in("ada");
    house.try_to_sign_in("ada", "a wrong password of hers", "");
    let log = house.gateway.log();
    assert!(
        !log.contains(PASSWORD) && !log.contains("a wrong password of hers"),
        "{log}"
    );
}

#[test]
fn a_command_asks_by_its_token() {
    let house = House::with(&[("ada", &["--admin"])]);
    let admin = format!("http://{}", house.gateway.admin);
    let peek_by = |file: &[&str], token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args([
            "bucket",
            "peek",
            "per-client",
            "--client-ip",
            "127.0.0.1",
            "--admin",
            &admin,
        ]);
        command.args(file).env_remove("TOLLGATE_TOKEN");
        if let Some(token) = token {
            command.env("TOLLGATE_TOKEN", token);
        }
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let peek = |token| peek_by(&[], token);
    let token = house.token("ada");
    assert_eq!(peek(Some(&token)), (true, String::new()));
    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), format!("{token}\n")).unwrap();
    assert_eq!(
        peek_by(&["--token-file", kept.path().to_str().unwrap()], None),
        (true, String::new())
    );
    let (done, why) = peek_by(&["--token-file", "/dev/zero"], None);
    assert!(
        !done && why.contains("cannot read the token from /dev/zero"),
        "{why}"
    );
    let (done, why) = peek(None);
    assert!(!done && why.contains("this needs an account"), "{why}");
    let listed = house.done(&["token", "list", "ada"]);
    assert!(
        listed.contains("test  admin  no end") && !listed.contains(&token),
        "{listed}"
    );
    house.done(&["token", "revoke", "ada", listed.split(' ').next().unwrap()]);
    assert!(!peek(Some(&token)).0);
    assert!(said(&house, &["token", "list", "eve"]).contains("there is no account eve"));
    assert!(
        said(&house, &["token", "revoke", "ada", "nothing"]).contains("ada has no token nothing")
    );
    // Ids are Base64 for URLs, which has a dash.
    assert!(
        said(&house, &["token", "revoke", "ada", "-nothing"]).contains("ada has no token -nothing")
    );
}
