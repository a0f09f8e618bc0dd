use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use super::*;

fn read(format: BodyFormat, target: &'static str, member: &str, content: &[u8]) -> Option<String> {
    let values = BodyValues::read(&[member.into()], format, &Uri::from_static(target), content);
    values.get(member).map(str::to_owned)
}

fn form(content: &str) -> Option<String> {
    read(BodyFormat::Form, "/", "username", content.as_bytes())
}

fn json(content: &str) -> Option<String> {
    read(BodyFormat::Json, "/", "username", content.as_bytes())
}

fn format(fields: &[(http::HeaderName, &'static str)]) -> Option<BodyFormat> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name, HeaderValue::from_static(value));
    }
    BodyFormat::from_headers(&headers)
}

#[test]
fn a_field_of_a_form_has_one_spelling() {
    for spelling in [
        "username=ada+l%C3%A9",
        "username=ada%20l%c3%a9",
        "%75sername=%61da+lé",
        "password=x;y&username=ada lé&x",
        "username=+ada+l%C3%A9%20&username2=b&user=c",
        "username=%0Aada+lé%0d%0a",
    ] {
        assert_eq!(form(spelling).as_deref(), Some("ada lé"), "{spelling}");
    }
    assert_eq!(form("username=").as_deref(), Some(""));
    assert_eq!(form("username").as_deref(), Some(""));
    assert_eq!(form("username=a=b").as_deref(), Some("a=b"));
    assert_eq!(form("username=Ada").as_deref(), Some("Ada"));
}

#[test]
fn a_form_that_upstreams_may_read_otherwise_has_no_value() {
    for ambiguous in [
        "",
        "user=ada",
        "username=ada&username=bob",
        "username=ada&username=ada",
        "username=ada&Username=bob",
        "USERNAME=bob&username=ada",
        "username=ada&%20username=bob",
        "username=ada&username[]=bob",
        "username=ada&username%5B0%5D=bob",
        "username=ada&username%00x=bob",
        "username=ada&u\u{17f}ername=bob",
        "username=ada;username=bob",
        "username=ada;x=1",
        "x=1;username=bob&username=ada",
        "x=1;username=bob",
        "username=ada&%u0075sername=bob",
        "username=ada&%zz=bob",
        "username=ada%",
        "username=ada%f",
        "username=ad%u0061",
        "username=ada%ff",
        "username=%c0%a1da",
        "username=ada%00bob",
        "username=ada%0abob",
        "username=ada&_charset_=utf-7",
        "{\"username\":\"bob\",\"x\":\"&username=ada&\"}",
        " [1]&username=ada",
        "<x>&username=ada&</x>",
        "\u{feff}{\"username\":\"bob\",\"x\":\"&username=ada&\"}",
        "\u{b}{\"username\":\"bob\",\"x\":\"&username=ada&\"}",
        "\0{\0\"\0u\0&username=ada&\0}",
        "x=\0&username=ada",
    ] {
        assert_eq!(form(ambiguous), None, "{ambiguous:?}");
    }
    assert_eq!(
        read(BodyFormat::Form, "/", "username", b"username=\xffada"),
        None
    );
}

#[test]
fn several_members_have_the_values_that_each_has_alone() {
    const FIELDS: [&str; 9] = [
        "user=ada",
        "user[]=b",
        "mail=%61",
        "mail=%zz",
        "%zz=1",
        "_charset_=x",
        "",
        ";user=c",
        "mail=a;tenant=b",
    ];
    let members: [Arc<str>; 3] = ["user".into(), "mail".into(), "tenant".into()];
    let targets = ["/", "/?mail=x", "/?%zz"];
    for number in 0..FIELDS.len().pow(3) {
        let field = |place: u32| FIELDS[number / FIELDS.len().pow(place) % FIELDS.len()];
        let form = format!("tenant=t&{}&{}&&{}", field(0), field(1), field(2));
        let json = format!(
            "{{\"user\":\"{}\",\"mail\":\"m&{}\",\"tenant\":\"&{}\"}}",
            field(0),
            field(1),
            field(2)
        );
        for (format, content) in [(BodyFormat::Form, &form), (BodyFormat::Json, &json)] {
            let target = targets[number % targets.len()];
            let values = BodyValues::read(
                &members,
                format,
                &Uri::from_static(target),
                content.as_bytes(),
            );
            for member in &members {
                let alone = read(format, target, member, content.as_bytes());
                assert_eq!(
                    values.get(member),
                    alone.as_deref(),
                    "{member} of {content} at {target}"
                );
            }
        }
    }
}

#[test]
fn empty_fields_of_a_form_are_none() {
    assert_eq!(form("&&username=ada&&&").as_deref(), Some("ada"));
    assert_eq!(
        form(&format!("username=ada{}", "&".repeat(65_536))).as_deref(),
        Some("ada")
    );
    assert_eq!(form("&&username=ada&&username=bob"), None);
}

#[test]
fn a_name_with_brackets_is_told_from_its_neighbours() {
    let nested = |content: &str| read(BodyFormat::Form, "/", "user[name]", content.as_bytes());
    assert_eq!(
        nested("user[name]=ada&user[password]=x").as_deref(),
        Some("ada")
    );
    assert_eq!(nested("user%5Bname%5D=ada").as_deref(), Some("ada"));
    for ambiguous in [
        "user[name]=ada&user[name][]=bob",
        "user[name]=ada&User[Name]=bob",
        "user=ada",
    ] {
        assert_eq!(nested(ambiguous), None, "{ambiguous}");
    }
}

#[test]
fn a_name_that_some_framework_takes_for_the_member_leaves_it_without_a_value() {
    let read = |member: &str, other: &str| {
        let content = format!("{member}=rand&{other}=victim");
        assert_eq!(
            read(
                BodyFormat::Form,
                "/",
                member,
                format!("{member}=rand").as_bytes()
            )
            .as_deref(),
            Some("rand")
        );
        read(BodyFormat::Form, "/", member, content.as_bytes())
    };
    for (member, others) in [
        // Rack: brackets at the beginning, and closing ones behind. PHP drops all behind them.
        (
            "username",
            &[
                "[username]",
                "[username",
                "]username",
                "username]",
                "username]]",
                "[[username",
                "[]username",
            ][..],
        ),
        (
            "username",
            &[
                "[%5dusername",
                "username[",
                "username[x",
                "username[]x",
                "username.",
                "username.0",
                "%20[username]",
            ],
        ),
        // PHP: an opening bracket that is never closed is an underscore.
        (
            "user_name",
            &[
                "user[name",
                "user.name",
                "user name",
                "]user_name",
                "user[name]",
            ],
        ),
        // PHP drops all behind the last bracket, Rack drops brackets.
        (
            "user[name]",
            &[
                "user[name]x",
                "user[name]0",
                "user[name]*",
                "user[name]]",
                "user[[name]",
                "user][name]",
            ],
        ),
        (
            "user[name]",
            &[
                "[user][name]",
                "user[name",
                "user.name",
                "User[Name]",
                "user[name][]",
                "user_name",
            ],
        ),
        // ASP.NET: the name of a parameter stands before.
        (
            "Username",
            &["model.Username", "model.username", "login[Username]"],
        ),
        ("user.name", &["user[name]", "user_name", "model.user.name"]),
    ] {
        for other in others {
            assert_eq!(read(member, other), None, "{member} beside {other}");
        }
    }
    for (member, other) in [
        ("username", "username_hint"),
        ("username", "username2"),
        ("username", "my_username"),
        ("user", "user_name"),
        ("id", "items[0][id]"),
        ("user[name]", "user[name_hint]"),
        ("user[name]", "user[password]"),
    ] {
        assert_eq!(
            read(member, other).as_deref(),
            Some("rand"),
            "{member} beside {other}"
        );
    }
}

#[test]
fn spellings_of_unicode_for_one_text_are_one_value() {
    for spelling in [
        "%EF%BB%BFvictim",
        "victim%EF%BB%BF%EF%BB%BF",
        "%E2%80%8Bvic%C2%ADtim%E2%81%A0",
        "victim%C2%A0",
        "\u{ff56}ictim",
        "\u{1d42f}ictim",
    ] {
        assert_eq!(
            form(&format!("username={spelling}")).as_deref(),
            Some("victim"),
            "{spelling}"
        );
    }
    assert_eq!(
        json("{\"username\":\"victim\\ufeff\"}").as_deref(),
        Some("victim")
    );
    assert_eq!(form("username=e\u{301}").as_deref(), Some("\u{e9}"));
    assert_eq!(form("username=vic%C2%85tim"), None, "a control character");
    let mut described = BodyValues::default();
    described.describe("username", "\u{feff}victim ");
    assert_eq!(described.get("username"), Some("victim"));
}

#[test]
fn json_that_has_the_member_as_a_form_would_has_no_value() {
    assert_eq!(json(r#"{"username":"rand","x":"&username=victim&"}"#), None);
    assert_eq!(
        json(r#"{"username":"rand","x":"&User%6eame=victim&"}"#),
        None
    );
    assert_eq!(
        json(r#"{"username":"rand&co","x":"a=b&user=victim 100%"}"#).as_deref(),
        Some("rand&co")
    );
}

#[test]
fn a_member_of_json_has_one_spelling() {
    for spelling in [
        r#"{"username":"ada lé"}"#,
        r#"{"user\u006eame":"\u0061da l\u00e9","x":{"username":"bob"}}"#,
        " { \"x\" : [1, {\"username\": 2}] , \"username\" : \" ada lé\\n\" } ",
    ] {
        assert_eq!(json(spelling).as_deref(), Some("ada lé"), "{spelling}");
    }
    assert_eq!(json(r#"{"username":7}"#), json(r#"{"username":"7"}"#));
    assert_eq!(json(r#"{"username":-7}"#).as_deref(), Some("-7"));
    for (number, counts) in [
        ("9007199254740991", true),
        ("9007199254740992", false),
        ("-9007199254740992", false),
    ] {
        let body = format!("{{\"username\":{number}}}");
        assert_eq!(json(&body).is_some(), counts, "{number}");
    }
    assert_eq!(json(r#"{"username":""}"#).as_deref(), Some(""));
}

#[test]
fn json_that_upstreams_may_read_otherwise_has_no_value() {
    for ambiguous in [
        "",
        "{}",
        "[]",
        "\"ada\"",
        "\u{feff}{\"username\":\"ada\"}",
        r#"{"username":"ada","username":"bob"}"#,
        r#"{"username":"ada","username":"ada"}"#,
        r#"{"username":"ada","user\u006eame":"bob"}"#,
        r#"{"username":"ada","Username":"bob"}"#,
        "{\"username\":\"ada\",\"u\u{17f}ername\":\"bob\"}",
        r#"{"username":["ada"]}"#,
        r#"{"username":{"$ne":""}}"#,
        r#"{"username":1.0}"#,
        r#"{"username":1e1}"#,
        r#"{"username":123456789012345678901234567890}"#,
        r#"{"username":null}"#,
        r#"{"username":true}"#,
        r#"{"username":"ada"} {"username":"bob"}"#,
        r#"{"username":"ada"}x"#,
        r#"{"username":"ada",}"#,
        r#"{"username":"ada" /* */}"#,
        r#"{"username":'ada'}"#,
        r#"{"username":"a\ud800"}"#,
        r#"{"username":"ada\u0000bob"}"#,
        r#"{"username":"ada""#,
        "username=ada",
    ] {
        assert_eq!(json(ambiguous), None, "{ambiguous:?}");
    }
    assert_eq!(
        read(
            BodyFormat::Json,
            "/",
            "username",
            b"{\"username\":\"\xff\"}"
        ),
        None
    );
    let utf16: Vec<u8> = "{\"username\":\"ada\"}"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    assert_eq!(read(BodyFormat::Json, "/", "username", &utf16), None);
}

#[test]
fn dots_lead_into_objects() {
    let nested = |content: &str| read(BodyFormat::Json, "/", "user.login.name", content.as_bytes());
    assert_eq!(
        nested(r#"{"user":{"x":1,"login":{"name":"ada"}}}"#).as_deref(),
        Some("ada")
    );
    for other in [
        r#"{"user":{"login":{"name":"ada"}},"user":{}}"#,
        r#"{"user":{"login":{"name":"ada"},"Login":{"name":"bob"}}}"#,
        r#"{"user":{"login":"ada"}}"#,
        r#"{"user.login.name":"ada"}"#,
        r#"{"user":[{"login":{"name":"ada"}}]}"#,
    ] {
        assert_eq!(nested(other), None, "{other}");
    }
    // Neither the depth of what is not asked for nor that of the path is a way to exhaust the
    // stack.
    let deep = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(json(&deep(30_000)), None);
    let path = vec!["a"; 1000].join(".");
    let content = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
    assert_eq!(read(BodyFormat::Json, "/", &path, content.as_bytes()), None);
}

#[test]
fn a_parameter_of_the_query_casts_doubt_on_a_member_of_its_name() {
    let both = |target| read(BodyFormat::Form, target, "username", b"username=ada");
    for target in ["/", "/?next=%2Fhome", "/?user=bob"] {
        assert_eq!(both(target).as_deref(), Some("ada"), "{target}");
    }
    for target in [
        "/?username=bob",
        "/?x&Username=bob",
        "/?username[]=bob",
        "/?x;username=bob",
        "/?%zz=1",
    ] {
        assert_eq!(both(target), None, "{target}");
    }
    let json = |target| {
        read(
            BodyFormat::Json,
            target,
            "user.name",
            br#"{"user":{"name":"ada"}}"#,
        )
    };
    assert_eq!(json("/?x=1").as_deref(), Some("ada"));
    assert_eq!(json("/?user[name]=bob"), None);
}

#[test]
fn only_plain_forms_and_json_in_utf_8_are_read() {
    for (text, found) in [
        ("application/x-www-form-urlencoded", BodyFormat::Form),
        (
            "Application/X-WWW-Form-Urlencoded ; charset=UTF-8",
            BodyFormat::Form,
        ),
        ("application/json;charset=\"utf-8\"", BodyFormat::Json),
        ("application/vnd.api+json; version=1;", BodyFormat::Json),
    ] {
        assert_eq!(format(&[(CONTENT_TYPE, text)]), Some(found), "{text}");
    }
    for other in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/x-www-form-urlencoded; charset=ibm037",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json; x=\"; charset=utf-16",
        "application/json; charset*=utf-16",
        "application/json, application/x-www-form-urlencoded",
        "application/json x",
    ] {
        assert_eq!(format(&[(CONTENT_TYPE, other)]), None, "{other}");
    }
    let json = (CONTENT_TYPE, "application/json");
    assert_eq!(format(&[]), None);
    assert_eq!(
        format(&[
            json.clone(),
            (CONTENT_TYPE, "application/x-www-form-urlencoded")
        ]),
        None
    );
    assert_eq!(
        format(&[json.clone(), (CONTENT_ENCODING, "identity")]),
        Some(BodyFormat::Json)
    );
    assert_eq!(format(&[json, (CONTENT_ENCODING, "gzip")]), None);
}

#[test]
fn case_and_accents_are_ignored_where_that_is_asked_for() {
    let of = |value: &str, ignore_case| {
        let mut values = BodyValues::default();
        values.describe("username", value);
        let bytes = BodyMember {
            name: "username".into(),
            ignore_case,
        }
        .value(&values)
        .unwrap()
        .into_owned();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(of("ÄdA", false), "ÄdA");
    assert_eq!(
        (of("ÄdA", true), of("STRASSE", true)),
        ("ada".to_owned(), of("straße", true))
    );
    for spelling in [
        "VICTIM",
        "v\u{ed}ctim",
        "V\u{130}CTIM",
        "v\u{131}ctim",
        "vi\u{301}ctim",
        "\u{ff36}ictim",
    ] {
        assert_eq!(of(spelling, true), "victim", "{spelling}");
    }
    assert_eq!(of("\u{17f}am \u{212a}", true), "sam k");
}
