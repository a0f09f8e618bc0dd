//! Whether one match takes only requests that another takes.

use crate::route::{HeaderMatch, HostMatch, Match, PathMatch, PathPattern, Segment};

/// The first of a part's conditions that is not within those of its route.
pub struct WidenedCondition {
    /// The key of the match.
    pub key: &'static str,
    /// The condition, for messages.
    pub shown: String,
    /// The route's conditions, for messages.
    pub of_route: String,
    /// The remedy.
    pub hint: &'static str,
}

const NARROW_IT: &str = "a resource is a part of its route: narrow it, or name another route";
const KEEP_THE_NAMES: &str =
    "give its parameters the names that they have in the route, each at its place";

/// The first condition of `part` that lets it take requests that `whole` does not take. An
/// expression is within patterns only where these take all paths, and within another expression
/// only if both are alike: nothing else can be told.
pub fn widened(part: &Match, whole: &Match) -> Option<WidenedCondition> {
    let host = part
        .hosts
        .iter()
        .find(|host| !whole.hosts.iter().any(|other| host_within(host, other)));
    if let Some(host) = host {
        return Some(condition(
            "host",
            show_host(host),
            whole.hosts.iter().map(show_host),
        ));
    }
    let path = part
        .paths
        .iter()
        .find(|path| !whole.paths.iter().any(|other| path_within(path, other)));
    if let Some(path) = path {
        return Some(condition(
            "path",
            path.to_string(),
            whole.paths.iter().map(PathMatch::to_string),
        ));
    }
    // Limits, rewrites and fields of the route go by the names.
    let renamed = part.paths.iter().find(|path| {
        !whole
            .paths
            .iter()
            .any(|other| path_within(path, other) && names_within(path, other))
    });
    if let Some(path) = renamed {
        let condition = condition(
            "path",
            path.to_string(),
            whole.paths.iter().map(PathMatch::to_string),
        );
        return Some(WidenedCondition {
            hint: KEEP_THE_NAMES,
            ..condition
        });
    }
    if !whole.methods.is_empty() {
        let of_route = || whole.methods.iter().map(ToString::to_string);
        if part.methods.is_empty() {
            return Some(condition("methods", "any".to_owned(), of_route()));
        }
        if let Some(method) = part
            .methods
            .iter()
            .find(|method| !whole.methods.contains(method))
        {
            return Some(condition("methods", method.to_string(), of_route()));
        }
    }
    let kept = |other: &&HeaderMatch| {
        part.headers.iter().any(|own| {
            own.name == other.name && (other.value.is_none() || own.value == other.value)
        })
    };
    let lost = whole.headers.iter().find(|other| !kept(other))?;
    let own = part.headers.iter().find(|own| own.name == lost.name);
    // The route's value may be a secret, and is the file's.
    let of_route = if lost.value.is_some() {
        "a certain value"
    } else {
        "any value"
    };
    Some(condition(
        "headers",
        own.map_or_else(|| lost.name.to_string(), show_header),
        [format!("{}: {of_route}", lost.name)].into_iter(),
    ))
}

fn condition(
    key: &'static str,
    shown: String,
    of_route: impl Iterator<Item = String>,
) -> WidenedCondition {
    WidenedCondition {
        key,
        shown,
        of_route: of_route.collect::<Vec<_>>().join(", "),
        hint: NARROW_IT,
    }
}

pub fn host_within(part: &HostMatch, whole: &HostMatch) -> bool {
    match (part, whole) {
        (_, HostMatch::Any) => true,
        (HostMatch::Exact(host) | HostMatch::Suffix(host), HostMatch::Suffix(suffix)) => {
            host.ends_with(&**suffix)
        }
        (HostMatch::Exact(host), HostMatch::Exact(other)) => host == other,
        (HostMatch::Any, _) | (HostMatch::Suffix(_), HostMatch::Exact(_)) => false,
    }
}

pub fn path_within(part: &PathMatch, whole: &PathMatch) -> bool {
    match (part, whole) {
        (PathMatch::Pattern(part), PathMatch::Pattern(whole)) => pattern_within(part, whole),
        (PathMatch::Expression(_), PathMatch::Pattern(whole)) => {
            whole.rest && whole.segments.is_empty()
        }
        (PathMatch::Expression(part), PathMatch::Expression(whole)) => {
            whole.takes_everything() || part == whole
        }
        (PathMatch::Pattern(part), PathMatch::Expression(whole)) => {
            let is_one_path = !part.rest
                && part
                    .segments
                    .iter()
                    .all(|segment| matches!(segment, Segment::Literal(_)));
            whole.takes_everything() || is_one_path && whole.takes(&part.to_string())
        }
    }
}

fn pattern_within(part: &PathPattern, whole: &PathPattern) -> bool {
    let fits = |(own, other): (&Segment, &Segment)| match (own, other) {
        (Segment::Literal(own), Segment::Literal(other)) => own == other,
        (Segment::Literal(own), Segment::Param(_)) => !own.is_empty(),
        (Segment::Param(_), Segment::Param(_)) => true,
        (Segment::Param(_), Segment::Literal(_)) => false,
    };
    let length = part.segments.len() == whole.segments.len()
        || whole.rest && part.segments.len() > whole.segments.len();
    length && (whole.rest || !part.rest) && part.segments.iter().zip(&whole.segments).all(fits)
}

/// Whether each parameter of the part that is called like one of the whole stands in its place, and
/// none there has another name.
fn names_within(part: &PathMatch, whole: &PathMatch) -> bool {
    let (PathMatch::Pattern(part), PathMatch::Pattern(whole)) = (part, whole) else {
        return true;
    };
    let is_of_whole = |name: &str| {
        whole
            .segments
            .iter()
            .any(|other| matches!(other, Segment::Param(other) if **other == *name))
    };
    part.segments
        .iter()
        .enumerate()
        .all(|(at, segment)| match (segment, whole.segments.get(at)) {
            (Segment::Literal(_), _) => true,
            (Segment::Param(name), Some(Segment::Param(other))) => name == other,
            (Segment::Param(name), _) => !is_of_whole(name),
        })
}

fn show_host(host: &HostMatch) -> String {
    match host {
        HostMatch::Any => "any".to_owned(),
        HostMatch::Exact(host) => host.to_string(),
        HostMatch::Suffix(suffix) => format!("*{suffix}"),
    }
}

fn show_header(header: &HeaderMatch) -> String {
    let value = header.value.as_ref().map_or("any".into(), |value| {
        String::from_utf8_lossy(value.as_bytes())
    });
    format!("{}: {value}", header.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::route::expression::PathExpression;

    fn pattern(text: &str) -> PathMatch {
        let (text, rest) = text
            .strip_suffix("/*")
            .map_or((text, false), |text| (text, true));
        let segment = |text: &str| match text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
        {
            Some(name) => Segment::Param(name.into()),
            None => Segment::Literal(text.into()),
        };
        PathMatch::Pattern(PathPattern {
            segments: text.split('/').skip(1).map(segment).collect(),
            rest,
        })
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
            assert!(
                path_within(&pattern(part), &pattern(whole)),
                "{part} {whole}"
            );
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
            assert!(
                !path_within(&pattern(part), &pattern(whole)),
                "{part} {whole}"
            );
        }
        assert!(path_within(&expression("^/a"), &pattern("/*")));
        assert!(!path_within(&expression("^/a"), &pattern("/a/*")));
        assert!(path_within(&pattern("/v1/a"), &expression("^/v[0-9]+/")));
        assert!(!path_within(&pattern("/v1/{a}"), &expression("^/v[0-9]+/")));
        assert!(!path_within(&pattern("/vx/a"), &expression("^/v[0-9]+/")));
        assert!(
            path_within(&expression("^/a"), &expression("^/a"))
                && path_within(&expression("^/a"), &expression(".*"))
        );
        assert!(!path_within(&expression("^/a"), &expression("^/ab")));
    }

    #[test]
    fn a_part_keeps_the_names_of_its_routes_parameters() {
        for (part, whole) in [
            ("/orders/{tenant}/{id}", "/orders/{tenant}/{id}"),
            ("/orders/{tenant}/7", "/orders/{tenant}/{id}"),
            ("/orders/{tenant}/{id}/{item}", "/orders/{tenant}/{id}/*"),
            ("/orders/{any}/*", "/orders/*"),
        ] {
            assert!(
                names_within(&pattern(part), &pattern(whole)),
                "{part} {whole}"
            );
        }
        for (part, whole) in [
            ("/orders/{id}/{tenant}", "/orders/{tenant}/{id}"),
            ("/orders/{x}/{id}", "/orders/{tenant}/{id}"),
            ("/orders/a/{tenant}", "/orders/{tenant}/*"),
        ] {
            let matches = |path| Match {
                hosts: Vec::new(),
                paths: vec![pattern(path)],
                methods: Vec::new(),
                headers: Vec::new(),
            };
            assert!(
                path_within(&pattern(part), &pattern(whole)),
                "{part} {whole}"
            );
            let widened =
                widened(&matches(part), &matches(whole)).map(|found| (found.key, found.hint));
            assert_eq!(widened, Some(("path", KEEP_THE_NAMES)), "{part} {whole}");
        }
    }

    #[test]
    fn a_host_is_within_another_when_that_takes_all_of_its_requests() {
        let exact = |host: &str| HostMatch::Exact(Arc::from(host));
        let below = |host: &str| HostMatch::Suffix(Arc::from(host));
        assert!(
            host_within(&exact("a.b.c"), &below(".b.c"))
                && host_within(&below(".a.b.c"), &below(".b.c"))
        );
        assert!(host_within(&exact("a"), &HostMatch::Any) && host_within(&exact("a"), &exact("a")));
        assert!(
            !host_within(&exact("ab.c"), &below(".b.c"))
                && !host_within(&below(".c"), &below(".b.c"))
        );
        assert!(
            !host_within(&HostMatch::Any, &exact("a")) && !host_within(&below(".a"), &exact("x.a"))
        );
    }
}
