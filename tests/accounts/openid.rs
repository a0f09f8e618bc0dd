//! Signing in at a provider of OpenID Connect: who comes in, and what is refused.

use std::thread;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::house::{House, Reply, form_token};
use crate::issuer::{IssuerKey, base64, now};
use crate::process::eventually;
use crate::provider::{Provider, ProviderMood, begin, begin_at, finish, session, sign_in};

const ROLES: &str =
    ", create_accounts: true, roles: {ops: operator, staff: [shop=viewer, bank=editor]}";

#[test]
fn whoever_the_provider_knows_comes_in_with_the_roles_of_their_groups() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let page = house.get("/console/sign-in?page=%2Fconsole%2Flimits").body;
    assert!(
        page.contains("href=\"/console/sign-in/provider?page=%2Fconsole%2Flimits\""),
        "{page}"
    );
    let begun = house.get("/console/sign-in/provider");
    let kept = begun.header("set-cookie").unwrap();
    assert!(
        kept.starts_with("tollgate-sign-in=")
            && kept.contains("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600"),
        "{kept}"
    );
    let (asked, cookie) = begin(&house);
    let expected = [
        ("response_type", "code"),
        ("client_id", "gate way"),
        ("scope", "openid"),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in expected {
        assert_eq!(asked.get(name), value, "{name}");
    }
    assert_eq!(
        asked.get("redirect_uri"),
        format!("http://{}/console/sign-in/return", house.gateway.admin)
    );
    let code = provider.grant(&asked, &json!({}));
    let reply = finish(&house, &provider.answer(&asked, &code), &cookie);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let cookie = session(&reply).unwrap();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    assert!(
        reply
            .head
            .contains("tollgate-sign-in=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"),
        "{}",
        reply.head
    );
    assert!(
        reply
            .body
            .contains("http-equiv=\"refresh\" content=\"0; url=/console/limits?q=a\""),
        "{}",
        reply.body
    );
    let ada = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(
        house.ask("GET", "/console/limits", &["-H", &ada]).status,
        200
    );
    let list = house.done(&["account", "list", "--json"]);
    let accounts: Json = serde_json::from_str(&list).unwrap();
    let made = accounts
        .as_array()
        .unwrap()
        .iter()
        .find(|account| account["name"] == "ada")
        .unwrap();
    assert!(
        list.contains("248289761001") && list.contains("Ada Lovelace"),
        "{list}"
    );
    assert!(
        made.to_string().contains("operator") && made.to_string().contains("bank"),
        "{made}"
    );
    // Groups decide anew at each sign-in, and a name that changes there is nobody else's here.
    let later = sign_in(
        &house,
        &provider,
        &json!({"groups": ["staff"], "preferred_username": "root"}),
    );
    assert!(session(&later).is_some(), "{}", later.body);
    let list = house.done(&["account", "list", "--json"]);
    assert!(
        !list.contains("operator") && list.contains("bank"),
        "{list}"
    );
    let log = house.sign_in("root").get("/console/audit").body;
    assert!(log.contains("by OpenID Connect"), "{log}");
}

#[test]
fn what_is_not_for_this_sign_in_is_refused() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let is_refused = |reply: &Reply, why: &str| {
        assert!(session(reply).is_none(), "{why}");
        assert!(
            reply.body.contains(why),
            "{why}: {} {}",
            reply.status,
            reply.body
        );
    };
    // Few enough to be below the bound of failures.
    for (changes, why) in [
        (json!({"nonce": "another"}), "its nonce is not ours"),
        (
            json!({"iss": "http://other.example"}),
            "the ID token is of another issuer",
        ),
        (
            json!({"aud": "another"}),
            "the ID token is for another audience",
        ),
        (
            json!({"aud": ["gate way", "another"]}),
            "made for another client (azp)",
        ),
        (
            json!({"azp": ["gate way"]}),
            "made for another client (azp)",
        ),
        (
            json!({"aud": ["gate way", {}]}),
            "made for another client (azp)",
        ),
        (json!({"exp": now() - 60}), "the ID token has expired"),
    ] {
        is_refused(&sign_in(&house, &provider, &changes), why);
    }
    let elsewhere = House::at(&provider.admin(ROLES), "http", None);
    elsewhere.done(&["account", "create", "root", "--admin"]);
    let house = &elsewhere;
    // Unsigned, and signed by somebody else.
    let claims =
        json!({"iss": provider.issuer(), "aud": "gate way", "sub": "1", "exp": now() + 300});
    let (asked, cookie) = begin(house);
    let unsigned = format!(
        "{}.{}.",
        base64(r#"{"alg":"none"}"#),
        base64(claims.to_string())
    );
    let code = provider.grant_token(&asked, unsigned);
    is_refused(
        &finish(house, &provider.answer(&asked, &code), &cookie),
        "names an algorithm that there is not",
    );
    let (asked, cookie) = begin(house);
    let mut claims = claims;
    claims["nonce"] = json!(asked.get("nonce"));
    let code = provider.grant_token(&asked, IssuerKey::ed25519().token("k", &claims));
    is_refused(
        &finish(house, &provider.answer(&asked, &code), &cookie),
        "signature is wrong",
    );
    // Signed by what everybody knows: the key that the provider publishes.
    let (asked, cookie) = begin(house);
    claims["nonce"] = json!(asked.get("nonce"));
    let public = provider.jwk()["x"].as_str().unwrap().as_bytes().to_vec();
    let code = provider.grant_token(&asked, IssuerKey::Secret(public).token("k", &claims));
    is_refused(
        &finish(house, &provider.answer(&asked, &code), &cookie),
        "signed by an algorithm that is not taken",
    );
    // Of another browser, of none, or of another issuer.
    let (asked, cookie) = begin(house);
    let answer = provider.answer(&asked, &provider.grant(&asked, &json!({})));
    let (_, other) = begin(house);
    is_refused(
        &finish(house, &answer, &other),
        "belongs to another sign-in",
    );
    is_refused(
        &finish(house, &answer, ""),
        "this browser has begun no sign-in",
    );
    let text = cookie.split_once('.').unwrap().1;
    is_refused(
        &finish(
            house,
            &answer,
            &format!("tollgate-sign-in={}.{text}", "A".repeat(43)),
        ),
        "has begun no sign-in",
    );
    let forged = answer.replace(
        &format!("iss={}", provider.issuer()),
        "iss=http://other.example",
    );
    is_refused(
        &finish(house, &forged, &cookie),
        "the answer is of another issuer",
    );
    let (asked, cookie) = begin(house);
    let answer = provider.answer(&asked, &provider.grant(&asked, &json!({})));
    is_refused(
        &finish(house, answer.split("&iss").next().unwrap(), &cookie),
        "does not say which issuer it is of",
    );
    // An answer is good once, though another issuer's was not taken before it; and so is a code.
    let (asked, cookie) = begin(house);
    let code = provider.grant(&asked, &json!({}));
    let answer = provider.answer(&asked, &code);
    assert!(session(&finish(house, &answer, &cookie)).is_some());
    is_refused(
        &finish(house, &answer, &cookie),
        "the answer was used before",
    );
    let (asked, cookie) = begin(house);
    is_refused(
        &finish(house, &provider.answer(&asked, &code), &cookie),
        "refuses the code: invalid_grant",
    );
    let (asked, cookie) = begin(house);
    let said = format!(
        "error=access_denied&error_description=no%3Cb%3E&state={}&iss={}",
        asked.get("state"),
        provider.issuer()
    );
    let denied = finish(house, &said, &cookie);
    is_refused(&denied, "the provider says: access_denied");
    assert!(!denied.body.contains("no<b>"), "escaped");
    let (asked, cookie) = begin(house);
    let said = format!(
        "error=call_555_0100&state={}&iss={}",
        asked.get("state"),
        provider.issuer()
    );
    is_refused(
        &finish(house, &said, &cookie),
        "the provider says: an error that no standard has",
    );
    let log = house.sign_in("root").get("/console/audit").body;
    assert!(
        log.contains("refuses the code") && !log.contains("call_555"),
        "{log}"
    );
}

#[test]
fn those_without_a_role_or_an_account_stay_out() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let nobody = sign_in(&house, &provider, &json!({"groups": ["others"]}));
    assert!(
        (nobody.status, session(&nobody)) == (403, None),
        "{}",
        nobody.body
    );
    assert!(
        nobody
            .body
            .contains("none of your groups at the provider has a role here"),
        "{}",
        nobody.body
    );
    // The provider knows them: they do not count as failures, which would keep others of their
    // network out.
    for round in 0..12 {
        assert_eq!(
            sign_in(&house, &provider, &json!({"groups": ["others"]})).status,
            403,
            "{round}"
        );
    }
    // A name at the provider leads to no account of that name.
    let taken = sign_in(&house, &provider, &json!({"preferred_username": "root"}));
    assert!(
        session(&taken).is_none() && taken.status != 200,
        "{}",
        taken.body
    );
    assert!(!house.done(&["account", "list"]).contains("ada"));
    // Without groups, those whom an administrator has made an account.
    let house = House::at(&provider.admin(""), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let unknown = sign_in(&house, &provider, &json!({}));
    let subject = [provider.issuer(), "248289761001".to_owned()];
    assert_eq!(unknown.status, 403, "{}", unknown.body);
    assert!(
        unknown.body.contains(&format!(
            "--no-password --subject {} {}",
            subject[0], subject[1]
        )),
        "{}",
        unknown.body
    );
    house.done(&[
        "account",
        "create",
        "ada",
        "--no-password",
        "--subject",
        &subject[0],
        &subject[1],
    ]);
    let without = sign_in(&house, &provider, &json!({}));
    assert!(
        session(&without).is_none() && without.body.contains("the account ada has no role"),
        "{}",
        without.body
    );
    house.done(&["account", "change", "ada", "--operator"]);
    assert!(session(&sign_in(&house, &provider, &json!({}))).is_some());
    house.done(&["account", "disable", "ada"]);
    let disabled = sign_in(&house, &provider, &json!({}));
    assert!(
        session(&disabled).is_none() && disabled.body.contains("the account ada is disabled"),
        "{}",
        disabled.body
    );
}

#[test]
fn a_provider_that_is_not_what_the_file_says_is_named() {
    let provider = Provider::start();
    for (metadata, why) in [
        (
            json!({"issuer": "http://other.example"}),
            "is of the issuer http://other.example",
        ),
        (
            json!({"token_endpoint": "https://127.0.0.1:1/token"}),
            "names a place that cannot be asked",
        ),
        (
            json!({"authorization_endpoint": "http://id.example/"}),
            "names a place that cannot be asked",
        ),
    ] {
        let house = House::at(&provider.admin(ROLES), "http", None);
        provider.state.lock().unwrap().metadata = metadata;
        let odd = house.get("/console/sign-in/provider");
        assert!(
            odd.status == 503 && odd.body.contains("the provider is away"),
            "{why}: {}",
            odd.body
        );
        // Where it is and how it fails is for whoever runs the gateway.
        assert!(
            !odd.body.contains(why) && !odd.body.contains(&provider.issuer()),
            "{why}: {}",
            odd.body
        );
        eventually("the log says why", || {
            house.gateway.log().contains(why).then_some(())
        });
    }
    // A provider that takes the secret in the form.
    provider.state.lock().unwrap().metadata =
        json!({"token_endpoint_auth_methods_supported": ["client_secret_post"]});
    let house = House::at(&provider.admin(ROLES), "http", None);
    assert!(session(&sign_in(&house, &provider, &json!({}))).is_some());
    std::fs::write(&provider.secret_file, "another").unwrap();
    let house = House::at(&provider.admin(ROLES), "http", None);
    let wrong = sign_in(&house, &provider, &json!({}));
    assert!(
        wrong.body.contains("refuses the code: invalid_client"),
        "{}",
        wrong.body
    );
}

#[test]
fn a_provider_that_fails_is_asked_once_for_all_and_passwords_go_on() {
    for (mood, why) in [
        (ProviderMood::Away, "the provider cannot be asked: "),
        (ProviderMood::Slow, "no answer within 5 s"),
        (ProviderMood::Endless, "over 256 KiB"),
    ] {
        let provider = Provider::start();
        provider.state.lock().unwrap().mood = mood;
        let house = House::at(&provider.admin(ROLES), "http", None);
        house.done(&["account", "create", "root", "--admin"]);
        thread::scope(|scope| {
            let asking: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| house.get("/console/sign-in/provider")))
                .collect();
            for asked in asking {
                let reply = asked.join().unwrap();
                assert!(
                    reply.status == 503 && !reply.body.contains(why),
                    "{why}: {}",
                    reply.body
                );
            }
        });
        assert_eq!(house.get("/console/sign-in/provider").status, 503);
        eventually("the log says why", || {
            house.gateway.log().contains(why).then_some(())
        });
        assert_eq!(provider.lookups(), 1, "{why}");
        assert_eq!(house.sign_in("root").get("/console").status, 200);
    }
}

#[test]
fn a_new_key_of_the_provider_is_looked_for_once() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    assert!(session(&sign_in(&house, &provider, &json!({}))).is_some());
    let begun = Instant::now();
    provider.state.lock().unwrap().key = (IssuerKey::p256().into(), "new");
    assert!(session(&sign_in(&house, &provider, &json!({}))).is_some());
    provider.state.lock().unwrap().key = (IssuerKey::p256().into(), "newer");
    for _ in 0..3 {
        let refused = sign_in(&house, &provider, &json!({}));
        assert!(
            refused
                .body
                .contains("a key that its issuer does not publish"),
            "{}",
            refused.body
        );
    }
    // Looked for again after ten seconds, which a busy machine may take.
    let most = 2 + begun.elapsed().as_secs() / 10;
    let lookups = u64::try_from(provider.lookups()).unwrap();
    assert!((2..=most).contains(&lookups), "{lookups} of {most}");
}

#[test]
fn a_browser_comes_back_to_the_address_that_the_file_has() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    for host in [
        "localhost:1",
        "10.9.8.7",
        &format!("localhost:{}", house.gateway.admin.port()),
    ] {
        let moved = house.get_by("/console/sign-in/provider?page=%2Fconsole%2Flimits", host);
        let home = format!(
            "http://{}/console/sign-in?page=%2Fconsole%2Flimits",
            house.gateway.admin
        );
        assert_eq!(
            (moved.status, moved.header("location")),
            (303, Some(home.as_str())),
            "{host}"
        );
        assert_eq!(moved.header("set-cookie"), None);
    }
    let public = House::at(
        &format!(
            ", public_url: 'https://gate.example:8080'{}",
            provider.admin(ROLES)
        ),
        "http",
        Some("https://gate.example:8080"),
    );
    for host in ["gate.example:8080", "10.9.8.7", "localhost"] {
        let begun = public.get_by("/console/sign-in/provider", host);
        let place = begun.header("location").unwrap_or_default();
        assert!(
            place.contains(
                "redirect_uri=https%3A%2F%2Fgate.example%3A8080%2Fconsole%2Fsign-in%2Freturn&"
            ),
            "{place}"
        );
    }
}

#[test]
fn a_page_of_another_site_begins_no_sign_in() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    let by = |site: &str| {
        let site = format!("Sec-Fetch-Site: {site}");
        house.ask(
            "GET",
            "/console/sign-in/provider?page=%2Fconsole%2Flimits",
            &["-H", &site],
        )
    };
    let page = format!(
        "http://{}/console/sign-in?page=%2Fconsole%2Flimits",
        house.gateway.admin
    );
    for round in 0..70 {
        let site = ["cross-site", "same-site"][round % 2];
        let led_away = by(site);
        assert_eq!(
            (led_away.status, led_away.header("location")),
            (303, Some(page.as_str())),
            "{site}"
        );
        assert_eq!(led_away.header("set-cookie"), None, "{site}");
    }
    // They have used nothing up, and who types the address or clicks on the console's page begins.
    for site in ["same-origin", "none"] {
        let begun = by(site);
        assert!(
            begun
                .header("location")
                .unwrap()
                .starts_with(&provider.issuer()),
            "{site}: {}",
            begun.head
        );
        assert!(begun.header("set-cookie").is_some(), "{site}");
    }
}

#[test]
fn without_a_password_it_is_the_provider_that_asks_who_somebody_is() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let browser = |reply: &Reply| {
        house.browser(
            session(reply)
                .unwrap()
                .split(';')
                .next()
                .unwrap()
                .to_owned(),
        )
    };
    let fields = [
        ("action", "token"),
        ("label", "ci"),
        ("scope", "all"),
        ("days", "0"),
    ];
    let link = "href=\"/console/sign-in/provider?prove=true&#38;page=%2Fconsole%2Faccount\"";
    // A sign-in at which nobody was asked anything, as whoever comes by an open browser has one.
    for silent in [
        json!({}),
        json!({"auth_time": now() - 3_600}),
        json!({"auth_time": now() + 3_600}),
    ] {
        let ada = browser(&sign_in(&house, &provider, &silent));
        assert!(
            ada.get("/console/account").body.contains(link),
            "{}",
            ada.get("/console/account").body
        );
        let refused = ada.post("/console/account", &fields);
        assert_eq!(refused.status, 400, "{silent}: {}", refused.body);
        assert!(
            refused
                .body
                .contains("the provider has not asked you lately who you are"),
            "{}",
            refused.body
        );
    }
    let prove = |changes: &Json| {
        let (asked, cookie) = begin_at(
            &house,
            "/console/sign-in/provider?prove=true&page=%2Fconsole%2Faccount",
        );
        assert_eq!(
            (asked.get("prompt"), asked.get("max_age")),
            ("login", "600")
        );
        finish(
            &house,
            &provider.answer(&asked, &provider.grant(&asked, changes)),
            &cookie,
        )
    };
    for (changes, why) in [
        (
            json!({}),
            "does not say when you have signed in there (auth_time)",
        ),
        (
            json!({"auth_time": now() - 3_600}),
            "has not asked you to sign in there anew (auth_time)",
        ),
    ] {
        let refused = prove(&changes);
        assert!(
            session(&refused).is_none() && refused.body.contains(why),
            "{}",
            refused.body
        );
    }
    let ada = browser(&prove(&json!({"auth_time": now()})));
    assert!(!ada.get("/console/account").body.contains("prove=true"));
    let made = ada.post("/console/account", &fields);
    assert!(
        made.status == 200 && made.body.contains("<code>tgt_"),
        "{}",
        made.body
    );
    let (asked, _) = begin(&house);
    assert_eq!((asked.get("prompt"), asked.get("max_age")), ("", ""));
}

#[test]
fn strangers_start_sign_ins_within_bounds() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    let begun = (0..600).find(|_| house.get("/console/sign-in/provider").status != 303);
    // Another is let in every other second meanwhile.
    assert!(begun.unwrap() >= 60, "{begun:?}");
    eventually("the next one is refused", || {
        (house.get("/console/sign-in/provider").status == 429).then_some(())
    });
    // Refusals are recorded for ever, so there are fewer of them.
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let mut statuses =
        (0..60).map(|_| sign_in(&house, &provider, &json!({"nonce": "another"})).status);
    // Another is let in each half a minute meanwhile.
    let refused = statuses.position(|status| status == 429);
    assert!(refused.unwrap() >= 10, "{refused:?}");
    // Passwords go on.
    assert_eq!(house.sign_in("root").get("/console").status, 200);
}

#[test]
fn whoever_loses_all_groups_loses_sessions_and_tokens() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(ROLES), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    // A number is as good as a text.
    let reply = sign_in(&house, &provider, &json!({"sub": 42, "auth_time": now()}));
    let cookie = session(&reply)
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let header = format!("Cookie: {cookie}");
    let page = house.ask("GET", "/console/account", &["-H", &header]);
    // Without a password, a token is made by whoever the provider has just asked.
    let fields = [
        ("token", form_token(&page.body)),
        ("action", "token".into()),
        ("label", "ci".into()),
        ("scope", "all".into()),
    ];
    let mut fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    fields.push(("days", "1"));
    let made = house
        .send_form("/console/account", &fields, &[&header])
        .body;
    let token = made
        .split("tgt_")
        .nth(1)
        .unwrap_or_else(|| panic!("no token: {made}"));
    let token = format!(
        "tgt_{}",
        token
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-')
            .next()
            .unwrap()
    );
    assert_eq!(house.by_token("GET", "/nodes", &token).status, 200);
    // No word about groups is not the word that there are none.
    for groups in [json!(null), json!({"staff": true}), json!([["staff"]])] {
        let unknown = sign_in(&house, &provider, &json!({"sub": "42", "groups": groups}));
        assert!(
            (unknown.status, session(&unknown)) == (403, None),
            "{groups}: {}",
            unknown.body
        );
        assert!(
            unknown
                .body
                .contains("the provider does not say what your groups are (claim groups)"),
            "{}",
            unknown.body
        );
        assert_eq!(
            house.by_token("GET", "/nodes", &token).status,
            200,
            "{groups}"
        );
    }
    let gone = sign_in(&house, &provider, &json!({"sub": "42", "groups": []}));
    assert!(
        (gone.status, session(&gone)) == (403, None),
        "{}",
        gone.body
    );
    assert_eq!(house.by_token("GET", "/nodes", &token).status, 401);
    assert_eq!(
        house.ask("GET", "/console/limits", &["-H", &header]).status,
        303
    );
    let list = house.done(&["account", "list", "--json"]);
    assert!(!list.contains("operator"), "{list}");
    let log = house.sign_in("root").get("/console/audit").body;
    assert!(
        log.contains("by groups at the provider: none")
            && log.contains("by groups at the provider: operator"),
        "{log}"
    );
    // With a group again, a new session; what was revoked stays so.
    assert!(session(&sign_in(&house, &provider, &json!({"sub": "42"}))).is_some());
    assert_eq!(house.by_token("GET", "/nodes", &token).status, 401);
}

#[test]
fn an_administrator_binds_an_account_to_somebody() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(""), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    house.done(&["account", "create", "eve", "--operator", "--no-password"]);
    assert_eq!(
        sign_in(&house, &provider, &json!({"preferred_username": "eve"})).status,
        403
    );
    let issuer = provider.issuer();
    house.done(&[
        "account",
        "change",
        "eve",
        "--subject",
        &issuer,
        "248289761001",
    ]);
    let reply = sign_in(&house, &provider, &json!({}));
    let header = format!(
        "Cookie: {}",
        session(&reply).unwrap().split(';').next().unwrap()
    );
    assert_eq!(
        house.ask("GET", "/console/limits", &["-H", &header]).status,
        200
    );
    assert!(house.done(&["account", "list"]).contains("eve   operator"));
    // Nobody else's session stays with the account.
    house.done(&["account", "change", "eve", "--subject", &issuer, "another"]);
    assert_eq!(
        house.ask("GET", "/console/limits", &["-H", &header]).status,
        303
    );
    assert_eq!(sign_in(&house, &provider, &json!({})).status, 403);
    assert!(session(&sign_in(&house, &provider, &json!({"sub": "another"}))).is_some());
    house.done(&["account", "change", "eve", "--no-subject"]);
    assert_eq!(
        sign_in(&house, &provider, &json!({"sub": "another"})).status,
        403
    );
    let log = house.sign_in("root").get("/console/audit").body;
    assert!(
        log.contains(&format!("signs in as another at {issuer}")),
        "{log}"
    );
}

#[test]
fn a_renewed_client_secret_keeps_no_policies_out() {
    let provider = Provider::start();
    let house = House::at(&provider.admin(""), "http", None);
    house.done(&["account", "create", "root", "--admin"]);
    let bearer = format!("Authorization: Bearer {}", house.token("root"));
    let change = |name: &str, revision: f64| {
        let put = [
            "-H",
            &bearer,
            "-H",
            "If-None-Match: *",
            "-H",
            "Content-Type: application/json",
            "-d",
            "{}",
        ];
        let reply = house.ask(
            "PUT",
            &format!("/policies/applications/{name}?reason=x"),
            &put,
        );
        assert_eq!(reply.status, 200, "{}", reply.body);
        eventually("the node runs it", || {
            (house.gateway.metric("tollgate_policy_revision") == revision).then_some(())
        });
    };
    std::fs::write(&provider.secret_file, "renewed\n").unwrap();
    change("shop", 1.0);
    std::fs::remove_file(&provider.secret_file).unwrap();
    change("bank", 2.0);
    // The file of the configuration is read with what is there now.
    std::fs::write(&provider.secret_file, "renewed\n").unwrap();
    house.gateway.signal("HUP");
    let warned = "the files of admin.openid_connect have changed";
    eventually("the secret is said to be another", || {
        house.gateway.log().contains(warned).then_some(())
    });
    eventually("it is reloaded", || {
        house.gateway.log().contains("reloaded").then_some(())
    });
}
