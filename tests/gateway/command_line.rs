//! The command line: `check`, `schema`, `--help`, `--version`, and a start that fails.

use std::path::Path;
use std::process::{Command, Output};

use crate::process::Gateway;
use tollgate_test_support::turns;

const FIVE_MISTAKES: &str = "\
listeners:
  - address: 127.0.0.1:99999
limits:
  per-client: {key: client_ip, rate: 10 per second, burst: 20}
upstreams:
  orders: {endpoints: [https://10.0.0.1]}
routes:
  - name: orders
    match: {path: orders}
    upstream: orders
    limits: [per-clint]
";

fn tollgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).output().unwrap()
}

fn with_file(text: &str, test: impl FnOnce(&str)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.yaml");
    std::fs::write(&path, text).unwrap();
    test(path.to_str().unwrap());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn check_names_all_five_mistakes_with_line_path_and_hint() {
    with_file(FIVE_MISTAKES, |file| {
        let output = tollgate(&["check", file]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        for (line, path) in [
            (2, "listeners[0].address"),
            (4, "limits.per-client.rate"),
            (6, "upstreams.orders.endpoints[0]"),
            (9, "routes[0].match.path"),
            (11, "routes[0].limits[0]"),
        ] {
            let place = said.lines().find(|said| said.starts_with(&format!("{file}:{line}:")));
            assert!(place.is_some_and(|said| said.contains(&format!("{path}: "))), "{line} {path} in:\n{said}");
        }
        assert!(said.contains("did you mean \"per-client\"?"), "{said}");
        assert!(said.ends_with(&format!("5 mistakes in {file}\n")), "{said}");
    });
}

#[test]
fn check_says_what_a_good_file_holds() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("routes.yaml");
    let output = tollgate(&["check", file.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(text(&output.stdout).ends_with("routes.yaml: OK, 2 routes, 1 limit, 0 upstreams, 1 listener\n"));
}

#[test]
fn a_bad_file_never_starts() {
    with_file(FIVE_MISTAKES, |file| {
        let output = tollgate(&["run", "--config", file]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stderr, tollgate(&["check", file]).stderr, "run tells what check does");
        let output = tollgate(&["run", "--log-format", "json", "--config", file]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 5, "{said}");
        for line in said.lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["level"], "ERROR");
        }
    });
    let output = tollgate(&["run", "--config", "/nowhere/routes.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/routes.yaml"));
}

#[test]
fn an_address_in_use_stops_the_start_and_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let routes = format!(
        "listeners: [{{address: '{address}'}}]\nadmin: off\nroutes: [{{name: a, match: {{path: '/*'}}, echo: true}}]\n"
    );
    with_file(&routes, |file| {
        let output = tollgate(&["run", "--config", file]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(&address.to_string()), "{}", text(&output.stderr));
    });
}

#[test]
fn a_second_gateway_does_not_share_the_first_ones_port() {
    let _turn = turns::beside_others();
    let first = Gateway::start(
        "listeners: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nroutes: [{name: a, echo: true}]\n",
    );
    for address in [first.listeners[0], first.admin] {
        let routes = format!("listeners: [{{address: '{address}'}}]\nadmin: off\nroutes: [{{name: a, echo: true}}]\n");
        with_file(&routes, |file| {
            let output = tollgate(&["run", "--config", file]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("cannot listen on {address}: ")), "{said}");
        });
    }
}

#[test]
fn help_lists_commands_and_version_prints_the_version() {
    let help = text(&tollgate(&["--help"]).stdout);
    for word in ["run", "check", "schema", "tollgate check routes.yaml", "SIGTERM", "SIGHUP"] {
        assert!(help.contains(word), "{word} in:\n{help}");
    }
    assert!(text(&tollgate(&["run", "--help"]).stdout).contains("--config"));
    assert_eq!(text(&tollgate(&["--version"]).stdout), format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn schema_prints_the_schema_of_the_file() {
    let printed = text(&tollgate(&["schema"]).stdout);
    let kept = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/routes.schema.json")).unwrap();
    assert_eq!(printed, kept);
}
