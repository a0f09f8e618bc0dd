use super::*;

#[test]
fn an_admin_port_is_a_plain_authority() {
    for (text, shown) in [
        ("http://127.0.0.1:9901", "http://127.0.0.1:9901"),
        ("http://localhost:9901/", "http://localhost:9901"),
        ("10.0.0.1:9901", "http://10.0.0.1:9901"),
        ("http://[::1]:9901", "http://[::1]:9901"),
        ("https://gate.example.com", "https://gate.example.com"),
    ] {
        assert_eq!(text.parse::<AdminPort>().unwrap().to_string(), shown);
    }
    for odd in [
        "ftp://127.0.0.1:9901",
        "http://127.0.0.1:9901/metrics",
        "/",
        "http://a@b:1",
        "http://a:1/?q",
    ] {
        assert!(odd.parse::<AdminPort>().is_err(), "{odd}");
    }
}

#[test]
fn a_file_without_a_token_is_no_way_to_ask_as_nobody() {
    let port: AdminPort = "http://127.0.0.1:9901".parse().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let access = AdminAccessArgs {
        ca: AdminCaArgs { admin_ca: None },
        token_file: Some(file.path().to_owned()),
    };
    std::fs::write(file.path(), " secret\n").unwrap();
    let asked = access.apply_to(&port).unwrap();
    assert_eq!(asked.bearer.unwrap(), "Bearer secret");
    let why = format!(
        "cannot read the token from {}: it is empty",
        file.path().display()
    );
    for empty in ["", " \r\n"] {
        std::fs::write(file.path(), empty).unwrap();
        let error = access.apply_to(&port).unwrap_err();
        assert_eq!(format!("{error:#}"), why);
    }
}

#[test]
fn a_target_carries_any_value() {
    let pairs = [("header.x".to_owned(), "a b&c=ü".to_owned())];
    assert_eq!(
        target(&["buckets", "a/b"], &pairs),
        "/buckets/a%2Fb?header.x=a%20b%26c%3D%C3%BC"
    );
    assert_eq!(target(&["limits"], &[]), "/limits");
}
