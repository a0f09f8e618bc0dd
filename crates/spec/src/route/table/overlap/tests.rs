use super::*;

fn pattern(text: &str) -> PathMatch {
    let (text, rest) = match text.strip_suffix("/*") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let mut segments = Vec::new();
    for segment in text.split('/').skip(1) {
        segments.push(match segment.strip_prefix('{') {
            Some(name) => Segment::Param(name.trim_end_matches('}').into()),
            None => Segment::Literal(segment.into()),
        });
    }
    PathMatch::Pattern(PathPattern { segments, rest })
}

fn expression(text: &str) -> PathMatch {
    PathMatch::Expression(PathExpression::compile(text).unwrap())
}

#[test]
fn a_path_is_within_another_when_that_takes_all_of_its_requests() {
    for (part, whole) in [
        ("/orders/checkout", "/orders/*"),
        ("/orders", "/orders/*"),
        ("/orders/*", "/orders/*"),
        ("/orders/{id}/*", "/orders/*"),
        ("/orders/7", "/orders/{id}"),
        ("/orders/{x}", "/orders/{id}"),
        ("/a", "/*"),
    ] {
        assert!(pattern(part).is_within(&pattern(whole)), "{part} {whole}");
    }
    for (part, whole) in [
        ("/carts", "/orders/*"),
        ("/*", "/orders/*"),
        ("/orders/*", "/orders"),
        ("/orders/*", "/orders/{id}"),
        ("/orders/{id}", "/orders/7"),
        ("/orders/7/items", "/orders/{id}"),
        ("/orders/", "/orders/{id}"),
        ("/{any}/checkout", "/orders/*"),
    ] {
        assert!(!pattern(part).is_within(&pattern(whole)), "{part} {whole}");
    }
    assert!(expression("^/a").is_within(&pattern("/*")));
    assert!(!expression("^/a").is_within(&pattern("/a/*")));
    assert!(pattern("/v1/a").is_within(&expression("^/v[0-9]+/")));
    assert!(!pattern("/v1/{a}").is_within(&expression("^/v[0-9]+/")));
    assert!(!pattern("/vx/a").is_within(&expression("^/v[0-9]+/")));
    assert!(expression("^/a").is_within(&expression("^/a")));
    assert!(expression("^/a").is_within(&expression(".*")));
    assert!(!expression("^/a").is_within(&expression("^/ab")));
}

#[test]
fn a_host_is_within_another_when_that_takes_all_of_its_requests() {
    let exact = HostMatch::Exact(Arc::from("a.b.c"));
    let below = HostMatch::Suffix(Arc::from(".b.c"));
    let deeper = HostMatch::Suffix(Arc::from(".a.b.c"));
    assert!(exact.is_within(&below) && deeper.is_within(&below));
    assert!(exact.is_within(&HostMatch::Any) && exact.is_within(&exact));
    let beside = HostMatch::Exact(Arc::from("ab.c"));
    assert!(!beside.is_within(&below) && !below.is_within(&deeper));
    assert!(!HostMatch::Any.is_within(&exact) && !below.is_within(&exact));
}

#[test]
fn the_start_of_an_expression_is_known_where_it_is_plain() {
    for (text, start) in [
        ("^/v1/a$", "/v1/a"),
        ("^/ab?c", "/a"),
        ("^/a(?<id>[0-9])", "/a"),
        ("^/a.b", "/a"),
        ("/a", ""),
        ("^/a|^/b", ""),
        ("^(?i)/a", ""),
        ("^/a(?i)b", ""),
    ] {
        let expression = PathExpression::compile(text).unwrap();
        assert_eq!(literal_start(&expression), start, "{text}");
    }
}

/// A host that `one` and `other` take. `None`: there is none.
fn common_host(one: &HostMatch, other: &HostMatch) -> Option<String> {
    let narrower = if one.is_within(other) { one } else { other };
    if !narrower.is_within(one) || !narrower.is_within(other) {
        return None;
    }
    Some(match narrower {
        HostMatch::Any => "elsewhere".to_owned(),
        HostMatch::Exact(host) => host.to_string(),
        HostMatch::Suffix(suffix) => format!("x{suffix}"),
    })
}

/// A path that two overlapping patterns take.
fn common_path(one: &PathPattern, other: &PathPattern) -> String {
    let longest = one.segments.len().max(other.segments.len());
    let mut path = String::new();
    for at in 0..longest {
        let segments = [one.segments.get(at), other.segments.get(at)];
        let literal = segments
            .into_iter()
            .flatten()
            .find_map(|segment| match segment {
                Segment::Literal(text) => Some(&**text),
                Segment::Param(_) => None,
            });
        path.push('/');
        path.push_str(literal.unwrap_or("anything"));
    }
    if path.is_empty() {
        "/".to_owned()
    } else {
        path
    }
}

/// The requests of a route, and the listeners that serve it.
#[derive(Debug)]
struct Listed {
    matches: Match,
    listeners: Vec<Arc<str>>,
}

impl Listed {
    fn places(&self, index: usize) -> impl Iterator<Item = RoutePlace<'_>> {
        places(&self.matches, &self.listeners, index)
    }
}

#[test]
fn the_order_of_two_routes_is_that_of_the_table() {
    let hosts = [
        HostMatch::Any,
        HostMatch::Suffix(Arc::from(".b.c")),
        HostMatch::Suffix(Arc::from(".a.b.c")),
        HostMatch::Exact(Arc::from("x.a.b.c")),
    ];
    let paths = [
        "/a/b", "/a/{x}", "/{x}/b", "/{x}/{y}", "/a/*", "/{x}/*", "/*", "/a",
    ];
    let mut places = Vec::new();
    for host in &hosts {
        for path in paths {
            for methods in [Vec::new(), vec![http::Method::GET]] {
                for listeners in [Vec::new(), vec!["internal".into()]] {
                    let matches = Match {
                        hosts: vec![host.clone()],
                        paths: vec![pattern(path)],
                        methods: methods.clone(),
                        headers: Vec::new(),
                    };
                    places.push(Listed { matches, listeners });
                }
            }
        }
    }
    for one in &places {
        for other in &places {
            let first = one.places(0).next().unwrap();
            let second = other.places(1).next().unwrap();
            let (PathMatch::Pattern(path), PathMatch::Pattern(other_path)) =
                (first.path, second.path)
            else {
                panic!("all paths are patterns")
            };
            let host = common_host(first.host, second.host);
            if !first.overlaps(second) {
                continue;
            }
            let host = host.expect("hosts of places that overlap do, too");
            let request = common_path(path, other_path);
            assert_eq!(
                first_of_table([one, other], &host, &request),
                if second.precedes(first) { 1 } else { 0 },
                "{one:?} {other:?}"
            );
        }
    }
}

/// The place in the list of the route that a table of both finds.
fn first_of_table(both: [&Listed; 2], host: &str, path: &str) -> usize {
    let mut table = super::super::RouteTable::default();
    for (index, listed) in both.into_iter().enumerate() {
        for place in listed.places(index) {
            let PathMatch::Pattern(pattern) = place.path else {
                panic!("all paths are patterns")
            };
            let candidate = RouteCandidate {
                index,
                is_prefix: pattern.rest,
                methods: Arc::from(&*listed.matches.methods),
                headers: Arc::from(&*listed.matches.headers),
                is_of_listeners: !listed.listeners.is_empty(),
            };
            table
                .host_routes(place.host)
                .paths
                .insert(pattern, candidate);
        }
    }
    match table.find(host, path, &http::Method::GET, &http::HeaderMap::new()) {
        super::super::RouteLookup::Route(index) => index,
        lookup => panic!("{lookup:?}"),
    }
}
