//! The command line: `check`, `schema`, `--help`, `--version`, and a start that fails.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::process::{Gateway, eventually};

const GOOD: &str = "listeners: [{address: '127.0.0.1:8080'}]\nroutes: [{name: a, echo: true}]\n";
const UNUSED: &str = "limits: {spare: {key: client_ip, rate: 1/s}}\n";

const FIVE_MISTAKES: &str = "\
listeners:
  - address: 127.0.0.1:99999
limits:
  per-client: {key: client_ip, rate: 10 per second, burst: 20}
upstreams:
  orders: {endpoints: [10.0.0.1]}
routes:
  - name: orders
    match: {path: orders}
    upstream: orders
    limits: [per-clint]
";

fn tollgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(args)
        .output()
        .unwrap()
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
            let place = said
                .lines()
                .find(|said| said.starts_with(&format!("{file}:{line}:")));
            assert!(
                place.is_some_and(|said| said.contains(&format!("{path}: "))),
                "{line} {path} in:\n{said}"
            );
        }
        assert!(said.contains("did you mean \"per-client\"?"), "{said}");
        assert!(said.ends_with(&format!("5 mistakes in {file}\n")), "{said}");
    });
}

/// Runs `tollgate` with `input` on standard input.
fn tollgate_reading(input: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn check_and_run_take_the_file_from_the_environment() {
    with_file(GOOD, |file| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("check")
            .env("TOLLGATE_CONFIG", file)
            .output();
        assert_eq!(
            text(&output.unwrap().stdout),
            format!("{file}: OK, 1 route, 0 limits, 0 upstreams, 1 listener\n")
        );
    });
}

#[test]
fn check_reads_standard_input_where_a_dash_says_so() {
    let good = tollgate_reading(GOOD, &["check", "-"]);
    assert_eq!(
        text(&good.stdout),
        "<stdin>: OK, 1 route, 0 limits, 0 upstreams, 1 listener\n"
    );
    let bad = tollgate_reading("nonsense: 1\n", &["check", "-"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        text(&bad.stderr).starts_with("<stdin>:1:1: "),
        "{}",
        text(&bad.stderr)
    );
    assert_eq!(
        tollgate_reading(GOOD, &["check", "-", "-"]).status.code(),
        Some(2),
        "nothing is left the second time"
    );
}

#[test]
fn check_says_of_each_of_several_files_what_is_wrong_with_it() {
    with_file(FIVE_MISTAKES, |bad| {
        let output = tollgate_reading(GOOD, &["check", bad, "-"]);
        assert_eq!(output.status.code(), Some(1), "one bad file is enough");
        assert!(text(&output.stderr).ends_with(&format!("5 mistakes in {bad}\n")));
        assert!(text(&output.stdout).starts_with("<stdin>: OK, "));
    });
}

#[test]
fn check_tells_machines_each_mistake_with_its_place() {
    with_file(FIVE_MISTAKES, |file| {
        let output = tollgate(&["check", "--json", file, "/nowhere/routes.yaml"]);
        assert_eq!(
            (output.status.code(), text(&output.stderr).as_str()),
            (Some(1), "")
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&report["ok"], &report["warnings"]),
            (&json!(false), &json!([]))
        );
        let mistakes = report["mistakes"].as_array().unwrap();
        assert_eq!(mistakes.len(), 6, "{report:#}");
        let expected = json!({
            "file": file, "line": 11, "column": 14, "path": "routes[0].limits[0]",
            "message": "no limit is called \"per-clint\"", "hint": "did you mean \"per-client\"?",
        });
        assert_eq!(mistakes[4], expected);
        let unread = mistakes[5].as_object().unwrap();
        assert!(
            unread["file"] == "/nowhere/routes.yaml" && !unread.contains_key("line"),
            "{report:#}"
        );
    });
    let output = tollgate_reading(&format!("{UNUSED}{GOOD}"), &["check", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "a warning is no mistake");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["ok"], &report["mistakes"]),
        (&json!(true), &json!([]))
    );
    assert_eq!(
        (
            &report["warnings"][0]["line"],
            &report["warnings"][0]["path"]
        ),
        (&json!(1), &json!("limits.spare"))
    );
}

fn serving(admin: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{address: '127.0.0.1:0'}}]\nadmin: {admin}\nroutes: [{{name: a, echo: true}}]\n"
    )
}

fn health(args: &[&str]) -> (Option<i32>, String) {
    let output = tollgate(&[&["health"], args].concat());
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

#[test]
fn health_says_in_a_line_whether_the_gateway_takes_requests() {
    let gateway = Gateway::start(&serving("{address: '127.0.0.1:0'}"));
    let admin = format!("http://{}", gateway.admin);
    assert_eq!(
        health(&["--admin", &admin]),
        (Some(0), format!("ready: {admin}\n"))
    );
    // The file of a gateway that is reached from elsewhere; then with a mistake that came in since.
    let file = serving(&format!("{{address: '0.0.0.0:{}'}}", gateway.admin.port()));
    for text in [&file, &file.replace("echo: true", "ecko: true")] {
        with_file(text, |file| {
            assert_eq!(
                health(&["--config", file]),
                (Some(0), format!("ready: {admin}\n"))
            )
        });
    }
}

#[test]
fn health_tells_a_gateway_that_drains_from_one_that_is_ready() {
    let gateway = Gateway::start(&serving("{address: '127.0.0.1:0'}"));
    let admin = format!("http://{}", gateway.admin);
    // A request that has not ended holds the drain up.
    let mut client = std::net::TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    eventually("the request is in flight", || {
        (gateway.metric("tollgate_connections") == 1.0).then_some(())
    });
    gateway.signal("TERM");
    let told = eventually("it drains", || {
        Some(health(&["--admin", &admin])).filter(|(code, _)| *code == Some(1))
    });
    assert_eq!(told.1, format!("not ready: {admin} is draining\n"));
}

#[test]
fn health_gives_up_on_what_does_not_answer_as_a_gateway() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (code, told) = health(&["--admin", &format!("http://{address}"), "--timeout", "50ms"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        told,
        format!("tollgate: cannot ask the admin port at http://{address}: no answer within 50ms\n")
    );
    drop(silent);
    let (code, told) = health(&["--admin", &format!("http://{address}")]);
    assert!(
        code == Some(1) && told.contains("refused") && told.lines().count() == 1,
        "{told}"
    );
    with_file(&serving("off"), |file| {
        let (code, told) = health(&["--config", file]);
        assert!(
            code == Some(1) && told.contains("turns the admin port off"),
            "{told}"
        );
    });
    assert_eq!(health(&["--timeout", "soon"]).0, Some(2));
    // Whatever answers at the default port, or does not, it is not silent about the guess.
    let (code, told) = health(&["--config", "/nowhere/routes.yaml", "--timeout", "1ms"]);
    assert!(
        code == Some(0) || told.starts_with("tollgate: /nowhere/routes.yaml cannot be read: "),
        "{told}"
    );
}

#[test]
fn the_log_goes_by_its_option_then_by_rust_log() {
    with_file(
        &GOOD
            .replace("8080", "0")
            .replace("routes", "admin: '0.0.0.0:x'\nroutes"),
        |file| {
            let told = |option: &[&str], rust_log: &str| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
                command
                    .args(["run", "--log-format", "json", "--config", file])
                    .args(option)
                    .env("RUST_LOG", rust_log);
                text(&command.output().unwrap().stderr)
            };
            assert!(told(&[], "error").contains("\"ERROR\""));
            assert_eq!(
                told(&[], "off"),
                "",
                "RUST_LOG counts where nothing else says"
            );
            assert!(
                told(&["--log", "error"], "off").contains("\"ERROR\""),
                "the option wins"
            );
            assert!(told(&[], "a=b=c").contains("RUST_LOG is ignored"));
        },
    );
}

#[test]
fn check_says_what_a_good_file_holds() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("routes.yaml");
    let output = tollgate(&["check", file.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(
        text(&output.stdout)
            .ends_with("routes.yaml: OK, 2 routes, 1 limit, 0 upstreams, 1 listener\n")
    );
}

#[test]
fn a_bad_file_never_starts() {
    with_file(FIVE_MISTAKES, |file| {
        let output = tollgate(&["run", "--config", file]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            output.stderr,
            tollgate(&["check", file]).stderr,
            "run tells what check does"
        );
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
        assert!(
            text(&output.stderr).contains(&address.to_string()),
            "{}",
            text(&output.stderr)
        );
    });
}

#[test]
fn a_second_gateway_does_not_share_the_first_ones_port() {
    let first = Gateway::start(
        "listeners: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nroutes: [{name: a, echo: true}]\n",
    );
    for address in [first.listeners[0], first.admin] {
        let routes = format!(
            "listeners: [{{address: '{address}'}}]\nadmin: off\nroutes: [{{name: a, echo: true}}]\n"
        );
        with_file(&routes, |file| {
            let output = tollgate(&["run", "--config", file]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(
                said.contains(&format!("cannot listen on {address}: ")),
                "{said}"
            );
        });
    }
}

#[test]
fn help_lists_commands_and_version_prints_the_version() {
    let help = text(&tollgate(&["--help"]).stdout);
    for word in [
        "run",
        "check",
        "health",
        "schema",
        "tollgate check routes.yaml",
        "SIGTERM",
        "SIGHUP",
    ] {
        assert!(help.contains(word), "{word} in:\n{help}");
    }
    let run = text(&tollgate(&["run", "--help"]).stdout);
    assert!(
        run.contains("--config") && run.contains("RUST_LOG"),
        "{run}"
    );
    assert_eq!(
        text(&tollgate(&["--version"]).stdout),
        format!("tollgate {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn schema_prints_the_schema_of_the_file() {
    let printed = text(&tollgate(&["schema"]).stdout);
    let kept = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/routes.schema.json"),
    )
    .unwrap();
    assert_eq!(printed, kept);
}

#[test]
fn check_prints_a_file_in_one_piece_which_is_as_good_as_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    write("parts/page.html", "<h1>Sorry</h1>");
    write(
        "parts/routes.yaml",
        "routes:\n  - name: a\n    echo: true\n    error_pages: [{status: [5xx], type: text/html, file: page.html}]\n",
    );
    let whole = "include: parts\nlisteners: [{address: '127.0.0.1:0'}]\ndefaults: {routes: {timeout: '${TOLLGATE_TEST_TIME:-5s}'}}\n";
    let file = write("whole.yaml", whole);
    let printed = tollgate(&["check", "--print", &file]);
    assert_eq!(
        (printed.status.code(), text(&printed.stderr)),
        (Some(0), String::new())
    );
    let said = text(&printed.stdout);
    assert!(
        said.contains("timeout: \"${TOLLGATE_TEST_TIME:-5s}\"\n") && !said.contains("include"),
        "{said}"
    );
    let checked = tollgate(&["check", &write("printed.yaml", &said)]);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}\n{said}",
        text(&checked.stderr)
    );
    let wrong = tollgate(&[
        "check",
        "--print",
        &write("wrong.yaml", &whole.replace("5s", "soon")),
    ]);
    assert_eq!(
        (wrong.status.code(), text(&wrong.stdout)),
        (Some(1), String::new())
    );
    assert!(
        text(&wrong.stderr).contains("wrong.yaml:3:30: defaults.routes.timeout: "),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn a_pipe_is_no_configuration_and_no_file_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert!(
        Command::new("mkfifo")
            .arg(path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let page = "error_pages: [{status: [404], type: text/html, file: pipe}]\n";
    let keys = format!(
        "authenticators: {{a: {{api_key: {{header: x-api-key, keys: {}}}}}}}\n",
        path("pipe")
    );
    for (name, more) in [("page.yaml", page), ("keys.yaml", &keys)] {
        std::fs::write(path(name), format!("{more}{GOOD}")).unwrap();
    }
    for name in ["pipe", "page.yaml", "keys.yaml"] {
        let output = tollgate(&["check", &path(name)]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(
            text(&output.stderr).contains("it is not a file"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn warnings_fail_a_strict_check_and_absent_files_only_one_with_files() {
    let warned = format!("{UNUSED}{GOOD}");
    with_file(&warned, |file| {
        assert_eq!(tollgate(&["check", file]).status.code(), Some(0));
        let strict = tollgate(&["check", "--strict", file]);
        assert_eq!(strict.status.code(), Some(1));
        assert!(text(&strict.stdout).contains("warning: "));
        let json = tollgate(&["check", "--strict", "--json", file]);
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(
            (json.status.code(), &report["ok"]),
            (Some(1), &json!(false))
        );
    });
    let secured = "listeners: [{address: '127.0.0.1:8443', tls: {certificates: [{cert: /nowhere/a.pem, key: /nowhere/a.key}]}}]
authenticators: {users: {basic: {users: /nowhere/users}}}
routes: [{name: a, authenticate: [users], echo: true}]
";
    with_file(secured, |file| {
        assert_eq!(tollgate(&["check", file]).status.code(), Some(1));
        let without = tollgate(&["check", "--without-files", "--strict", file]);
        assert_eq!(without.status.code(), Some(0), "{}", text(&without.stderr));
    });
}

#[test]
fn a_start_at_an_address_that_is_taken_says_so_and_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let free = "127.0.0.1:0";
    for (listener, admin) in [
        (address.to_string(), free.to_owned()),
        (free.to_owned(), address.to_string()),
    ] {
        let routes = format!(
            "listeners: [{{address: '{listener}'}}]\nadmin: {{address: '{admin}'}}\nroutes: [{{name: a, echo: true}}]\n"
        );
        with_file(&routes, |file| {
            let output = tollgate(&["run", "--config", file]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(
                said.contains(&format!("cannot listen on {address}"))
                    && said.contains("another process listens there: stop it, or give this gateway another address"),
                "{said}"
            );
        });
    }
}

#[test]
fn the_first_limit_of_the_readme_runs_at_ports_of_its_own() {
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, rest) = readme
        .split_once("Save this as first.yaml:\n\n```yaml\n")
        .unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    let start = |port: u16, admin_port: u16| {
        let ports = [("PORT", port), ("ADMIN_PORT", admin_port)];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.envs(ports.map(|(name, port)| (name, port.to_string())));
        Gateway::start_as(command, file)
    };
    let gateways = [start(0, 0), start(0, 0)];
    assert_ne!(gateways[0].listeners, gateways[1].listeners);
}
