//! The configuration file: each rule with its exact message.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]

mod any_text;
mod coming_from;
mod docs;
mod every_key;
mod include;
mod policies;
mod revisions;
mod store_certificates;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollgate_config::{Config, Loaded, Mistakes, load, load_probed, parse};

/// Every key once, none at its default.
const EVERY_KEY: &str = include_str!("good/every_key.yaml");

/// Stands before each line of the message that a file of `tests/config` expects.
const EXPECTED: &str = "#> ";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn env(name: &str) -> Option<String> {
    let set = BTreeMap::from([
        ("WORD", "several"),
        ("PORT", "8080"),
        ("EMPTY", ""),
        ("INJECTED", "1\nadmin: off"),
    ]);
    set.get(name).map(|value| (*value).to_owned())
}

fn check(text: &str) -> Result<Loaded, Mistakes> {
    parse("routes.yaml", text, &env)
}

fn good(text: &str) -> Config {
    check(text)
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
        .config
}

fn cases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("tests/config")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    files
}

fn expected(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix(EXPECTED))
        .collect();
    lines.join("\n")
}

#[test]
fn each_bad_file_is_refused_with_its_exact_message() {
    let mut different = Vec::new();
    let cases = cases();
    for path in &cases {
        let text = std::fs::read_to_string(path).unwrap();
        let told = match check(&text) {
            Ok(_) => "no mistake".to_owned(),
            Err(mistakes) => mistakes.to_string(),
        };
        if told != expected(&text) {
            different.push(format!("{}:\n{told}\n", path.display()));
        }
    }
    assert!(cases.len() > 70, "only {} files were found", cases.len());
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn never_repeats_a_password() {
    let mut with_one = 0;
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        with_one += usize::from(text.contains("hunter"));
        let told = format!("{0} {0:?}", check(&text).unwrap_err());
        assert!(
            !told.contains("hunter") && !told.contains("ter2"),
            "{}: {told}",
            path.display()
        );
    }
    assert!(
        with_one >= 5,
        "only {with_one} files have a password in them"
    );
}

#[test]
fn names_all_five_mistakes_of_a_file_by_line() {
    let text = std::fs::read_to_string(root().join("tests/config/five_mistakes.yaml")).unwrap();
    let mistakes = check(&text).unwrap_err();
    let lines: Vec<_> = mistakes
        .all()
        .iter()
        .map(|mistake| mistake.at.unwrap().0)
        .collect();
    assert_eq!(lines, [1, 3, 5, 8, 10]);
    assert!(
        mistakes
            .to_string()
            .ends_with("\n5 mistakes in routes.yaml")
    );
}

#[test]
fn says_when_a_file_cannot_be_read() {
    let mistakes = load(Path::new("/nonexistent/routes.yaml"))
        .unwrap_err()
        .to_string();
    let start = "/nonexistent/routes.yaml: cannot read: No such file or directory";
    assert!(mistakes.starts_with(start), "{mistakes}");
    assert!(
        mistakes.ends_with("\n  hint: is the path right?\n1 mistake in /nonexistent/routes.yaml"),
        "{mistakes}"
    );
}

#[test]
fn finds_what_answers_probes_in_a_file_that_has_mistakes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("routes.yaml");
    let probed = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let probed = load_probed(&path).map_err(|mistakes| mistakes.to_string())?;
        Ok::<_, String>(probed.map(|probed| (probed.address.to_string(), probed.needs_tls)))
    };
    let clear = |address: &str| Ok(Some((address.to_owned(), false)));
    assert_eq!(
        probed(&format!(
            "admin: {{address: '127.0.0.7:99'}}\n{LISTENERS}{ROUTES}"
        )),
        clear("127.0.0.7:99")
    );
    let broken =
        "admin: {address: '10.0.0.7:99'}\nroutes: 1\nstore: {redis: '${NOBODY_SET_THIS}'}\n";
    assert_eq!(probed(broken), clear("10.0.0.7:99"));
    assert_eq!(
        probed("admin: {probe_address: '0.0.0.0:9902'}\nroutes: 1\n"),
        clear("0.0.0.0:9902")
    );
    let tls = "tls: {certificates: [{cert: /a, key: /b}]}";
    assert_eq!(
        probed(&format!("admin: {{{tls}}}\n")),
        Ok(Some(("127.0.0.1:9901".to_owned(), true)))
    );
    assert_eq!(
        probed(&format!("admin: {{{tls}, probe_address: '[::]:9902'}}\n")),
        clear("[::]:9902")
    );
    assert_eq!(probed("admin: off\n"), Ok(None));
    assert_eq!(
        probed("workers: 1\n"),
        clear("127.0.0.1:9901"),
        "where it is by default"
    );
    assert!(probed("admin: {address: nowhere}\n").is_err());
    assert!(probed("admin: {probe_address: nowhere}\n").is_err());
    assert!(probed("admin: [").is_err());
}

#[test]
fn says_which_line_is_not_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("routes.yaml");
    std::fs::write(&path, b"workers: 2\nadmin: \xff\n").unwrap();
    let mistakes = load(&path).unwrap_err().to_string();
    assert!(
        mistakes.contains("line 2 is not UTF-8\n  hint: save the file as UTF-8\n"),
        "{mistakes}"
    );
}

#[test]
fn refuses_a_file_over_one_mebibyte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("routes.yaml");
    std::fs::write(&path, vec![0xff; (1 << 20) + 1]).unwrap();
    for mistakes in [
        load(&path).unwrap_err(),
        check(&"# comment\n".repeat(1 << 17)).unwrap_err(),
    ] {
        let told = mistakes.to_string();
        assert!(
            told.contains(
                ":1:1: the file is over 1MiB\n  hint: is this the right file?\n1 mistake in"
            ),
            "{told}"
        );
    }
}

#[test]
fn refuses_a_page_over_one_mebibyte_and_one_that_is_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let told = |page: &Path| {
        let pages = format!(
            "error_pages: [{{status: [404], type: text/html, file: \"{}\"}}]\n",
            page.display()
        );
        check(&format!("{LISTENERS}{ROUTES}{pages}"))
            .map_or_else(|mistakes| mistakes.to_string(), |_| String::new())
    };
    std::fs::write(&page, "x".repeat(1 << 20)).unwrap();
    assert_eq!(told(&page), "");
    std::fs::write(&page, "x".repeat((1 << 20) + 1)).unwrap();
    assert!(
        told(&page).contains("the page is over 1MiB\n"),
        "{}",
        told(&page)
    );
    assert!(
        told(Path::new("/dev/zero")).contains("it is not a file\n"),
        "{}",
        told(Path::new("/dev/zero"))
    );
}

const LISTENERS: &str = "listeners: [{address: \"127.0.0.1:0\"}]\n";
const ROUTES: &str = "routes: [{name: all, echo: true}]\n";

#[test]
fn a_variable_cannot_add_yaml_structure() {
    let told = check(&format!("workers: ${{INJECTED}}\n{LISTENERS}{ROUTES}"))
        .unwrap_err()
        .to_string();
    assert!(
        told.starts_with("routes.yaml:1:10: workers: \"${INJECTED}\" is not a whole number\n"),
        "{told}"
    );
}

#[test]
fn warns_of_networks_that_are_surely_not_meant() {
    let text = "trusted_proxies: [10.0.0.1/8, 0.0.0.0/0, unix]\nlisteners: [{address: \"127.0.0.1:8080\", deny: [10.0.0.1, fd00::1/8]}]\n\
        routes: [{name: all, echo: true, allow: [192.168.0.0/16]}]\n";
    let warnings: Vec<_> = check(text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "routes.yaml:1:19: trusted_proxies[0]: 10.0.0.1/8 is an address within the network 10.0.0.0/8\n  hint: write 10.0.0.0/8 for the network, or 10.0.0.1 for the address",
            "routes.yaml:1:31: trusted_proxies[1]: every client is trusted to say which address it has\n  hint: list the networks of your proxies only",
            "routes.yaml:2:58: listeners[0].deny[1]: fd00::1/8 is an address within the network fd00::/8\n  hint: write fd00::/8 for the network, or fd00::1 for the address",
        ]
    );
}

#[test]
fn warns_of_a_console_that_shares_its_host_with_a_route() {
    let warned = |public_url: &str, hosts: &str| {
        let text = format!(
            "{LISTENERS}admin: {{public_url: \"{public_url}\"}}\npolicies: {{database: \"sqlite:///p.db\", copy: /p.json}}\n\
             routes: [{{name: all, match: {{host: {hosts}}}, echo: true}}]\n"
        );
        check(&text)
            .unwrap()
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let expected = "routes.yaml:2:21: admin.public_url: the route \"all\" takes requests for gate.example, too: browsers send the \
        cookies of the console's sessions along with them\n  hint: give the console a host name of its own: cookies ignore ports";
    assert_eq!(
        warned("https://gate.example:9901", "gate.example"),
        [expected]
    );
    assert_eq!(
        warned("https://Gate.example", "[a.example, \"*.example\"]"),
        [expected]
    );
    assert_eq!(
        warned("https://console.gate.example", "gate.example").len(),
        0
    );
}

#[test]
fn warns_of_a_console_behind_a_proxy_that_is_not_named() {
    let warned = |admin: &str, more: &str| {
        let policies = "policies: {database: \"sqlite:///p.db\", copy: /p.json}";
        let text = format!(
            "{LISTENERS}admin: {{address: \"{admin}\", public_url: \"https://gate.example\"}}\n{policies}\n{more}{ROUTES}"
        );
        check(&text)
            .unwrap()
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let expected = "routes.yaml:2:46: admin.public_url: what a proxy on another machine brings is refused: it could be anybody in \
        the clear\n  hint: name the proxy in front: trusted_proxies: [10.0.0.7]";
    assert_eq!(warned("0.0.0.0:9901", ""), [expected]);
    assert_eq!(
        warned("0.0.0.0:9901", "trusted_proxies: [10.0.0.7]\n").len(),
        0
    );
    assert_eq!(warned("127.0.0.1:9901", "").len(), 0);
}

#[test]
fn warns_of_fewer_shared_connections_than_workers() {
    let upstream = |name: &str, more: &str| format!("  {name}: {{{more}}}\n");
    let upstreams = [
        upstream("few", "endpoints: [\"h2c://a\"], bounds: {connections: 2}"),
        upstream(
            "enough",
            "endpoints: [\"h2c://a\"], bounds: {connections: 3}",
        ),
        upstream(
            "secured",
            "endpoints: [\"http://a\", \"https://a\"], bounds: {connections: 1}",
        ),
        upstream(
            "old",
            "endpoints: [\"https://a\"], http2: never, bounds: {connections: 1}",
        ),
        upstream(
            "clear",
            "endpoints: [\"http://a\"], bounds: {connections: 1}",
        ),
    ];
    let names = ["few", "enough", "secured", "old", "clear"];
    let routes: String = names
        .map(|name| format!("  - {{name: {name}, match: {{path: /{name}}}, upstream: {name}}}\n"))
        .concat();
    let text = format!(
        "workers: 3\n{LISTENERS}upstreams:\n{}routes:\n{routes}",
        upstreams.concat()
    );
    let warnings: Vec<_> = check(&text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    let waiting = "fewer connections than workers (3): over HTTP/2, long requests of some keep the others waiting\n  \
                   hint: give at least one for each worker";
    assert_eq!(
        warnings,
        [
            format!("routes.yaml:4:55: upstreams.few.bounds.connections: {waiting}"),
            format!("routes.yaml:6:73: upstreams.secured.bounds.connections: {waiting}"),
        ]
    );
}

#[test]
fn warns_of_what_nothing_uses() {
    let text = format!(
        "{LISTENERS}limits:\n  spare: {{key: client_ip, rate: 1/s}}\nupstreams:\n  old: {{endpoints: [\"http://a\"]}}\n{ROUTES}"
    );
    let warnings: Vec<_> = check(&text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "routes.yaml:3:3: limits.spare: nothing uses the limit \"spare\"\n  hint: remove it, or refer to it from a route",
            "routes.yaml:5:3: upstreams.old: nothing uses the upstream \"old\"\n  hint: remove it, or refer to it from a route",
        ]
    );
}

#[test]
fn refuses_an_expression_of_64_kilobytes() {
    let path = "a".repeat(65_536);
    let text = format!(
        "{LISTENERS}routes: [{{name: all, echo: true, match: {{path: {{regex: \"{path}\"}}}}}}]\n"
    );
    assert_eq!(
        check(&text).unwrap_err().to_string(),
        "routes.yaml:2:56: routes[0].match.path.regex: an expression of 65536 bytes is over the bound, 4096\n  \
         hint: divide it among several routes\n1 mistake in routes.yaml"
    );
}

#[test]
fn warns_of_paths_that_are_surely_not_meant_and_of_routes_that_no_request_reaches() {
    let text = format!(
        "{LISTENERS}routes:
  - {{name: a, echo: true, match: {{path: [/u/:id, '/w/:', '/x/{{id}}'], methods: [GET]}}}}
  - {{name: b, echo: true, match: {{path: {{regex: users$}}}}}}
  - {{name: c, echo: true, match: {{path: {{regex: ^/.*$}}}}}}
  - {{name: d, echo: true, match: {{path: [/d/*, {{regex: ^/d/}}]}}}}
  - {{name: e, echo: true, match: {{path: [/e/*, /f]}}}}
  - {{name: f, echo: true, match: {{path: /f/*, host: a}}}}
  - {{name: g, echo: true, match: {{path: {{regex: ^/g}}, host: a, methods: [GET, PUT]}}}}
  - {{name: h, echo: true, match: {{path: {{regex: ^/g}}, host: a, methods: [GET], headers: {{x-a: b}}}}}}
  - {{name: i, echo: true, match: {{path: {{regex: ^/g}}, host: a}}}}
"
    );
    let warnings: Vec<_> = check(&text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    let narrower = "hint: make the expression narrower, or remove this route";
    assert_eq!(
        warnings,
        [
            "routes.yaml:3:42: routes[0].match.path[0]: \":id\" is taken as it is written, and no parameter\n  \
             hint: for any segment, write \"/u/{id}\""
                .to_owned(),
            "routes.yaml:4:41: routes[1].match.path: \"users$\" may begin anywhere in a path\n  \
             hint: begin it with ^ for whole paths"
                .to_owned(),
            format!(
                "routes.yaml:6:5: routes[3]: no request reaches route \"d\": \"^/.*$\" of route \"c\" (line 5) takes them all\n  {narrower}"
            ),
            format!(
                "routes.yaml:10:5: routes[7]: no request reaches route \"h\": \"^/g\" of route \"g\" (line 9) takes them all\n  {narrower}"
            ),
        ]
    );
}

#[test]
fn warns_of_endpoints_that_are_surely_not_chosen_as_they_are_meant_to_be() {
    let text = format!(
        "{LISTENERS}upstreams:
  one: {{endpoints: [\"http://a\"], balance: {{cookie: {{name: stay, secret: 0123456789abcdef}}}}}}
  two: {{endpoints: [\"http://b\"], balance: {{cookie: {{name: stay, secret: 0123456789abcdef}}}}}}
  three: {{endpoints: [\"http://c\"], balance: {{hash: [identity, client_ip]}}}}
  four: {{endpoints: [\"http://d\"], balance: {{hash: identity}}}}
routes:
  - {{name: a, match: {{path: /a/*}}, upstream: one}}
  - {{name: b, match: {{path: /b/*}}, upstream: two}}
  - {{name: c, match: {{path: /c/*}}, upstream: three}}
  - {{name: d, match: {{path: /d/*}}, upstream: [{{to: one, weight: 90%}}, {{to: four, weight: 10%}}]}}
"
    );
    let warnings: Vec<_> = check(&text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "routes.yaml:4:59: upstreams.two.balance.cookie.name: upstream \"one\" has a cookie called \"stay\" too, on line 3: \
             clients of both stay with neither\n  hint: give the cookie of each upstream a name of its own",
            "routes.yaml:5:3: upstreams.three: the endpoint goes by identity.id, and route \"c\" authenticates nobody: its \
             requests go to any\n  hint: add \"authenticate\" to the route, or balance by another part",
            "routes.yaml:6:3: upstreams.four: the endpoint goes by identity.id, and route \"d\" authenticates nobody: its \
             requests go to any\n  hint: add \"authenticate\" to the route, or balance by another part",
        ]
    );
}

#[test]
fn warns_of_a_limit_that_counts_all_clients_of_a_listener_together_and_of_fields_that_no_two_requests_share()
 {
    let text = "listeners: [{address: \"127.0.0.1:8080\", authenticate: [known]}, {address: \"127.0.0.1:8081\"}]
upstreams: {auth: {endpoints: [\"http://a\"]}}
authenticators: {known: {forward: {upstream: auth, cache: {max_age: 1m}, copy_headers: [set-cookie]}}}
limits:
  each: {key: identity, rate: 1/s}
  some: {key: identity, rate: 1/s, on_missing: skip}
routes:
  - {name: shared, echo: true, limits: [each, some]}
  - {name: asked, match: {path: /a}, echo: true, authenticate: [known], limits: [each]}
  - {name: planned, match: {path: /b}, echo: true, maintenance: {until: 2020-01-01T00:00:00Z}}
  - {name: copied, match: {path: /c}, upstream: auth, mirror: {to: auth}}
";
    let warnings: Vec<_> = check(text)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "routes.yaml:3:59: authenticators.known.forward.cache: an answer is kept for requests with the same fields, whichever \
             they are\n  hint: list those that the service goes by in \"request_headers\", such as [authorization, cookie]",
            "routes.yaml:3:89: authenticators.known.forward.copy_headers[0]: \"set-cookie\" goes on to the upstream, and to no \
             client\n  hint: leave it out: a service sets cookies where it answers clients itself, on a route of its own",
            "routes.yaml:8:41: routes[0].limits[0]: limit \"each\" counts by identity.id, and listeners[1] authenticates nobody: \
             all of its requests share a bucket\n  hint: add \"authenticate\" to the listener or to the route, or \"on_missing\": \
             skip or refuse to the limit",
            "routes.yaml:10:73: routes[2].maintenance.until: this time has passed\n  hint: clients are told retry_after: say \
             when it will be over",
            "routes.yaml:11:63: routes[3].mirror: \"auth\" gets copies of its own requests\n  hint: mirror to another upstream: \
             this one would do everything twice",
        ]
    );
}

#[test]
fn warns_of_keys_that_a_client_has_many_of() {
    for (field, right) in [
        ("host", "write host,"),
        ("X-Forwarded-For", "write client_ip,"),
        ("x-real-ip", "write client_ip,"),
    ] {
        let told = warnings(&format!(
            "{LISTENERS}limits: {{each: {{key: {{header: {field}}}, rate: 1/s}}}}\n\
             routes: [{{name: all, echo: true, limits: [each]}}]\n"
        ));
        assert!(told[0].contains(right) && told.len() == 1, "{told:?}");
    }
}

#[test]
fn a_mistake_in_a_variable_shows_its_name_and_not_its_value() {
    let secret = |name: &str| (name == "SECRET").then(|| "hunter2-hunter2".to_owned());
    for text in [
        "limits: {a: {key: client_ip, rate: \"${SECRET}\"}}",
        "limits: {a: {key: client_ip, rate: \"1/${SECRET}\"}}",
        "upstreams: {u: {endpoints: [\"${SECRET}\"]}}",
        "workers: ${SECRET}",
        "drain_timeout: 5${SECRET}",
        "trusted_proxies: [\"${SECRET}\"]",
    ] {
        let said = parse(
            "routes.yaml",
            &format!("{LISTENERS}{ROUTES}{text}\n"),
            &secret,
        )
        .unwrap_err()
        .to_string();
        assert!(
            said.contains("${SECRET}") && !said.contains("hunter2"),
            "{said}"
        );
    }
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = check(text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    loaded.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn warns_of_routes_that_a_listener_serves_without_certificates() {
    let warned = |routes: &str, names: [&str; 2]| {
        let [public, internal] = names;
        let tls = "tls: {certificates: [{cert: /a, key: /b}], client_ca: /ca}";
        warnings(&format!(
            "listeners: [{{{public}address: \"127.0.0.1:80\"}}, {{{internal}address: \"127.0.0.1:443\", {tls}}}]\n\
             limits: {{each: {{key: {{client_certificate: subject}}, rate: 1/s}}}}\n\
             authenticators: {{machines: {{client_certificate: san}}, sso: {{forward: {{upstream: up, path: /}}}}}}\n\
             upstreams: {{up: {{endpoints: [\"http://a\"]}}}}\nroutes: [{routes}]\n"
        ))
    };
    let about = |warnings: &[String]| -> Vec<String> {
        let problems = warnings.iter().filter_map(|warning| {
            let (_, rest) = warning.split_once(": ")?;
            Some(rest.lines().next()?.to_owned())
        });
        problems
            .filter(|text| !text.contains("nothing uses"))
            .collect()
    };
    let unnamed = ["", ""];
    let named = ["name: public, ", "name: internal, "];
    let open = "listeners[0]: route \"all\" is served here to whoever comes, and listeners[1] asks clients for certificates";
    assert_eq!(about(&warned("{name: all, upstream: up}", unnamed)), [open]);
    for told in [
        "{name: all, listeners: [internal], upstream: up, authenticate: [machines], limits: [each]}",
        "{name: all, listeners: [public, internal], upstream: up}",
        "{name: all, authenticate: [machines, sso], upstream: up}",
    ] {
        assert!(about(&warned(told, named)).is_empty(), "{told}");
    }
    let uses = [
        (
            "authenticate: [machines]",
            "routes[0].authenticate[0]: authenticator \"machines\"",
        ),
        ("limits: [each]", "routes[0].limits[0]: limit \"each\""),
        (
            "request_headers: {set: {x-a: \"{client_certificate.subject}\"}}",
            "routes[0].request_headers.set.x-a: this text",
        ),
    ];
    for (key, part) in uses {
        let route = format!("{{name: all, listeners: [public, internal], upstream: up, {key}}}");
        let expected = format!(
            "{part} goes by the client's certificate, and listeners[0] serves the route and asks for none"
        );
        assert_eq!(about(&warned(&route, named)), [expected]);
    }
}

#[test]
fn warns_of_kept_paths_that_may_be_those_of_a_route_that_asks_more() {
    let warned = |path: &str, more: &str| {
        let text = format!(
            "{LISTENERS}upstreams: {{up: {{endpoints: [\"http://a\"]}}}}\n\
             routes: [{{name: kept, match: {{path: {path}}}, ambiguous_paths: keep, upstream: up{more}}},\n\
             {{name: admin, match: {{path: /admin/*}}, allow: [10.0.0.0/8], upstream: up}}]\n"
        );
        warnings(&text)
    };
    let expected = "routes.yaml:3:10: routes[0]: an upstream that decodes the path may take a request of route \"kept\" for one of \
        route \"admin\", which asks more of its clients\n  hint: keep ambiguous_paths for a narrower path, such as /projects/*, or ask \
        the same of its clients";
    assert_eq!(warned("/*", ""), [expected]);
    assert_eq!(warned("\"/{name}\"", ""), [expected]);
    assert!(warned("/projects/*", "").is_empty());
    assert!(warned("/*", ", allow: [10.0.0.0/8]").is_empty());
    let refused = format!(
        "{LISTENERS}upstreams: {{up: {{endpoints: [\"http://a\"]}}}}\nroutes: [{{name: a, match: {{path: /a%2Fb}}, upstream: up}}]\n"
    );
    let told = warnings(&refused);
    assert!(
        told[0].contains("\"/a%2Fb\" is refused where another route"),
        "{told:?}"
    );
}
