//! Routes that no request reaches, because an expression further above takes all of theirs.

use crate::report::{Report, ValueProblem, quote};
use crate::section::route::matching::ambiguity::MatchedRoute;
use tollgate_spec::route::expression::PathExpression;
use tollgate_spec::route::{Match, PathMatch};

/// Warns of routes that an expression of another route hides. Patterns hide none: the more specific
/// one goes first, and two that are alike are a mistake.
pub fn warn_of_hidden(routes: &[MatchedRoute<'_>], report: &mut Report) {
    let mut greedy = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        for expression in expressions(route.matches) {
            greedy.push(RouteExpression {
                index,
                route,
                expression,
            });
        }
    }
    for (index, route) in routes.iter().enumerate() {
        let Some(by) = hiding(&greedy, index, route) else {
            continue;
        };
        let line = by.route.location.line_beside(route.location);
        let text = quote(by.expression.text());
        let problem = ValueProblem::new(format!(
            "no request reaches route {}: {text} of route {} ({line}) takes them all",
            shown_name(route),
            shown_name(by.route)
        ));
        report.warning(
            route.location,
            problem.hint("make the expression narrower, or remove this route"),
        );
    }
}

/// An expression among the paths of a route.
struct RouteExpression<'a> {
    /// The place of the route in the file.
    index: usize,
    route: &'a MatchedRoute<'a>,
    expression: &'a PathExpression,
}

/// The expression that takes all requests for the first host and path of the route at `index`.
/// `None`: no expression does for one of its hosts and paths.
fn hiding<'e, 'a>(
    greedy: &'e [RouteExpression<'a>],
    index: usize,
    route: &MatchedRoute<'_>,
) -> Option<&'e RouteExpression<'a>> {
    let matches = route.matches;
    let mut first = None;
    for host in &matches.hosts {
        for path in &matches.paths {
            let by = greedy.iter().find(|by| {
                by.index != index
                    && by.route.matches.hosts.contains(host)
                    && takes_all(by.route, route)
                    && by.takes_path(path, index)
            })?;
            first = first.or(Some(by));
        }
    }
    first
}

impl RouteExpression<'_> {
    /// Whether it takes every request of a path of the route at `index`, before that does.
    fn takes_path(&self, path: &PathMatch, index: usize) -> bool {
        let takes_everything = self.expression.takes_everything();
        match path {
            PathMatch::Pattern(pattern) => pattern.rest && takes_everything,
            PathMatch::Expression(own) => {
                self.index < index && (takes_everything || self.expression.text() == own.text())
            }
        }
    }
}

fn shown_name(route: &MatchedRoute<'_>) -> String {
    route.name.map_or_else(String::new, quote)
}

fn expressions(matches: &Match) -> impl Iterator<Item = &PathExpression> {
    matches.paths.iter().filter_map(|path| match path {
        PathMatch::Expression(expression) => Some(expression),
        PathMatch::Pattern(_) => None,
    })
}

/// Whether `by` takes every request of `hidden`, by listeners, methods and header fields alone.
fn takes_all(by: &MatchedRoute<'_>, hidden: &MatchedRoute<'_>) -> bool {
    let mut listeners = hidden.listeners.iter();
    let serves_all = by.listeners.is_empty()
        || !hidden.listeners.is_empty() && listeners.all(|name| by.listeners.contains(name));
    let (by, hidden) = (by.matches, hidden.matches);
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
    serves_all && methods && headers
}
