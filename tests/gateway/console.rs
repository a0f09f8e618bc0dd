//! The console: pages that escape what clients send, forms that work without script and for no
//! other site.

use std::fmt::Write as _;

use serde_json::Value;
use tollgate_testing::redis::RedisServer;

use crate::process::{Gateway, curl, eventually, status};

const HOSTILE: &str = "<script>alert(1)</script>";

fn routes(store: &str, admin: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '{admin}'}}
{store}
limits:
  per-client: {{key: client_ip, rate: 1/h, burst: 3}}
  per-tenant: {{key: {{header: x-tenant}}, rate: 1/h, burst: 1}}
  per-token: {{key: [{{header: authorization}}, route], rate: 1/h, burst: 2}}
  busy: {{key: client_ip, algorithm: concurrency, max_in_flight: 7}}
  planned: {{key: client_ip, rate: 1/h, burst: 2, plans: {{by: {{header: x-plan}}, table: {{gold: {{rate: 9/h}}}}}}}}
upstreams: {{app: {{endpoints: ['http://127.0.0.1:9', 'http://127.0.0.1:10']}}}}
routes:
  - {{name: open, match: {{path: /open}}, respond: {{status: 200}}, limits: [busy]}}
  - {{name: client, match: {{path: /client}}, respond: {{status: 200}}, limits: [per-client]}}
  - {{name: tenant, match: {{path: /tenant}}, respond: {{status: 200}}, limits: [per-tenant]}}
  - {{name: token, match: {{path: /token}}, respond: {{status: 200}}, limits: [per-token]}}
  - {{name: app, match: {{path: /app}}, upstream: app}}
"
    )
}

fn start() -> Gateway {
    Gateway::start(&routes("", "127.0.0.1:0"))
}

fn page(gateway: &Gateway, path: &str) -> String {
    curl(&["-g", &console(gateway, path)])
}

fn console(gateway: &Gateway, path: &str) -> String {
    format!("http://{}/console{path}", gateway.admin)
}

fn data(gateway: &Gateway, view: &str) -> Value {
    serde_json::from_str(&page(gateway, &format!("/data?view={view}"))).unwrap()
}

/// The token of the first form of a page.
fn token(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"token\" value=\"")
        .unwrap_or_else(|| panic!("no token: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

/// The hidden fields of the last form that has a field with this value.
fn hidden_fields(page: &str, of: &str) -> Vec<(String, String)> {
    let form = page
        .split("<form")
        .filter(|form| form.contains(of))
        .last()
        .unwrap_or_else(|| panic!("{of}: {page}"));
    let inputs = form
        .split("</form>")
        .next()
        .unwrap()
        .split("<input type=\"hidden\"")
        .skip(1);
    let attribute = |input: &str, name: &str| {
        let (_, rest) = input.split_once(&format!("{name}=\"")).unwrap();
        unescape(rest.split('"').next().unwrap())
    };
    inputs
        .map(|input| (attribute(input, "name"), attribute(input, "value")))
        .collect()
}

fn unescape(text: &str) -> String {
    let pairs = [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Sends a form as a browser does that is on a page of the console. The whole answer, with its
/// head.
fn submit(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> String {
    send(
        gateway,
        path,
        fields,
        &[
            &format!("Origin: http://{}", gateway.admin),
            "Sec-Fetch-Site: same-origin",
        ],
    )
}

fn send(gateway: &Gateway, path: &str, fields: &[(&str, &str)], headers: &[&str]) -> String {
    let mut args: Vec<String> = ["-i", "-X", "POST"].map(str::to_owned).to_vec();
    headers
        .iter()
        .for_each(|header| args.extend(["-H".to_owned(), (*header).to_owned()]));
    if fields.is_empty() {
        args.extend([
            "-H".to_owned(),
            "Content-Type: application/x-www-form-urlencoded".to_owned(),
        ]);
    }
    for (name, value) in fields {
        args.extend(["--data-urlencode".to_owned(), format!("{name}={value}")]);
    }
    args.push(console(gateway, path));
    curl(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

fn spend(gateway: &Gateway, requests: usize) -> usize {
    (0..requests)
        .filter(|_| status(&[&gateway.url("/client")]) == 200)
        .count()
}

const BUCKET: &str = "/limits/per-client/bucket";
const KEY: &str = "per-client:127.0.0.1";

fn level(gateway: &Gateway) -> u64 {
    let bucket = curl(&[
        "-g",
        &format!("http://{}/buckets/per-client?key={KEY}", gateway.admin),
    ]);
    serde_json::from_str::<Value>(&bucket).unwrap()["remaining"]
        .as_u64()
        .unwrap()
}

/// Asks for a reset in two steps, and returns the answer to each.
fn reset(gateway: &Gateway) -> [String; 2] {
    let bucket = page(gateway, &format!("{BUCKET}?key={KEY}"));
    let mut fields = hidden_fields(&bucket, "value=\"reset\"");
    fields.extend(
        [("operator", "ada"), ("reason", "ticket 4711")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let pairs = |fields: &[(String, String)]| {
        fields
            .iter()
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect::<Vec<_>>()
    };
    let post = |fields: Vec<(String, String)>| {
        submit(
            gateway,
            BUCKET,
            &fields
                .iter()
                .map(|(a, b)| (a.as_str(), b.as_str()))
                .collect::<Vec<_>>(),
        )
    };
    let preview = post(pairs(&fields));
    if !preview.contains("value=\"apply\"") {
        return [preview, String::new()];
    }
    let applied = post(hidden_fields(&preview, "value=\"apply\""));
    [preview, applied]
}

const PAGES: [&str; 9] = [
    "",
    "/routes",
    "/routes/client",
    "/limits",
    "/limits/per-client",
    "/limits/per-client/bucket",
    "/explain",
    "/upstreams",
    "/nodes",
];

#[test]
fn every_page_answers_and_lets_browsers_run_nothing_but_its_own_script() {
    let gateway = start();
    for path in PAGES {
        let answer = curl(&["-i", &console(&gateway, path)]);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        for field in [
            "content-type: text/html; charset=utf-8",
            "x-content-type-options: nosniff",
            "referrer-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(field), "{path}: {field}: {head}");
        }
        let policy = head
            .lines()
            .find_map(|line| line.strip_prefix("content-security-policy: "))
            .unwrap();
        for rule in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{path}: {policy}"
        );
        let scripts = body.matches("<script").count();
        assert_eq!(
            scripts,
            body.matches("<script defer src=\"/console/assets/").count(),
            "{path}: an inline script"
        );
        assert!(
            !body.contains(" style=") && !body.contains(" onclick"),
            "{path}"
        );
        assert!(
            body.contains("<main")
                && body.contains("class=\"skip\"")
                && body.contains("lang=\"en\""),
            "{path}"
        );
    }
    let body = page(&gateway, "");
    for asset in body
        .split("/console/assets/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        let answer = curl(&["-i", &console(&gateway, &format!("/assets/{asset}"))]);
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("immutable"),
            "{asset}: {answer}"
        );
    }
    assert_eq!(status(&[&console(&gateway, "/assets/0/console.js")]), 404);
}

#[test]
fn what_clients_and_operators_send_is_escaped() {
    let gateway = start();
    let tenant = format!("x-tenant: {HOSTILE}");
    let asked = [(); 4].map(|()| status(&["-H", &tenant, &gateway.url("/tenant")]));
    assert_eq!(asked, [200, 429, 429, 429]);
    let escaped = "&#60;script&#62;alert(1)&#60;/script&#62;";
    let shown = page(&gateway, "/limits/per-tenant");
    assert!(
        shown.contains(&format!("per-tenant:{escaped}")) && !shown.contains(HOSTILE),
        "{shown}"
    );
    let part = data(&gateway, "limit&name=per-tenant")["parts"]["denied"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(part.contains(escaped) && !part.contains(HOSTILE), "{part}");
    assert!(part.contains("<td class=\"number\">3</td>"), "{part}");
    // The link leads to the bucket.
    let href = part
        .split("href=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let bucket = curl(&["-g", &format!("http://{}{}", gateway.admin, unescape(href))]);
    assert!(
        bucket.contains("0 of 1 tokens") && bucket.contains(escaped) && !bucket.contains(HOSTILE),
        "{bucket}"
    );

    let form = token(&shown);
    let explain = [
        ("token", form.as_str()),
        ("url", HOSTILE),
        ("method", "\"><b>"),
        ("headers", HOSTILE),
    ];
    let answer = submit(&gateway, "/explain", &explain);
    assert!(
        code(&answer) == "400" && answer.contains(escaped) && !answer.contains(HOSTILE),
        "{answer}"
    );
    for path in [
        "/limits?q=%3Cscript%3E",
        "/limits/%3Cscript%3E",
        "/routes/%3Cscript%3E",
    ] {
        let shown = page(&gateway, path);
        assert!(
            shown.contains("&#60;script&#62;") && !shown.contains("<script>"),
            "{path}: {shown}"
        );
    }
}

#[test]
fn a_bucket_is_looked_up_and_reset_by_forms_alone() {
    let gateway = start();
    assert_eq!(spend(&gateway, 5), 3);
    let form = token(&page(&gateway, "/limits/per-client"));
    let look = [
        ("token", form.as_str()),
        ("step", "look"),
        ("part.client_ip", "127.0.0.1"),
    ];
    let answer = submit(&gateway, BUCKET, &look);
    let place = "location: /console/limits/per%2Dclient/bucket?key=per%2Dclient%3A127%2E0%2E0%2E1";
    assert!(code(&answer) == "303" && answer.contains(place), "{answer}");
    let bucket = page(&gateway, &format!("{BUCKET}?key={KEY}"));
    assert!(
        bucket.contains("0 of 3 tokens") && bucket.contains("In logs"),
        "{bucket}"
    );

    let [preview, applied] = reset(&gateway);
    assert!(
        preview.contains("would have <strong>3 tokens</strong>")
            && preview.contains("Nothing has changed"),
        "{preview}"
    );
    assert!(
        applied.contains("The bucket was made full") && applied.contains("3 of 3 tokens"),
        "{applied}"
    );
    assert_eq!(level(&gateway), 3);
    eventually("it is logged with its operator", || {
        let log = gateway.log();
        (log.contains("an operator changed a bucket")
            && log.contains("ada")
            && log.contains("ticket 4711"))
        .then_some(())
    });
    assert_eq!(
        gateway.metric("tollgate_admin_changes_total{action=\"reset\"}"),
        1.0
    );
}

#[test]
fn a_grant_gives_tokens_once_however_often_its_form_is_sent() {
    let gateway = start();
    assert_eq!(spend(&gateway, 4), 3);
    let form = token(&page(&gateway, BUCKET));
    let fields = |token, step, tokens, reason| {
        let author = [("operator", "ada"), ("reason", reason)];
        let what = [
            ("token", token),
            ("step", step),
            ("action", "grant"),
            ("tokens", tokens),
            ("bucket.key", KEY),
        ];
        what.into_iter().chain(author).collect::<Vec<_>>()
    };
    let preview = submit(
        &gateway,
        BUCKET,
        &fields(&form, "preview", "1", "a mistake of ours"),
    );
    assert!(
        preview.contains("one token would be given back")
            && preview.contains("would have <strong>one token"),
        "{preview}"
    );
    assert_eq!(level(&gateway), 0);
    for (step, tokens, reason) in [
        ("apply", "0", "x"),
        ("apply", "-1", "x"),
        ("apply", "one", "x"),
        ("apply", "1", " "),
    ] {
        assert_eq!(
            code(&submit(
                &gateway,
                BUCKET,
                &fields(&form, step, tokens, reason)
            )),
            "400"
        );
    }
    assert_eq!(level(&gateway), 0);
    let form = token(&preview);
    let applied = submit(
        &gateway,
        BUCKET,
        &fields(&form, "apply", "1", "a mistake of ours"),
    );
    assert!(
        code(&applied) == "200"
            && applied.contains("one token were given back") | applied.contains("was given back"),
        "{applied}"
    );
    let again = submit(
        &gateway,
        BUCKET,
        &fields(&form, "apply", "1", "a mistake of ours"),
    );
    assert!(
        code(&again) == "400" && again.contains("has been sent before"),
        "{again}"
    );
    assert_eq!(level(&gateway), 1);
}

#[test]
fn a_bucket_is_changed_by_its_clients_plan() {
    let gateway = start();
    let form = token(&page(&gateway, "/limits/planned"));
    for (plan, holds, whole) in [("gold", "9 of 9 tokens", "9"), ("", "2 of 2 tokens", "2")] {
        let look = [
            ("token", form.as_str()),
            ("step", "look"),
            ("part.client_ip", "127.0.0.1"),
            ("part.header.x-plan", plan),
        ];
        let answer = submit(&gateway, "/limits/planned/bucket", &look);
        let place = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: /console"))
            .unwrap_or_else(|| panic!("{answer}"));
        let bucket = page(&gateway, place.trim());
        assert!(bucket.contains(holds), "{plan}: {bucket}");
        let mut fields = hidden_fields(&bucket, "value=\"grant\"");
        fields.extend(
            [("tokens", "1"), ("operator", "ada"), ("reason", "x")]
                .map(|(a, b)| (a.to_owned(), b.to_owned())),
        );
        let fields: Vec<_> = fields
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let preview = submit(&gateway, "/limits/planned/bucket", &fields);
        assert!(
            code(&preview) == "200"
                && preview.contains(&format!("would have <strong>{whole} tokens")),
            "{preview}"
        );
    }
}

#[test]
fn no_other_site_changes_or_reads_anything() {
    let gateway = start();
    assert_eq!(spend(&gateway, 3), 3);
    let form = token(&page(&gateway, BUCKET));
    let own = format!("Origin: http://{}", gateway.admin);
    let fields = |token| {
        let author = [("operator", "eve"), ("reason", "for fun")];
        [
            ("token", token),
            ("step", "apply"),
            ("action", "reset"),
            ("bucket.key", KEY),
        ]
        .into_iter()
        .chain(author)
        .collect::<Vec<_>>()
    };
    let site = "Sec-Fetch-Site: same-origin";
    let name = format!("Host: console.example:{}", gateway.admin.port());
    for headers in [
        vec![],
        vec!["Origin: http://evil.example"],
        vec!["Origin: null"],
        vec![own.as_str(), "Sec-Fetch-Site: cross-site"],
        vec![own.as_str(), "Sec-Fetch-Site: same-site"],
        vec!["Origin: http://console.example:9901", site, name.as_str()],
    ] {
        let answer = send(&gateway, BUCKET, &fields(&form), &headers);
        assert_eq!(code(&answer), "403", "{headers:?}: {answer}");
    }
    // A browser's own origin without a token of this process.
    let end = if form.ends_with('0') { "1" } else { "0" };
    let changed = form[..form.len() - 1].to_owned() + end;
    for token in ["", "0.0.0", &changed, &form[1..]] {
        let answer = send(&gateway, BUCKET, &fields(token), &[&own, site]);
        assert_eq!(code(&answer), "403", "{token}: {answer}");
    }
    let json = ["Content-Type: application/json", &own, site];
    assert_ne!(
        code(&send(&gateway, BUCKET, &fields(&form), &json)),
        "200",
        "no other kind of body"
    );
    assert_eq!(
        code(&send(
            &gateway,
            "/theme",
            &[("theme", "dark")],
            &[&own, site]
        )),
        "403"
    );
    assert_eq!(
        code(&send(
            &gateway,
            "/explain",
            &[("url", "http://a/")],
            &["Origin: http://evil.example"]
        )),
        "403"
    );
    assert_eq!(level(&gateway), 0, "nothing has changed");
    for path in PAGES.into_iter().chain(["/data?view=overview"]) {
        assert_eq!(
            status(&["-H", &name, &console(&gateway, path)]),
            403,
            "{path} by a name that rebinds"
        );
    }
    let json = |path: &str| format!("http://{}{path}", gateway.admin);
    for path in [
        "/",
        "/limits",
        "/nodes",
        "/openapi.json",
        "/explain?url=http://a/",
        "/buckets/per-client?client_ip=1.2.3.4",
    ] {
        assert_eq!(
            status(&["-H", &name, &json(path)]),
            403,
            "{path} by a name that rebinds"
        );
        // A page of the same origin may set any field.
        assert_eq!(
            status(&["-H", &name, "-H", "Authorization: x", &json(path)]),
            403,
            "{path} by a name that rebinds"
        );
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(
            status(&["-H", &name, &json(path)]),
            200,
            "probes may have any name for it"
        );
    }
    let done = send(&gateway, BUCKET, &fields(&form), &[&own, site]);
    assert!(
        code(&done) == "200" && level(&gateway) == 3,
        "the very same form of this console: {done}"
    );
}

#[test]
fn colours_are_chosen_by_a_form_and_kept_in_a_cookie() {
    let gateway = start();
    let form = token(&page(&gateway, "/limits"));
    let choose = |page| {
        submit(
            &gateway,
            "/theme",
            &[("token", &form), ("theme", "dark"), ("page", page)],
        )
        .to_lowercase()
    };
    let answer = choose("/console/limits?q=a");
    assert!(
        code(&answer) == "303" && answer.contains("location: /console/limits?q=a\r"),
        "{answer}"
    );
    assert!(
        answer.contains("samesite=strict") && answer.contains("httponly"),
        "{answer}"
    );
    assert!(choose("//evil.example").contains("location: /console\r"));
    let dark = curl(&["-b", "tollgate_theme=dark", &console(&gateway, "")]);
    assert!(
        dark.contains("data-theme=\"dark\"") && page(&gateway, "").contains("data-theme=\"auto\"")
    );
}

#[test]
fn what_is_not_there_is_said_with_a_way_out() {
    let gateway = start();
    for (path, says) in [
        ("/limits/per-clint", "did you mean &#34;per-client&#34;?"),
        (
            "/limits/per-clint/bucket",
            "did you mean &#34;per-client&#34;?",
        ),
        ("/routes/nothing", "there is no route"),
    ] {
        let answer = curl(&["-i", &console(&gateway, path)]);
        assert!(
            code(&answer) == "404" && answer.contains(says) && answer.contains("To the overview"),
            "{answer}"
        );
    }
    let answer = curl(&["-i", &console(&gateway, &format!("{BUCKET}?key=other:a"))]);
    assert!(
        code(&answer) == "400" && answer.contains("the key is not one of the limit"),
        "{answer}"
    );
    assert_eq!(status(&[&console(&gateway, "/data?view=nothing")]), 404);
    assert_eq!(status(&[&console(&gateway, "/nothing")]), 404);
    let busy = page(&gateway, "/limits/busy/bucket?key=busy:127.0.0.1");
    assert!(
        busy.contains("7 of 7")
            && busy.contains("nothing to give back")
            && !busy.contains("value=\"reset\""),
        "{busy}"
    );
}

#[test]
fn a_request_is_explained_as_the_command_explains_it() {
    let gateway = start();
    let form = token(&page(&gateway, "/explain"));
    let ask = |headers| {
        let fields = [
            ("token", form.as_str()),
            ("url", "api.example/token"),
            ("client_ip", "203.0.113.9"),
        ];
        submit(
            &gateway,
            "/explain",
            &fields
                .into_iter()
                .chain([("headers", headers)])
                .collect::<Vec<_>>(),
        )
    };
    let answer = ask("Authorization: Bearer sesame\nx-other: 1");
    for says in [
        "Answered 200, as the route says",
        "GET api.example/token from 203.0.113.9 through listener 0",
        "<strong>token</strong>, which takes /token",
        "per-token:#",
        "2 of 2 tokens; a request (cost 1) passes now",
        "refused with 429",
        "another path",
    ] {
        assert!(answer.contains(says), "{says}: {answer}");
    }
    assert!(
        !answer.contains("sesame"),
        "no value of a header field is shown again"
    );
    assert!(ask("no colon").contains("a line of the header fields has no colon"));
    assert_eq!(
        status(&["-H", "Authorization: Bearer sesame", &gateway.url("/token")]),
        200
    );
    assert!(ask("Authorization: Bearer sesame").contains("1 of 2 tokens"));
}

#[test]
fn a_denial_shows_within_seconds() {
    let gateway = start();
    assert_eq!(spend(&gateway, 8), 3);
    assert_eq!(status(&[&gateway.url("/open")]), 200);
    let total = |view: &str, part: &str, cells: &str| {
        eventually(&format!("{part} has {cells}"), || {
            let parts = data(&gateway, view)["parts"][part]
                .as_str()
                .unwrap()
                .replace('\n', "");
            parts.contains(cells).then_some(())
        });
    };
    total(
        "limit&name=per-client",
        "decisions",
        "<th scope=\"row\">Denied</th><td class=\"number\">0</td><td class=\"number\">0</td><td class=\"number\">0</td><td class=\"number\">5</td>",
    );
    total("overview", "limits", "per-client</a></th>");
    total("routes", "routes", "<td class=\"number wide\">8</td>");
    let overview = data(&gateway, "overview");
    let lines = overview["charts"]["requests"]["lines"].as_array().unwrap();
    let sum = |line: &Value| {
        line.as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_f64)
            .sum::<f64>()
    };
    assert!(
        sum(&lines[0]) > sum(&lines[1]) && sum(&lines[1]) > 0.0,
        "{lines:?}"
    );
    assert!(
        overview["charts"]["latency"]["lines"][0]
            .to_string()
            .contains('.'),
        "{overview}"
    );
    let denied = page(&gateway, "/limits/per-client");
    assert!(
        denied.contains(&format!("{KEY}</a></th><td class=\"number\">5</td>")),
        "{denied}"
    );
}

#[test]
fn the_store_and_the_fleet_are_shown_also_while_they_are_away() {
    let mut redis = RedisServer::start();
    let store = format!(
        "store: {{redis: 'redis://:secret@127.0.0.1:{}', timeout: 1s}}",
        redis.port()
    );
    let store = store.replace(":secret@", "");
    let gateway = Gateway::start(&routes(&store, "127.0.0.1:0"));
    eventually("the node is known", || {
        page(&gateway, "/nodes").contains("this one").then_some(())
    });
    assert!(
        page(&gateway, "").contains("Deciding") && page(&gateway, "/nodes").contains("heard of")
    );
    assert_eq!(spend(&gateway, 5), 3);
    let [_, applied] = reset(&gateway);
    assert!(
        applied.contains("The bucket was made full")
            && applied.contains("according to the shared store"),
        "{applied}"
    );

    redis.kill9();
    eventually("the store is away", || {
        status(&[&gateway.url("/client")]);
        page(&gateway, "").contains("Away").then_some(())
    });
    let bucket = page(&gateway, &format!("{BUCKET}?key={KEY}"));
    assert!(
        bucket.contains("the store is away") && bucket.contains("this node"),
        "{bucket}"
    );
    let [preview, _] = reset(&gateway);
    assert!(
        code(&preview) == "503" && preview.contains("the store is away"),
        "{preview}"
    );
    assert!(page(&gateway, "/nodes").contains("servers away"));
}

#[test]
fn a_refused_file_is_shown_with_its_mistakes() {
    let gateway = start();
    assert!(page(&gateway, "").contains("applied"));
    gateway.rewrite(
        &routes("", "127.0.0.1:0").replace("limits: [per-tenant]", "limits: [per-tenent]"),
    );
    let shown = eventually("the mistake is shown", || {
        let shown = page(&gateway, "");
        shown.contains("Refused").then_some(shown)
    });
    assert!(
        shown.contains("no limit is called &#34;per-tenent&#34;")
            && shown.contains("hint: did you mean"),
        "{shown}"
    );
    gateway.rewrite(&routes("", "127.0.0.1:0"));
    eventually("it is applied", || {
        (!page(&gateway, "").contains("Refused")).then_some(())
    });
}

#[test]
fn a_thousand_limits_are_found_page_by_page_and_take_bounded_room() {
    let mut file =
        "workers: 1\nlisteners: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nlimits:\n".to_owned();
    for number in 0..1_000 {
        writeln!(
            file,
            "  limit-{number}: {{key: client_ip, rate: 1000/h, burst: 1000}}"
        )
        .unwrap();
    }
    file += "routes:\n";
    for number in 0..1_000 {
        let match_ = format!("match: {{path: /r{number}}}");
        writeln!(file, "  - {{name: route-{number}, {match_}, respond: {{status: 200}}, limits: [limit-{number}]}}")
            .unwrap();
    }
    let gateway = Gateway::start(&file);
    let rows = |page: &str| page.matches("<tr><th scope=\"row\">").count();
    let first = page(&gateway, "/limits");
    assert!(
        rows(&first) == 50 && first.contains("Page 1 of 20") && first.contains("1000 in all"),
        "{first}"
    );
    let found = page(&gateway, "/limits?q=LIMIT-99");
    assert!(
        rows(&found) == 11 && found.contains("11 of 1000") && found.contains(">limit-999</a>"),
        "{found}"
    );
    assert!(page(&gateway, "/limits?page=20").contains(">limit-999</a>"));
    let overview = page(&gateway, "");
    assert!(overview.len() < 40_000, "{}", overview.len());
    assert_eq!(
        data(&gateway, "routes&q=route-99&page=1")["parts"]["routes"]
            .as_str()
            .unwrap()
            .matches("<tr><th scope=\"row\">")
            .count(),
        11
    );

    // Each of them has had a request, so each has a history.
    let before = gateway.memory();
    let all = format!("{}/r[0-999]", gateway.url(""));
    curl(&["-o", "/dev/null", &all.replace("//r[", "/r[")]);
    eventually("all are counted", || {
        page(&gateway, "/routes?q=route-999")
            .contains("<td class=\"number wide\">1</td>")
            .then_some(())
    });
    let grown = gateway.memory().saturating_sub(before);
    println!(
        "1 000 routes and 1 000 limits with their histories: {} kB",
        grown / 1_024
    );
    assert!(grown < 32 << 20, "{grown}");
}

#[test]
fn a_browser_at_the_root_of_the_port_is_led_to_the_console_and_a_program_gets_the_index() {
    let gateway = Gateway::start(&routes("", "127.0.0.1:0"));
    let root = format!("http://{}/", gateway.admin);
    let browser = curl(&["-i", "-H", "Accept: text/html,*/*;q=0.8", &root]);
    assert_eq!(code(&browser), "303", "{browser}");
    assert!(browser.contains("location: /console\r\n"), "{browser}");
    let program = curl(&["-i", &root]);
    assert_eq!(code(&program), "200");
    assert!(program.contains("tollgate admin"), "{program}");
}
