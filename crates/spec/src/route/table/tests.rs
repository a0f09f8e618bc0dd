use bytes::Bytes;
use http::StatusCode;

use super::*;
use crate::route::expression::PathExpression;
use crate::route::networks::NetworkRules;
use crate::route::{Action, FixedResponse};

fn pattern(text: &str) -> PathMatch {
    if text.starts_with('^') {
        return PathMatch::Expression(PathExpression::compile(text).unwrap());
    }
    let (text, rest) = text
        .strip_suffix("/*")
        .map_or((text, false), |prefix| (prefix, true));
    let segments = path::segments(text)
        .map(|segment| {
            match segment
                .strip_prefix('{')
                .and_then(|name| name.strip_suffix('}'))
            {
                Some(name) => Segment::Param(name.into()),
                None => Segment::Literal(segment.into()),
            }
        })
        .collect();
    PathMatch::Pattern(PathPattern { segments, rest })
}

fn route(
    host: HostMatch,
    path: &str,
    methods: &[Method],
    headers: &[(&'static str, &'static str)],
) -> Arc<Route> {
    let headers = headers
        .iter()
        .map(|(name, value)| HeaderMatch {
            name: http::HeaderName::from_static(name),
            value: Some(HeaderValue::from_static(value)),
        })
        .collect();
    Arc::new(Route {
        name: path.into(),
        counted_as: path.into(),
        matches: Match {
            hosts: vec![host],
            paths: path.split(' ').map(pattern).collect(),
            methods: methods.to_vec(),
            headers,
        },
        listeners: vec![],
        takes_ambiguous_paths: false,
        action: Action::Respond(FixedResponse {
            status: StatusCode::OK,
            headers: vec![],
            body: Bytes::new(),
        }),
        limits: vec![],
        is_logged: true,
        networks: NetworkRules::default(),
        authenticate: None,
        cors: None,
        request_fields: Arc::default(),
        response_fields: Arc::default(),
        compression: None,
        error_pages: None,
        maintenance: None,
        max_body: None,
        answer_time: Default::default(),
        retry: None,
        upstream_time: Default::default(),
    })
}

fn find(table: &RouteTable, host: &str, path: &str) -> RouteLookup {
    table.find(host, path, &Method::GET, &HeaderMap::new())
}

/// Each costs as much as its path is long, and clients choose that.
#[test]
fn an_expression_is_tried_once_whatever_the_number_of_hosts() {
    let mut known = NumberSet::default();
    for number in [0, 63, 64, 200, 5] {
        assert!(!known.contains(number) && known.add(number), "{number}");
        assert!(known.contains(number) && !known.add(number), "{number}");
    }
    let nested: Vec<String> = (1..40).map(|depth| ".a".repeat(depth)).collect();
    let hosts: Vec<HostMatch> = nested
        .iter()
        .map(|host| HostMatch::Suffix(host.as_str().into()))
        .collect();
    let with_hosts = |route: Arc<Route>| {
        let mut route = Arc::unwrap_or_clone(route);
        route.matches.hosts.clone_from(&hosts);
        Arc::new(route)
    };
    let never = with_hosts(route(HostMatch::Any, "^/x$", &[], &[]));
    let posted = with_hosts(route(HostMatch::Any, "^/p", &[Method::POST], &[]));
    let table = RouteTable::build(&[never, posted, route(HostMatch::Any, "^/p/q$", &[], &[])]);
    let host = format!("h{}", ".a".repeat(39));
    let considered = table.consider(&host, "/p/q", &Method::GET, &HeaderMap::new());
    let considered: Vec<_> = considered.iter().map(|one| (one.index, one.fits)).collect();
    assert_eq!(considered, [(1, Fits::Method), (2, Fits::Yes)]);
    assert_eq!(find(&table, &host, "/p/q"), RouteLookup::Route(2));
    assert_eq!(
        find(&table, &host, "/p"),
        RouteLookup::MethodNotAllowed(HeaderValue::from_static("POST"))
    );
    assert_eq!(find(&table, &host, "/x"), RouteLookup::Route(0));
}

/// Parts of a route have its expression, and there may be many of them.
#[test]
fn an_expression_is_tried_once_whatever_the_number_of_routes() {
    let mut tried = TriedExpressions::default();
    for (number, takes) in [(0, true), (1, false), (64, true), (128, false)] {
        assert_eq!(tried.takes(number, || takes), takes, "{number}");
        assert_eq!(
            tried.takes(number, || panic!("tested again")),
            takes,
            "{number}"
        );
    }
    let any = || HostMatch::Any;
    let routes = [
        route(any(), "^/v[0-9]+/", &[], &[("x-a", "1")]),
        route(any(), "^/v1/", &[Method::PUT], &[]),
        route(
            HostMatch::Exact("h".into()),
            "^/v[0-9]+/",
            &[Method::POST],
            &[],
        ),
        route(any(), "^/v[0-9]+/", &[Method::POST, Method::DELETE], &[]),
        route(any(), "^/v2/", &[], &[]),
        route(any(), "^/v[0-9]+/", &[Method::GET], &[]),
    ];
    let table = RouteTable::build(&routes);
    let shared = &table.any.expressions[0].expression.expression;
    let is_shared = |one: &ExpressionRoute| Arc::ptr_eq(&one.expression.expression, shared);
    let all: Vec<bool> = table.any.expressions.iter().map(is_shared).collect();
    assert_eq!(all, [true, false, true, false, true]);
    assert!(is_shared(&table.exact["h"].expressions[0]));
    // The order of the file holds among routes with one expression and others.
    assert_eq!(find(&table, "h", "/v1/a"), RouteLookup::Route(5));
    assert_eq!(find(&table, "h", "/v2/a"), RouteLookup::Route(4));
    assert_eq!(
        table.find("h", "/v2/a", &Method::POST, &HeaderMap::new()),
        RouteLookup::Route(2)
    );
    assert_eq!(
        table.find("", "/v2/a", &Method::POST, &HeaderMap::new()),
        RouteLookup::Route(3)
    );
    assert_eq!(
        table.find("h", "/v1/a", &Method::TRACE, &HeaderMap::new()),
        RouteLookup::MethodNotAllowed(HeaderValue::from_static("DELETE, GET, POST, PUT"))
    );
    assert_eq!(find(&table, "h", "/w"), RouteLookup::Nothing);
}

/// Each of its dots would be looked up.
#[test]
fn a_host_that_is_no_name_is_below_none() {
    let suffix = HostMatch::Suffix(".example.com".into());
    let long = format!("{}.example.com", "a".repeat(300));
    let hosts = [suffix, HostMatch::Exact(long.as_str().into())];
    let routes: Vec<_> = hosts
        .into_iter()
        .map(|host| route(host, "/*", &[], &[]))
        .collect();
    let table = RouteTable::build(&routes);
    for (host, found) in [
        ("a.example.com", RouteLookup::Route(0)),
        ("a.b.example.com", RouteLookup::Route(0)),
        (
            &*format!("{}.example.com", "a".repeat(241)),
            RouteLookup::Route(0),
        ),
        (
            &*format!("{}.example.com", "a".repeat(242)),
            RouteLookup::Nothing,
        ),
        (&*long, RouteLookup::Route(1)),
        ("a..example.com", RouteLookup::Nothing),
        (".example.com", RouteLookup::Nothing),
    ] {
        assert_eq!(find(&table, host, "/"), found, "{host}");
        let takes = |at: usize| routes[at].matches.takes_host(host);
        assert_eq!(
            takes(0) || takes(1),
            found != RouteLookup::Nothing,
            "{host}"
        );
    }
}

#[test]
fn prefers_literals_to_parameters_to_prefixes_segment_by_segment() {
    let any = || HostMatch::Any;
    let paths = [
        "/*",
        "/users/*",
        "/users/{id}",
        "/users/me",
        "/users/me/*",
        "/{tenant}/x/*",
        "/",
    ];
    let routes: Vec<_> = paths
        .iter()
        .map(|path| route(any(), path, &[], &[]))
        .collect();
    let table = RouteTable::build(&routes);
    for (path, index) in [
        ("/", 6),
        ("/other", 0),
        ("/users", 1),
        ("/users/", 1),
        ("/users/7", 2),
        ("/users/me", 3),
        ("/users/me/mail", 4),
        ("/users/7/mail", 1),
        ("/acme/x", 5),
        ("/acme/x/y", 5),
        ("/acme/y", 0),
    ] {
        assert_eq!(find(&table, "h", path), RouteLookup::Route(index), "{path}");
    }
}

#[test]
fn prefers_the_exact_host_to_longer_and_shorter_suffixes_to_any() {
    let hosts = [
        HostMatch::Any,
        HostMatch::Suffix(".example.com".into()),
        HostMatch::Suffix(".api.example.com".into()),
        HostMatch::Exact("a.api.example.com".into()),
    ];
    let routes: Vec<_> = hosts
        .into_iter()
        .map(|host| route(host, "/*", &[], &[]))
        .collect();
    let table = RouteTable::build(&routes);
    for (host, index) in [
        ("a.api.example.com", 3),
        ("b.api.example.com", 2),
        ("api.example.com", 1),
        ("example.com", 0),
        ("x.org", 0),
        ("", 0),
    ] {
        assert_eq!(find(&table, host, "/"), RouteLookup::Route(index), "{host}");
    }
}

#[test]
fn the_first_considered_route_that_fits_is_found() {
    let any = || HostMatch::Any;
    let exact = || HostMatch::Exact("h".into());
    let routes = [
        route(any(), "/*", &[], &[]),
        route(exact(), "/a/*", &[Method::POST], &[]),
        route(any(), "/a/{x}", &[], &[("x-canary", "1")]),
        route(any(), "/a/b", &[Method::GET, Method::PUT], &[]),
        route(exact(), "/a/{x}", &[Method::GET], &[("x-canary", "1")]),
        route(exact(), "/c", &[], &[]),
        route(any(), "^/a", &[Method::PUT], &[]),
        route(any(), "^/[ad]", &[], &[]),
        route(any(), "^/a/b$ /d", &[], &[("x-canary", "1")]),
    ];
    let table = RouteTable::build(&routes);
    let mut canary = HeaderMap::new();
    canary.insert("x-canary", HeaderValue::from_static("1"));
    for host in ["h", "other", ""] {
        for path in ["/", "/a", "/a/b", "/a/c", "/a/b/c", "/c", "/d"] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                for headers in [&HeaderMap::new(), &canary] {
                    let considered = table.consider(host, path, &method, headers);
                    let first = considered.iter().find(|one| one.fits == Fits::Yes);
                    let first = first.map(|one| RouteLookup::Route(one.index));
                    assert_eq!(
                        first,
                        Some(table.find(host, path, &method, headers)),
                        "{method} {host}{path}"
                    );
                }
            }
        }
    }
    let all = table.consider("h", "/a/b", &Method::GET, &HeaderMap::new());
    let judged: Vec<_> = all.iter().map(|one| (one.index, one.fits)).collect();
    let (yes, method, header) = (Fits::Yes, Fits::Method, Fits::Header);
    assert_eq!(
        judged,
        [
            (4, header),
            (1, method),
            (3, yes),
            (6, method),
            (7, yes),
            (8, header),
            (2, header),
            (0, yes)
        ]
    );
}

#[test]
fn a_route_gives_way_when_a_method_or_a_header_does_not_fit() {
    let any = || HostMatch::Any;
    let routes = [
        route(any(), "/a", &[Method::POST], &[]),
        route(any(), "/a", &[], &[("x-canary", "1")]),
        route(any(), "/{x}", &[Method::GET], &[]),
    ];
    let table = RouteTable::build(&routes);
    let mut canary = HeaderMap::new();
    canary.insert("x-canary", HeaderValue::from_static("1"));
    assert_eq!(
        table.find("", "/a", &Method::POST, &canary),
        RouteLookup::Route(1)
    );
    assert_eq!(
        table.find("", "/a", &Method::POST, &HeaderMap::new()),
        RouteLookup::Route(0)
    );
    assert_eq!(
        table.find("", "/a", &Method::GET, &HeaderMap::new()),
        RouteLookup::Route(2)
    );
    assert_eq!(
        table.find("", "/a", &Method::DELETE, &HeaderMap::new()),
        RouteLookup::MethodNotAllowed(HeaderValue::from_static("GET, POST"))
    );
    assert_eq!(
        table.find("", "/a/b", &Method::GET, &HeaderMap::new()),
        RouteLookup::Nothing
    );
}

#[test]
fn an_expression_goes_behind_a_whole_path_and_before_a_prefix_in_the_order_of_the_file() {
    let any = || HostMatch::Any;
    let routes = [
        route(any(), "/v1/*", &[], &[]),
        route(any(), "^/v[0-9]+/users/(?<id>[^/]+)$", &[], &[]),
        route(any(), "/v1/users/me", &[], &[]),
        route(any(), "^/v[0-9]+/", &[], &[]),
        route(any(), "/{x}/users/{y}/mail", &[Method::POST], &[]),
        route(HostMatch::Exact("h".into()), "/v1/*", &[], &[]),
    ];
    let table = RouteTable::build(&routes);
    for (host, path, index) in [
        ("", "/v1/users/7", 1),
        ("", "/v1/users/me", 2),
        ("", "/v1/other", 3),
        ("", "/v1", 0),
        ("", "/v1/users/7/mail", 3),
        ("h", "/v1/users/7", 5),
    ] {
        assert_eq!(
            find(&table, host, path),
            RouteLookup::Route(index),
            "{host}{path}"
        );
    }
    assert_eq!(
        find(&table, "", "/x/users/7/mail"),
        RouteLookup::MethodNotAllowed(HeaderValue::from_static("POST"))
    );
    assert_eq!(routes[1].matches.param("id", "/v1/users/7"), Some("7"));
}

#[test]
fn a_route_with_several_hosts_and_paths_takes_each_of_them() {
    let mut both = (*route(
        HostMatch::Exact("a".into()),
        "/users/{id} /people/all/{id} ^/u/(?<id>.+)$",
        &[],
        &[],
    ))
    .clone();
    both.matches.hosts.push(HostMatch::Suffix(".b".into()));
    let table = RouteTable::build(&[Arc::new(both.clone())]);
    for (host, path, id) in [
        ("a", "/users/7", Some("7")),
        ("x.b", "/people/all/8", Some("8")),
        ("a", "/u/9/9", Some("9/9")),
        ("b", "/users/7", None),
        ("a", "/people/8", None),
    ] {
        let found = find(&table, host, path) == RouteLookup::Route(0);
        assert_eq!(
            found.then(|| both.matches.param("id", path)).flatten(),
            id,
            "{host}{path}"
        );
    }
    assert!(both.matches.has_param("id") && !both.matches.has_param("all"));
}

#[test]
fn a_listener_finds_the_routes_that_it_serves_and_its_own_first() {
    let open = route(HostMatch::Any, "/a/*", &[], &[]);
    let mut own = Route::clone(&open);
    own.listeners = vec!["internal".into()];
    let mut other = Route::clone(&route(HostMatch::Any, "/b", &[], &[]));
    other.listeners = vec!["public".into(), "other".into()];
    let routes = [open, Arc::new(own), Arc::new(other)];
    let listeners = [None, Some("internal".into()), Some("public".into())];
    let tables = super::listeners::ListenerTables::build(&routes, &listeners);
    let found = |listener, path| find(tables.table(listener), "", path);
    assert_eq!(found(0, "/a/x"), RouteLookup::Route(0));
    assert_eq!(found(1, "/a/x"), RouteLookup::Route(1));
    assert_eq!(found(2, "/a/x"), RouteLookup::Route(0));
    assert_eq!(found(0, "/b"), RouteLookup::Nothing);
    assert_eq!(found(1, "/b"), RouteLookup::Nothing);
    assert_eq!(found(2, "/b"), RouteLookup::Route(2));
    assert!(tables.table(2).has(2) && !tables.table(1).has(2));
}
