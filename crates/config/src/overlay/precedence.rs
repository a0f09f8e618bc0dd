//! Whether a part of a route would take requests that the file gives to another route.
//!
//! A part is narrower than its route, so it may go before a route that goes before its own: its
//! requests would lose that route's limits, authentication and upstream.

use super::part;
use crate::yaml::node::{YamlNode, YamlValue};
use tollgate_spec::route::Match;
use tollgate_spec::route::table::overlap::MatchIndex;

/// The routes of the file with what each takes, by their places in it.
pub struct FileRoutes {
    names: Vec<String>,
    matches: MatchIndex,
}

impl FileRoutes {
    pub fn new(routes: &[YamlNode]) -> Self {
        let mut names = Vec::with_capacity(routes.len());
        let mut matches = Vec::with_capacity(routes.len());
        for route in routes {
            names.push(part::name_of(route).unwrap_or_default().to_owned());
            matches.push(match &route.value {
                YamlValue::Map(entries) => part::match_of(entries),
                YamlValue::Scalar { .. } | YamlValue::List(_) | YamlValue::Unusable => None,
            });
        }
        Self {
            names,
            matches: MatchIndex::new(matches),
        }
    }

    /// The requests that the route takes.
    pub fn matches(&self, route: usize) -> Option<&Match> {
        self.matches.get(route)
    }

    /// The name of a route that has requests now which `part` of the route `whole` would take.
    pub fn robbed(&self, part: &Match, whole: usize) -> Option<&str> {
        let found = self.matches.robbed(part, whole)?;
        self.names.get(found).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::yaml::parse;

    /// The routes of a list of matches.
    fn routes(matches: &[&str]) -> FileRoutes {
        let each = matches.iter().enumerate();
        let text: String = each
            .map(|(at, one)| format!("- {{name: r{at}, match: {one}}}\n"))
            .collect();
        let mut report = Report::new("test");
        let tree = parse::tree(&report.file(), &text, &mut report).unwrap();
        let YamlValue::List(items) = tree.value else {
            panic!("no list")
        };
        FileRoutes::new(&items)
    }

    /// The route that a part of the first would rob.
    fn robbed(part: &str, matches: &[&str]) -> Option<String> {
        routes(matches)
            .robbed(routes(&[part]).matches(0).unwrap(), 0)
            .map(str::to_owned)
    }

    #[test]
    fn a_part_takes_nothing_from_a_route_that_goes_before_its_own() {
        for (part, whole, other) in [
            (
                "{path: /pay/x, methods: [POST]}",
                "{path: /*}",
                "{path: /pay/x}",
            ),
            ("{path: /pay/x}", "{path: /*}", "{path: /pay/*}"),
            ("{path: \"/pay/{a}\"}", "{path: /*}", "{path: /pay/*}"),
            ("{path: /pay/x}", "{path: /*}", "{path: \"/{any}/x\"}"),
            (
                "{path: /*, host: a.example.com}",
                "{path: /*}",
                "{path: /*, host: \"*.example.com\"}",
            ),
            (
                "{path: /a, headers: {x: \"1\", y: \"2\"}}",
                "{path: /a}",
                "{path: /a, headers: {x: \"1\"}}",
            ),
            (
                "{path: /v1/pay}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: /*}",
                "{path: {regex: pay$}}",
            ),
            (
                "{path: {regex: \"^/a\"}}",
                "{path: /*}",
                "{path: {regex: \"^/ab\"}}",
            ),
        ] {
            assert_eq!(
                robbed(part, &[whole, other]).as_deref(),
                Some("r1"),
                "{part} of {whole} beside {other}"
            );
        }
    }

    #[test]
    fn a_part_has_what_its_route_has_now() {
        for (part, whole, other) in [
            ("{path: /shop/x}", "{path: /*}", "{path: /pay/*}"),
            (
                "{path: /pay/x, methods: [GET]}",
                "{path: /*}",
                "{path: /pay/*, methods: [POST]}",
            ),
            ("{path: /pay/x}", "{path: /pay/*}", "{path: /*}"),
            ("{path: /pay/x}", "{path: /pay/*}", "{path: /pay/y}"),
            (
                "{path: /a, host: a.org}",
                "{path: /*}",
                "{path: /a, host: b.org}",
            ),
            (
                "{path: /a/b, headers: {x: \"1\"}}",
                "{path: /a/*}",
                "{path: /a/b, headers: {x: \"2\", y: z}}",
            ),
            (
                "{path: /x/pay}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/orders/{id}\"}",
                "{path: /orders/*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: \"/v1/{what}\"}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: {regex: \"^/a\"}, methods: [GET]}",
                "{path: {regex: \"^/a\"}}",
                "{path: {regex: \"^/ab\"}}",
            ),
        ] {
            assert_eq!(
                robbed(part, &[whole, other]),
                None,
                "{part} of {whole} beside {other}"
            );
        }
    }
}
