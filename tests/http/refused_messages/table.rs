//! The table of refused messages: each in the form of both versions where both can write it, with
//! the rule that it breaks and what becomes of it.

use tollgate_testing::raw_http2::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, block,
};

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered with this status.
    Status(u16),
    /// Its stream is reset with this code.
    Stream(u32),
    /// Its connection ends with this code.
    Connection(u32),
    /// It is taken: this version can read it in one way only.
    Taken,
}

/// The bytes of a message, and what becomes of it. `None`: the version cannot write it.
pub type Sent = Option<(Vec<u8>, Outcome)>;

/// A row of the table.
pub struct RefusedMessage {
    pub group: &'static str,
    pub what: &'static str,
    pub rule: &'static str,
    pub http_1: Sent,
    pub http_2: Sent,
}

/// A request in neutral form: the fields of HTTP/2 are its pseudo-fields and fields, the section of
/// HTTP/1 its lines.
#[derive(Clone, Copy)]
struct Neutral<'a> {
    method: &'a str,
    target: &'a str,
    hosts: &'a [&'a str],
    fields: &'a [(&'a str, &'a str)],
}

const GET: Neutral<'static> = Neutral {
    method: "GET",
    target: "/",
    hosts: &["a"],
    fields: &[],
};
const POST: Neutral<'static> = Neutral {
    method: "POST",
    ..GET
};

const BAD: Outcome = Outcome::Status(400);
const TOO_LARGE: Outcome = Outcome::Status(431);
const TOO_LONG: Outcome = Outcome::Status(414);
const UNKNOWN: Outcome = Outcome::Status(501);
const RESET: Outcome = Outcome::Stream(1);
const CLOSED: Outcome = Outcome::Connection(1);

impl Neutral<'_> {
    fn to_http_1(self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        let hosts = self.hosts.iter().map(|host| ("Host", *host));
        for (name, value) in hosts.chain(self.fields.iter().copied()) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        (text + "\r\n").into_bytes()
    }

    /// A single host is the authority, several are `host` fields.
    fn to_http_2(self) -> Vec<u8> {
        let mut fields = vec![
            (":method", self.method),
            (":scheme", "http"),
            (":path", self.target),
        ];
        match self.hosts {
            [host] => fields.push((":authority", host)),
            hosts => fields.extend(hosts.iter().map(|host| ("host", *host))),
        }
        fields.extend(self.fields);
        head_frame(&fields)
    }
}

/// A section that ends its stream, in frames that are no longer than they may be.
fn head_frame(fields: &[(&str, &str)]) -> Vec<u8> {
    let block = block(fields);
    let (first, rest) = block.split_at(block.len().min(16_384));
    if rest.is_empty() {
        return raw_http2::frame(HEADERS, END_HEADERS | END_STREAM, 1, first);
    }
    let head = raw_http2::frame(HEADERS, END_STREAM, 1, first);
    [head, raw_http2::frame(CONTINUATION, END_HEADERS, 1, rest)].concat()
}

/// The rows of a group, as they are added.
struct Group {
    name: &'static str,
    rows: Vec<RefusedMessage>,
}

impl Group {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            rows: Vec::new(),
        }
    }

    fn push(&mut self, what: &'static str, rule: &'static str, http_1: Sent, http_2: Sent) {
        self.rows.push(RefusedMessage {
            group: self.name,
            what,
            rule,
            http_1,
            http_2,
        });
    }

    /// A message that both versions can write.
    fn both(
        &mut self,
        what: &'static str,
        rule: &'static str,
        message: Neutral<'_>,
        outcomes: [Outcome; 2],
    ) {
        let [http_1, http_2] = outcomes;
        self.push(
            what,
            rule,
            Some((message.to_http_1(), http_1)),
            Some((message.to_http_2(), http_2)),
        );
    }

    fn http_1(&mut self, what: &'static str, rule: &'static str, bytes: &str, outcome: Outcome) {
        self.push(what, rule, Some((bytes.as_bytes().to_vec(), outcome)), None);
    }

    fn http_2(
        &mut self,
        what: &'static str,
        rule: &'static str,
        fields: &[(&str, &str)],
        outcome: Outcome,
    ) {
        self.push(what, rule, None, Some((head_frame(fields), outcome)));
    }
}

/// The whole table.
pub fn refused_messages() -> Vec<RefusedMessage> {
    let groups = [
        methods(),
        targets(),
        paths(),
        hosts(),
        fields(),
        lengths(),
        lines(),
        chunks(),
        pseudo_fields(),
    ];
    groups.into_iter().flat_map(|group| group.rows).collect()
}

fn methods() -> Group {
    let mut group = Group::new("Methods");
    let long = "M".repeat(5000);
    group.both(
        "a method that is no token",
        "RFC 9110 §9.1",
        Neutral {
            method: "G(T",
            ..GET
        },
        [BAD, CLOSED],
    );
    group.both(
        "a method of 5 000 bytes",
        "RFC 9110 §15.6.2",
        Neutral {
            method: &long,
            ..GET
        },
        [UNKNOWN; 2],
    );
    let connect = [(":method", "CONNECT"), (":authority", "a:1")];
    let bytes = b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_vec();
    group.push(
        "CONNECT",
        "RFC 9110 §9.3.6",
        Some((bytes, UNKNOWN)),
        Some((head_frame(&connect), UNKNOWN)),
    );
    group
}

fn targets() -> Group {
    let mut group = Group::new("Targets");
    let long = format!("/{}", "x".repeat(9 * 1024));
    let mut add = |what, rule, target: &str, outcomes| {
        group.both(what, rule, Neutral { target, ..GET }, outcomes)
    };
    add("a space", "RFC 9112 §3.2", "/a b", [BAD, RESET]);
    add("a quotation mark", "RFC 3986 §2", "/a\"b", [BAD; 2]);
    add("an angle bracket", "RFC 3986 §2", "/a<b", [BAD, RESET]);
    add("a backtick in a path", "RFC 3986 §3.3", "/`", [BAD, RESET]);
    add(
        "a character beyond ASCII",
        "RFC 3986 §2",
        "/\u{e9}",
        [BAD; 2],
    );
    add("a control character", "RFC 3986 §2", "/\u{1}", [BAD, RESET]);
    add("a NUL", "RFC 3986 §2", "/\0", [BAD, RESET]);
    add(
        "a fragment: the library of HTTP/2 cuts it off",
        "RFC 9110 §7.1",
        "/a#b",
        [BAD, Outcome::Taken],
    );
    add(
        "a path without a slash",
        "RFC 9112 §3.2.1",
        "a",
        [BAD, RESET],
    );
    add("a query without a path", "RFC 9113 §8.3.1", "?a", [BAD; 2]);
    add("`*` for a GET", "RFC 9112 §3.2.4", "*", [BAD; 2]);
    add(
        "a target over half of `max_header_size`",
        "RFC 9110 §15.5.15",
        &long,
        [TOO_LONG; 2],
    );
    let mut add = |what, rule, target| {
        group.http_1(
            what,
            rule,
            &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"),
            BAD,
        );
    };
    add(
        "an absolute target with another scheme",
        "RFC 9110 §7.1",
        "ftp://a/",
    );
    add(
        "an absolute target without a host",
        "RFC 9110 §4.2.1",
        "http:///a",
    );
    add(
        "an absolute target with user information",
        "RFC 9110 §4.2.4",
        "http://u@a/",
    );
    add(
        "an absolute target with a port over 65535",
        "RFC 3986 §3.2.3",
        "http://a:65536/",
    );
    add(
        "an absolute target with a fragment",
        "RFC 9110 §7.1",
        "http://a#b",
    );
    group
}

/// The group of paths that the codec takes: routing refuses them.
pub const PATHS: &str = "Paths that servers read differently";

fn paths() -> Group {
    let mut group = Group::new(PATHS);
    for (what, target) in [
        ("a dot segment behind an encoded slash", "/a/..%2fb"),
        (
            "an encoded dot segment behind an encoded slash",
            "/a/%2e%2e%2Fb",
        ),
        ("a dot segment behind an encoded backslash", "/a/..%5cb"),
        ("a dot segment behind a backslash", "/a/..\\b"),
        ("a dot segment with a parameter", "/a/..;x/b"),
        ("a dot segment with an encoded semicolon", "/a/..%3bx/b"),
        ("a single dot behind an encoded slash", "/a/.%2fb"),
    ] {
        group.both(
            what,
            "RFC 3986 §6.2.2.3",
            Neutral { target, ..GET },
            [BAD; 2],
        );
    }
    group.both(
        "a percent sign that begins no escape",
        "RFC 3986 §2.1",
        Neutral {
            target: "/a%/b",
            ..GET
        },
        [BAD; 2],
    );
    group.both(
        "an encoded NUL",
        "RFC 3986 §7.3",
        Neutral {
            target: "/a%00b",
            ..GET
        },
        [BAD; 2],
    );
    group
}

fn hosts() -> Group {
    const RULE: &str = "RFC 9112 §3.2, RFC 9113 §8.3.1";
    let mut group = Group::new("Hosts");
    let mut add = |what, rule, hosts: &[&str], outcomes| {
        group.both(what, rule, Neutral { hosts, ..GET }, outcomes)
    };
    add("no host", RULE, &[], [BAD; 2]);
    add("two `Host` fields", RULE, &["a", "a"], [BAD; 2]);
    add("an empty host", "RFC 9110 §4.2.1", &[""], [BAD, RESET]);
    add(
        "a host with a path",
        "RFC 9110 §7.2",
        &["a/b"],
        [BAD, RESET],
    );
    add(
        "a host with a query",
        "RFC 9110 §7.2",
        &["a?b"],
        [BAD, RESET],
    );
    add(
        "a host with a space",
        "RFC 9110 §7.2",
        &["a b"],
        [BAD, RESET],
    );
    add("a list of hosts", "RFC 9110 §7.2", &["a,b@c"], [BAD; 2]);
    add(
        "two hosts in one field",
        "RFC 9112 §3.2",
        &["a,b"],
        [BAD; 2],
    );
    add(
        "a host that ends in two dots",
        "RFC 9112 §3.2",
        &["a.."],
        [BAD; 2],
    );
    add("a host of one dot", "RFC 9112 §3.2", &["."], [BAD; 2]);
    add("user information", "RFC 9110 §4.2.4", &["u@a"], [BAD; 2]);
    add(
        "a port that is no number",
        "RFC 3986 §3.2.3",
        &["a:b"],
        [BAD; 2],
    );
    add(
        "a port over 65535",
        "RFC 3986 §3.2.3",
        &["a:65536"],
        [BAD; 2],
    );
    add(
        "an IPv6 address without brackets",
        "RFC 3986 §3.2.2",
        &["::1"],
        [BAD, RESET],
    );
    add(
        "brackets around no IPv6 address",
        "RFC 3986 §3.2.2",
        &["[g]"],
        [BAD; 2],
    );
    let absolute = b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".to_vec();
    let differs = raw_http2::request("GET", "/", &[("host", "b")]);
    group.push(
        "a `Host` that differs from the target's authority: HTTP/1 says that the target counts",
        "RFC 9112 §3.2.2, RFC 9113 §8.3.1",
        Some((absolute, Outcome::Taken)),
        Some((head_frame(&differs), BAD)),
    );
    group.http_1(
        "two hosts in HTTP/1.0",
        "RFC 9112 §3.2",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        BAD,
    );
    group
}

fn fields() -> Group {
    let mut group = Group::new("Fields");
    let (many, long) = (vec![("x", "y"); 101], "y".repeat(17 * 1024));
    let mut add = |what, rule, fields: &[(&str, &str)], outcomes| {
        group.both(what, rule, Neutral { fields, ..GET }, outcomes);
    };
    add(
        "a NUL in a value",
        "RFC 9110 §5.5",
        &[("x", "a\0b")],
        [BAD, CLOSED],
    );
    add(
        "a CR in a value",
        "RFC 9110 §5.5",
        &[("x", "a\rb")],
        [BAD, CLOSED],
    );
    add(
        "an LF in a value",
        "RFC 9110 §5.5",
        &[("x", "a\nb")],
        [BAD, CLOSED],
    );
    add(
        "a control character in a value",
        "RFC 9110 §5.5",
        &[("x", "a\u{8}b")],
        [BAD, CLOSED],
    );
    add(
        "a DEL in a value",
        "RFC 9110 §5.5",
        &[("x", "a\u{7f}b")],
        [BAD, CLOSED],
    );
    add(
        "white space around a value",
        "RFC 9113 §8.2.1",
        &[("x", " a")],
        [Outcome::Taken, BAD],
    );
    add(
        "a name that is no token",
        "RFC 9110 §5.1",
        &[("x(y)", "b")],
        [BAD, CLOSED],
    );
    add(
        "a name with a quotation mark",
        "RFC 9110 §5.1",
        &[("x\"y", "b")],
        [BAD, BAD],
    );
    add(
        "a name with a space",
        "RFC 9110 §5.1",
        &[("x y", "b")],
        [BAD, CLOSED],
    );
    add(
        "a name beyond ASCII",
        "RFC 9110 §5.1",
        &[("x\u{e9}", "b")],
        [BAD, CLOSED],
    );
    add(
        "an empty name",
        "RFC 9110 §5.1",
        &[("", "b")],
        [BAD, CLOSED],
    );
    add(
        "a name in capitals",
        "RFC 9113 §8.2.1",
        &[("X", "b")],
        [Outcome::Taken, CLOSED],
    );
    add(
        "more fields than `max_headers`",
        "RFC 6585 §5",
        &many,
        [TOO_LARGE; 2],
    );
    add(
        "a section over `max_header_size`",
        "RFC 6585 §5",
        &[("x", &long)],
        [TOO_LARGE; 2],
    );
    const HOP: &str = "RFC 9113 §8.2.2";
    for (what, field) in [
        ("`Connection`", ("connection", "close")),
        ("`Keep-Alive`", ("keep-alive", "5")),
        ("`Proxy-Connection`", ("proxy-connection", "x")),
        ("`Upgrade`", ("upgrade", "websocket")),
        ("`TE` other than `trailers`", ("te", "gzip")),
    ] {
        add(what, HOP, &[field], [Outcome::Taken, RESET]);
    }
    add(
        "`Transfer-Encoding`",
        HOP,
        &[("transfer-encoding", "identity")],
        [BAD, RESET],
    );
    group
}

fn lengths() -> Group {
    const ONE: &str = "RFC 9110 §8.6";
    let mut group = Group::new("Lengths and codings");
    let mut add = |what, rule, fields: &[(&str, &str)], outcomes| {
        group.both(what, rule, Neutral { fields, ..POST }, outcomes);
    };
    add(
        "two lengths",
        ONE,
        &[("content-length", "0"), ("content-length", "6")],
        [BAD, RESET],
    );
    add(
        "the same length twice",
        ONE,
        &[("content-length", "0"), ("content-length", "0")],
        [BAD; 2],
    );
    add(
        "a list of lengths",
        ONE,
        &[("content-length", "0, 0")],
        [BAD, RESET],
    );
    add(
        "a signed length",
        ONE,
        &[("content-length", "+0")],
        [BAD, RESET],
    );
    add(
        "a negative length",
        ONE,
        &[("content-length", "-5")],
        [BAD, RESET],
    );
    add(
        "a hexadecimal length",
        ONE,
        &[("content-length", "0x0")],
        [BAD, RESET],
    );
    add(
        "a length with a space",
        ONE,
        &[("content-length", "1 1")],
        [BAD, RESET],
    );
    add("an empty length", ONE, &[("content-length", "")], [BAD; 2]);
    add(
        "a length beyond 64 bits",
        ONE,
        &[("content-length", "18446744073709551622")],
        [BAD, RESET],
    );
    group.http_2(
        "content of another length than announced",
        "RFC 9113 §8.1.1",
        &raw_http2::request("POST", "/", &[("content-length", "5")]),
        RESET,
    );
    const CODING: &str = "RFC 9112 §6.1";
    const AMBIGUOUS: &str = "RFC 9112 §6.3";
    for (what, rule, fields, outcome) in [
        (
            "a length and chunks",
            AMBIGUOUS,
            "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
            BAD,
        ),
        (
            "chunks and a length",
            AMBIGUOUS,
            "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
            BAD,
        ),
        (
            "an unknown coding and a length",
            AMBIGUOUS,
            "Transfer-Encoding: xchunked\r\nContent-Length: 6\r\n",
            BAD,
        ),
        (
            "two codings, the last unknown",
            CODING,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            BAD,
        ),
        (
            "two codings, the first unknown",
            CODING,
            "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n",
            BAD,
        ),
        (
            "the same coding twice",
            CODING,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            BAD,
        ),
        (
            "chunked twice in a list",
            CODING,
            "Transfer-Encoding: chunked, chunked\r\n",
            BAD,
        ),
        (
            "chunked before another coding",
            CODING,
            "Transfer-Encoding: chunked, gzip\r\n",
            BAD,
        ),
        (
            "a coding before chunked",
            CODING,
            "Transfer-Encoding: gzip, chunked\r\n",
            UNKNOWN,
        ),
        (
            "identity before chunked",
            CODING,
            "Transfer-Encoding: identity, chunked\r\n",
            UNKNOWN,
        ),
        (
            "a vertical tab before the coding",
            CODING,
            "Transfer-Encoding: \x0bchunked\r\n",
            BAD,
        ),
        (
            "a form feed before the coding",
            CODING,
            "Transfer-Encoding: \x0cchunked\r\n",
            BAD,
        ),
        (
            "a quoted coding",
            CODING,
            "Transfer-Encoding: \"chunked\"\r\n",
            BAD,
        ),
        (
            "a coding with a parameter",
            CODING,
            "Transfer-Encoding: chunked;q=1\r\n",
            BAD,
        ),
        ("an empty coding", CODING, "Transfer-Encoding:\r\n", BAD),
    ] {
        group.http_1(
            what,
            rule,
            &format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
            outcome,
        );
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    group.http_1("chunked in HTTP/1.0", CODING, old, BAD);
    group
}

fn lines() -> Group {
    const LINE: &str = "RFC 9112 §2.2";
    const REQUEST_LINE: &str = "RFC 9112 §3";
    const FIELD: &str = "RFC 9112 §5.1";
    const FOLD: &str = "RFC 9112 §5.2";
    let mut group = Group::new("Lines");
    for (what, rule, bytes, status) in [
        (
            "a bare LF after the request line",
            LINE,
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            400,
        ),
        (
            "a bare LF after a field",
            LINE,
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            400,
        ),
        (
            "a bare LF at the end",
            LINE,
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            400,
        ),
        (
            "a bare LF before a coding",
            LINE,
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "a bare CR before a coding",
            LINE,
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "a bare CR in the target",
            LINE,
            "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
        ("CR CR LF", LINE, "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400),
        (
            "five empty lines before a request",
            LINE,
            "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
        ("no version", REQUEST_LINE, "GET /\r\nHost: a\r\n\r\n", 400),
        (
            "two spaces",
            REQUEST_LINE,
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
        (
            "a space at the end",
            REQUEST_LINE,
            "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            400,
        ),
        (
            "a tab for a space",
            REQUEST_LINE,
            "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
        (
            "a version in small letters",
            "RFC 9112 §2.3",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
        (
            "HTTP/1.2",
            "RFC 9112 §2.3",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            505,
        ),
        (
            "HTTP/2.0",
            "RFC 9112 §2.3",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            505,
        ),
        (
            "TLS where none is spoken",
            REQUEST_LINE,
            "\x16\x03\x01\x02\0\x01\0\x01\n",
            400,
        ),
        (
            "a space before the colon",
            FIELD,
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            400,
        ),
        (
            "a tab before the colon",
            FIELD,
            "GET / HTTP/1.1\r\nHost: a\r\nX\t: a\r\n\r\n",
            400,
        ),
        (
            "a field without a colon",
            FIELD,
            "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
            400,
        ),
        (
            "a folded line",
            FOLD,
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            400,
        ),
        (
            "a folded first field",
            FOLD,
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            400,
        ),
        (
            "a folded coding",
            FOLD,
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
            400,
        ),
        (
            "a folded length",
            FOLD,
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n 5\r\n\r\n",
            400,
        ),
    ] {
        group.http_1(what, rule, bytes, Outcome::Status(status));
    }
    group
}

/// Chunked bodies that break the grammar. Each starts with a good chunk.
pub const CHUNKS: &[(&str, &str)] = &[
    ("a size that is no number", "x\r\nhi\r\n0\r\n\r\n"),
    ("an empty size", "\r\nhi\r\n0\r\n\r\n"),
    ("a prefix of a size", "0x2\r\nhi\r\n0\r\n\r\n"),
    ("a signed size", "+2\r\nhi\r\n0\r\n\r\n"),
    (
        "a size that overflows",
        "10000000000000002\r\nhi\r\n0\r\n\r\n",
    ),
    ("a space before the size", " 2\r\nhi\r\n0\r\n\r\n"),
    ("a space behind the size", "2 \r\nhi\r\n0\r\n\r\n"),
    ("a bare LF behind the size", "2\nhi\r\n0\r\n\r\n"),
    ("a bare CR behind the size", "2\rhi\r\n0\r\n\r\n"),
    ("a bare LF in an extension", "2;a\nhi\r\n0\r\n\r\n"),
    ("a bare CR in an extension", "2;a\rb\r\nhi\r\n0\r\n\r\n"),
    ("a NUL in an extension", "2;a\0\r\nhi\r\n0\r\n\r\n"),
    ("data longer than its size", "2\r\nhiX\r\n0\r\n\r\n"),
    ("a bare LF behind the data", "2\r\nhi\n0\r\n\r\n"),
    ("a bare LF at the end of the body", "2\r\nhi\r\n0\r\n\n"),
    ("a bare LF behind the last size", "0\n\r\n"),
    ("a trailer without a colon", "0\r\nx\r\n\r\n"),
    (
        "a trailer with a space before its colon",
        "0\r\nx : y\r\n\r\n",
    ),
    ("a folded trailer", "0\r\nx: y\r\n z\r\n\r\n"),
    ("a trailer with a bare LF", "0\r\nx: y\nz: a\r\n\r\n"),
    ("a trailer with a NUL", "0\r\nx: \0\r\n\r\n"),
];

/// The group of messages whose head is fine.
pub const CHUNKED: &str = "Chunked bodies";

fn chunks() -> Group {
    let mut group = Group::new(CHUNKED);
    for (what, rest) in CHUNKS {
        let head =
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        let rule = if what.contains("trailer") {
            "RFC 9112 §7.1.2"
        } else {
            "RFC 9112 §7.1"
        };
        group.http_1(what, rule, &format!("{head}{rest}"), BAD);
    }
    let extensions = "1;x=yyyyyyyyyyyyyy\r\na\r\n".repeat(600);
    let message = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{extensions}0\r\n\r\n"
    );
    group.http_1("extensions over 8 KiB", "RFC 9112 §7.1.1", &message, BAD);
    let message = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
        "x: y\r\n".repeat(101)
    );
    group.http_1(
        "more trailers than `max_headers`",
        "RFC 6585 §5",
        &message,
        BAD,
    );
    group
}

fn pseudo_fields() -> Group {
    const ONCE: &str = "RFC 9113 §8.3";
    const MANDATORY: &str = "RFC 9113 §8.3.1";
    let [method, scheme, path, authority] = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let mut group = Group::new("Pseudo-fields and trailers of HTTP/2");
    group.http_2("no `:method`", MANDATORY, &[scheme, path, authority], RESET);
    group.http_2("no `:scheme`", MANDATORY, &[method, path, authority], RESET);
    let ftp = [method, (":scheme", "ftp"), path, authority];
    group.http_2(
        "a `:scheme` that is neither http nor https",
        MANDATORY,
        &ftp,
        BAD,
    );
    group.http_2("no `:path`", MANDATORY, &[method, scheme, authority], RESET);
    group.http_2(
        "neither `:path` nor `:authority`",
        MANDATORY,
        &[method, scheme, ("host", "a")],
        BAD,
    );
    group.http_2(
        "a fragment for a `:path`",
        MANDATORY,
        &[method, scheme, (":path", "#b"), authority],
        BAD,
    );
    group.http_2(
        "an empty `:path`",
        MANDATORY,
        &[method, scheme, (":path", ""), authority],
        RESET,
    );
    group.http_2(
        "a pseudo-field twice",
        ONCE,
        &[method, method, scheme, path, authority],
        RESET,
    );
    group.http_2(
        "an unknown pseudo-field",
        ONCE,
        &[method, scheme, path, authority, (":x", "y")],
        CLOSED,
    );
    group.http_2(
        "`:status` in a request",
        ONCE,
        &[method, scheme, path, authority, (":status", "200")],
        RESET,
    );
    group.http_2(
        "a pseudo-field behind a field",
        ONCE,
        &[method, scheme, path, ("x", "y"), authority],
        RESET,
    );
    let protocol = [method, scheme, path, authority, (":protocol", "websocket")];
    group.http_2(
        "`:protocol` without CONNECT",
        "RFC 8441 §4",
        &protocol,
        RESET,
    );
    for (what, rule, trailer, outcome) in [
        (
            "a pseudo-field in trailers",
            "RFC 9113 §8.1",
            (":path", "/"),
            RESET,
        ),
        (
            "a trailer with a NUL",
            "RFC 9113 §8.2.1",
            ("x", "\0"),
            CLOSED,
        ),
    ] {
        let head = block(&raw_http2::request("POST", "/", &[]));
        let frames = [
            raw_http2::frame(HEADERS, END_HEADERS, 1, &head),
            raw_http2::frame(DATA, 0, 1, b"hi"),
            raw_http2::frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[trailer])),
        ];
        group.push(what, rule, None, Some((frames.concat(), outcome)));
    }
    let trailers = block(&[("x", "y"); 101]);
    let frames = [
        raw_http2::frame(
            HEADERS,
            END_HEADERS,
            1,
            &block(&raw_http2::request("POST", "/", &[])),
        ),
        raw_http2::frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers),
    ];
    group.push(
        "more trailers than `max_headers`",
        "RFC 6585 §5",
        None,
        Some((frames.concat(), BAD)),
    );
    group
}
