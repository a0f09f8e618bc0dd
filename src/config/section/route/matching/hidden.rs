//! Routes that no request reaches, because an expression further above takes all of theirs.

use crate::config::report::{Report, ValueProblem, quote};
use crate::config::section::route::matching::ambiguity::MatchedRoute;
use crate::route::expression::PathExpression;
use crate::route::{HostMatch, Match, PathMatch};

/// Warns of routes that another one hides. Patterns do not: the more specific one goes first, and
/// two that are alike are a mistake.
pub fn warn_of_hidden(routes: &[MatchedRoute<'_>], report: &mut Report) {
    let greedy: Vec<_> = routes
        .iter()
        .enumerate()
        .flat_map(|(at, route)| expressions(route.matches).map(move |one| (at, route, one)))
        .collect();
    for (at, route) in routes.iter().enumerate() {
        let hides = |host: &HostMatch, path: &PathMatch| {
            greedy.iter().find(|(other, by, expression)| {
                *other != at
                    && by.matches.hosts.contains(host)
                    && takes_all(by.matches, route.matches)
                    && match path {
                        PathMatch::Pattern(pattern) => {
                            pattern.rest && expression.takes_everything()
                        }
                        PathMatch::Expression(own) => {
                            *other < at
                                && (expression.takes_everything()
                                    || expression.text() == own.text())
                        }
                    }
            })
        };
        let pairs = || {
            route
                .matches
                .hosts
                .iter()
                .flat_map(|host| route.matches.paths.iter().map(move |path| (host, path)))
        };
        if !pairs().all(|(host, path)| hides(host, path).is_some()) {
            continue;
        }
        if let Some((_, by, expression)) = pairs().find_map(|(host, path)| hides(host, path)) {
            let name = |route: &MatchedRoute<'_>| route.name.map_or_else(String::new, quote);
            let line = by.location.line_beside(route.location);
            let text = quote(expression.text());
            let problem = ValueProblem::new(format!(
                "no request reaches route {}: {text} of route {} ({line}) takes them all",
                name(route),
                name(by)
            ));
            report.warning(
                route.location,
                problem.hint("make the expression narrower, or remove this route"),
            );
        }
    }
}

fn expressions(matches: &Match) -> impl Iterator<Item = &PathExpression> {
    matches.paths.iter().filter_map(|path| match path {
        PathMatch::Expression(expression) => Some(expression),
        PathMatch::Pattern(_) => None,
    })
}

/// Whether `by` takes whatever `hidden` takes, as far as methods and header fields go.
fn takes_all(by: &Match, hidden: &Match) -> bool {
    let methods = by.methods.is_empty()
        || !hidden.methods.is_empty()
            && hidden
                .methods
                .iter()
                .all(|method| by.methods.contains(method));
    let headers = by.headers.iter().all(|wanted| {
        hidden.headers.iter().any(|own| {
            own.name == wanted.name && (wanted.value.is_none() || own.value == wanted.value)
        })
    });
    methods && headers
}
