//! Passwords that are guessed.

use tollgate_test_support::turns;

use crate::house::{House, PASSWORD, form_token};

#[test]
fn nobody_learns_which_accounts_there_are() {
    let _turn = turns::beside_others();
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

#[test]
fn a_flood_of_guesses_is_stopped_before_anything_is_hashed() {
    let _turn = turns::beside_others();
    let house = House::with(&[("ada", &["--admin"])]);
    let signed_in = house.sign_in("ada");
    for guess in 0..10 {
        assert_eq!(house.try_to_sign_in("ada", &format!("guess number {guess}"), "").status, 401, "{guess}");
    }
    let stopped = house.try_to_sign_in("ada", PASSWORD, "");
    assert_eq!(stopped.status, 429, "{}", stopped.body);
    assert!(stopped.body.contains("try again in "), "{}", stopped.body);
    // Another name from the same network does not help, and whoever is signed in goes on.
    assert_eq!(house.try_to_sign_in("bob", PASSWORD, "").status, 429);
    assert_eq!(signed_in.get("/console").status, 200);
    let log = signed_in.get("/console/audit").body;
    // As many as the bound lets through: strangers do not fill it.
    assert_eq!(log.matches("wrong name or password, or disabled").count(), 10, "{log}");
    assert!(!log.contains("too many failed"), "{log}");
}

#[test]
fn whoever_guesses_elsewhere_keeps_nobody_out() {
    let _turn = turns::beside_others();
    let house = House::with(&[("ada", &["--admin"])]);
    for guess in 0..10 {
        assert_eq!(house.try_to_sign_in("ada", &format!("guess number {guess}"), "").status, 401, "{guess}");
    }
    assert_eq!(house.try_to_sign_in("ada", PASSWORD, "").status, 429);
    let elsewhere = ["--interface", "127.0.0.2"];
    let token = form_token(&house.ask("GET", "/console/sign-in", &elsewhere).body);
    let (token, password) = (format!("token={token}"), format!("password={PASSWORD}"));
    let form = ["-H", "Sec-Fetch-Site: same-origin", "--data-urlencode", &token, "-d", "name=ada", "-d", &password];
    let signed_in = house.ask("POST", "/console/sign-in", &[&elsewhere[..], &form].concat());
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
}

#[test]
fn a_flood_of_tokens_is_stopped_before_the_database_is_asked() {
    let _turn = turns::beside_others();
    let house = House::with(&[("ada", &["--admin"])]);
    let token = house.token("ada");
    // More than the bound of valid ones changes nothing.
    (0..70).for_each(|_| assert_eq!(house.by_token("GET", "/limits", &token).status, 200));
    // One more is let in each second meanwhile.
    let refused = (0..600)
        .map(|index| house.by_token("GET", "/limits", &format!("tgt_{index}")))
        .find(|reply| reply.status != 401);
    let refused = refused.unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.body);
    assert!(refused.body.contains("too many tokens from this address"), "{}", refused.body);
    let bearer = format!("Authorization: Bearer {token}");
    let elsewhere = house.ask("GET", "/limits", &["--interface", "127.0.0.2", "-H", &bearer]);
    assert_eq!(elsewhere.status, 200, "from another address");
    // Sessions ask nobody for a place, nor do probes.
    assert_eq!(house.sign_in("ada").get("/limits").status, 200);
    assert_eq!(house.get("/metrics").status, 200);
}
