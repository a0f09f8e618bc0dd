//! Pages in place of errors, as clients that ask for several types of content get them.

use serde_json::Value;

use crate::process::{Gateway, curl, status};
use tollgate_testing::nginx::NginxServer;

fn start(upstream: &str, folder: &tempfile::TempDir) -> Gateway {
    std::fs::write(
        folder.path().join("sorry.html"),
        "<style>p {color: red}</style><p>{status} {reason} {request_id}</p>",
    )
    .unwrap();
    let file = folder.path().join("sorry.html");
    Gateway::start(&format!(
        "
workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{one: {{key: client_ip, rate: 1/h, burst: 1}}}}
trusted_proxies: [127.0.0.1]
upstreams:
  up: {{endpoints: ['{upstream}']}}
  gone: {{endpoints: ['http://127.0.0.1:9']}}
error_pages:
  - {{status: [404], type: text/html, body: 'nothing here', fallback: true}}
routes:
  - name: gone
    match: {{path: /gone}}
    upstream: gone
    error_pages:
      - {{status: [5xx], type: text/html; charset=utf-8, file: {file}}}
      - {{status: [5xx], type: application/json, body: '{{\"code\": {{status}}, \"id\": \"{{request_id}}\"}}'}}
  - name: limited
    match: {{path: /limited}}
    echo: true
    limits: [one]
    error_pages: [{{status: [429], type: text/html, body: 'come back in {{retry_after}} s', fallback: true}}]
  - name: replaced
    match: {{path: /all/*}}
    upstream: up
    strip_prefix: /all
    error_pages: [{{status: [4xx, 500], type: text/html, body: '{{retry_after}}ours', fallback: true, of: all}}]
  - name: kept
    match: {{path: /kept/*}}
    upstream: up
    strip_prefix: /kept
    error_pages: [{{status: [4xx, 500], type: text/html, body: ours, fallback: true}}]
",
        file = file.display()
    ))
}

const UPSTREAM: &str = "location /secret { add_header WWW-Authenticate 'Basic realm=\"a\"' always; add_header ETag '\"x\"' always; add_header Content-Disposition attachment always; return 401 'theirs'; }
location / { return 500 'theirs'; }
location /soon { add_header Retry-After 7 always; return 500 'theirs'; }
location /later { add_header Retry-After 'Wed, 21 Oct 2037 07:28:00 GMT' always; return 500 'theirs'; }
location /fine { return 200 'fine'; }";

fn asked(gateway: &Gateway, path: &str, accept: &str) -> String {
    let accept = format!("accept: {accept}");
    curl(&["-i", "-H", &accept, &gateway.url(path)])
}

#[test]
fn a_client_gets_the_page_of_the_type_that_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start("http://127.0.0.1:9", &folder);
    let browser = asked(
        &gateway,
        "/gone",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    );
    assert!(
        browser.starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
        "{browser}"
    );
    assert!(
        browser.contains("content-type: text/html; charset=utf-8\r\n"),
        "{browser}"
    );
    let id = browser
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "))
        .unwrap();
    assert!(
        browser.ends_with(&format!(
            "<style>p {{color: red}}</style><p>502 Bad Gateway {id}</p>"
        )),
        "{browser}"
    );

    assert!(
        browser.to_lowercase().contains("vary: accept\r\n"),
        "{browser}"
    );

    let script = asked(&gateway, "/gone", "text/*;q=0.3, application/json");
    let body: Value = serde_json::from_str(script.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["code"], 502, "{script}");
    assert!(
        asked(&gateway, "/gone", "text/*").contains("<p>502 Bad Gateway"),
        "a kind of content stands for its types"
    );
    // No page is for clients that name no type, and none is an image.
    for accept in ["*/*", "image/png", "text/html;q=0"] {
        let bare = asked(&gateway, "/gone", accept);
        assert!(bare.to_lowercase().contains("vary: accept\r\n"), "{bare}");
        assert!(
            bare.contains("application/problem+json") && bare.contains("connect-failed"),
            "{bare}"
        );
    }
    let over_http2 = curl(&[
        "--http2-prior-knowledge",
        "-H",
        "accept: text/html",
        &gateway.url("/gone"),
    ]);
    assert!(over_http2.contains("<p>502 Bad Gateway"), "{over_http2}");
    let head = curl(&["-I", "-H", "accept: text/html", &gateway.url("/gone")]);
    assert!(
        head.contains("text/html") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    // The metrics say what happened, as without a page.
    assert_eq!(
        gateway.metric("tollgate_requests_total{route=\"gone\",method=\"HEAD\",status=\"502\"}"),
        1.0
    );
}

#[test]
fn requests_without_a_route_get_the_pages_of_the_gateway_and_calls_get_none() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start("http://127.0.0.1:9", &folder);
    let missing = asked(&gateway, "/nowhere", "*/*");
    assert!(
        missing.starts_with("HTTP/1.1 404") && missing.ends_with("nothing here"),
        "{missing}"
    );
    assert!(
        missing.contains("content-length: 12\r\n") && missing.contains("x-request-id: "),
        "{missing}"
    );
    let fields = [
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "-X",
        "POST",
    ];
    let call = curl(
        &[
            &["--http2-prior-knowledge", "-i"][..],
            &fields,
            &[&gateway.url("/nowhere")],
        ]
        .concat(),
    );
    assert!(
        call.contains("grpc-status: 12") && !call.contains("nothing here"),
        "{call}"
    );
}

#[test]
fn a_denial_keeps_its_fields_beside_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start("http://127.0.0.1:9", &folder);
    assert_eq!(status(&[&gateway.url("/limited")]), 200);
    let denied = asked(&gateway, "/limited", "*/*");
    assert!(
        denied.starts_with("HTTP/1.1 429") && denied.contains("ratelimit: \"one\";r=0"),
        "{denied}"
    );
    let seconds = denied
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .unwrap();
    assert!(
        denied.ends_with(&format!("come back in {seconds} s")),
        "{denied}"
    );
}

#[test]
fn errors_of_the_upstream_are_replaced_where_the_route_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = NginxServer::start("", UPSTREAM);
    let gateway = start(&format!("http://{}", upstream.address), &folder);
    let replaced = asked(&gateway, "/all/secret", "*/*");
    assert!(
        replaced.starts_with("HTTP/1.1 401") && replaced.ends_with("ours"),
        "{replaced}"
    );
    assert!(
        replaced.contains("Basic realm=") && !replaced.to_lowercase().contains("etag"),
        "{replaced}"
    );
    assert!(
        !replaced.to_lowercase().contains("disposition"),
        "{replaced}"
    );
    assert!(asked(&gateway, "/all/other", "*/*").ends_with("\r\n\r\nours"));
    assert!(asked(&gateway, "/all/soon", "*/*").ends_with("\r\n\r\n7ours"));
    let later = asked(&gateway, "/all/later", "*/*");
    assert!(
        later.contains("2037") && later.ends_with("\r\n\r\nours"),
        "a date is no number of seconds: {later}"
    );
    assert!(asked(&gateway, "/kept/other", "*/*").ends_with("theirs"));
    assert!(asked(&gateway, "/all/fine", "text/html").ends_with("fine"));
}

#[test]
fn a_page_shows_no_markup_in_the_id_that_a_trusted_proxy_sends() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start("http://127.0.0.1:9", &folder);
    let page = |accept: &str, id: &str| {
        let fields = [format!("accept: {accept}"), format!("x-request-id: {id}")];
        curl(&[
            "-i",
            "-H",
            &fields[0],
            "-H",
            &fields[1],
            &gateway.url("/gone"),
        ])
    };
    assert!(
        page("text/html", "Root=1-ab:c.d_e/f+g@h")
            .contains("<p>502 Bad Gateway Root=1-ab:c.d_e/f+g@h</p>")
    );
    for evil in ["<script>alert(1)</script>", "\"><b>", "a\",\"b\":\"c"] {
        for accept in ["text/html", "application/json"] {
            let shown = page(accept, evil);
            assert!(
                shown.starts_with("HTTP/1.1 502 ") && !shown.contains(evil),
                "{shown}"
            );
        }
    }
}

#[test]
fn a_page_in_place_of_a_chunked_answer_announces_no_trailers() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = "HTTP/1.1 500 Oh\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n";
            std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
            // Until the gateway has read it.
            std::io::Read::read_to_end(&mut stream, &mut Vec::new()).ok();
        }
    });
    let gateway = start(&format!("http://{address}"), &folder);
    let page = curl(&["-i", "-H", "te: trailers", &gateway.url("/all/x")]).to_ascii_lowercase();
    assert!(
        page.ends_with("ours") && !page.contains("trailer") && !page.contains("x-sum"),
        "{page}"
    );
    let kept = curl(&["-i", "-H", "te: trailers", &gateway.url("/kept/x")]).to_ascii_lowercase();
    assert!(kept.contains("trailer: x-sum\r\n"), "{kept}");
}
