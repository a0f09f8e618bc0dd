//! Passwords that are guessed.

use tollgate_test_support::turns;

use crate::house::{House, PASSWORD};

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
    assert!(log.contains("wrong name or password, or disabled") && log.contains("too many failed"), "{log}");
}
