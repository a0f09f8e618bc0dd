//! The explanation of a request as text for people.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::admin::views::explain::{ActionView, ExplainView, LimitView, RouteView, WhyView};
use crate::admin::views::words::{show_level, show_policy, show_settled, show_source, show_wait};

/// The routes that are shown, of those that do not take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownRoutes {
    Nearest,
    Every,
}

/// Routes passed over that are shown at most: more bury the answer.
const MOST_SHOWN: usize = 5;

/// The first rank in [`reason`] of routes whose path or host is another.
const FAR: u8 = 3;

/// The explanation of a request.
pub fn show_explanation(view: &ExplainView, shown: ShownRoutes) -> String {
    let request = &view.request;
    let host = if request.host.is_empty() {
        "(no host)"
    } else {
        &request.host
    };
    let mut text = format!(
        "request  {} {host}{} from {} through listener {}\n",
        request.method, request.path, request.client_ip, request.listener
    );
    // Writing to a String cannot fail.
    let _ = match (&view.route, &view.refused) {
        (Some(route), _) => writeln!(text, "route    {route}"),
        (None, _) => writeln!(text, "route    none"),
    };
    text.push_str(&show_routes(view, shown));
    if view.route.is_some() && view.limits.is_empty() && view.refused.is_none() {
        text.push_str("limits   none\n");
    }
    for (at, limit) in view.limits.iter().enumerate() {
        let label = if at == 0 { "limits" } else { "" };
        let _ = write!(text, "{label:<9}{}", show_limit(limit));
    }
    if let Some(policy) = &view.ratelimit_policy {
        let _ = writeln!(text, "fields   RateLimit-Policy: {policy}");
    }
    if let Some(refused) = &view.refused {
        let allow = refused
            .allow
            .as_ref()
            .map_or_else(String::new, |allow| format!(", Allow: {allow}"));
        let _ = writeln!(
            text,
            "answer   {} {}{allow}",
            refused.status, refused.problem
        );
    } else if let Some(action) = &view.action {
        text.push_str(&show_action(action));
    }
    text
}

/// The routes, one line for each: the one that applies, then those that came nearest to it.
fn show_routes(view: &ExplainView, shown: ShownRoutes) -> String {
    let mut text = String::new();
    for route in view
        .routes
        .iter()
        .filter(|route| route.why == WhyView::Applies)
    {
        let _ = writeln!(text, "         takes {}", route.takes);
    }
    let mut passed_over: Vec<_> = view
        .routes
        .iter()
        .filter_map(|route| Some((reason(route.why)?, route)))
        .collect();
    // Stable: among equals, the more specific first.
    passed_over
        .sort_by_key(|((rank, _), route)| (*rank, Reverse(likeness(route, &view.request.path))));
    let most = match (shown, &view.route) {
        (ShownRoutes::Nearest, Some(_)) if passed_over.len() > MOST_SHOWN => passed_over
            .iter()
            .filter(|((rank, _), _)| *rank < FAR)
            .count()
            .min(MOST_SHOWN),
        (ShownRoutes::Nearest, _) => MOST_SHOWN,
        (ShownRoutes::Every, _) => passed_over.len(),
    };
    for ((_, reason), route) in passed_over.iter().take(most) {
        let _ = writeln!(text, "         {reason}: {} ({})", route.route, route.takes);
    }
    let more = passed_over.len().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(text, "         … and {more} more, which --all shows");
    }
    text
}

/// How far a route was from taking the request, and why in words. `None`: the route takes it.
fn reason(why: WhyView) -> Option<(u8, &'static str)> {
    match why {
        WhyView::Applies => None,
        WhyView::OtherHeader => Some((0, "not, for a header field")),
        WhyView::OtherMethod => Some((1, "not, for the method")),
        WhyView::LessSpecific => Some((2, "also, but less specific")),
        WhyView::OtherPath => Some((FAR, "not, for the path")),
        WhyView::OtherHost => Some((FAR + 1, "not, for the host")),
    }
}

/// How many bytes a route's path has in common with the request's, from the start. Only for those
/// that are far off: the others have all of it in common, and an order already.
fn likeness(route: &RouteView, path: &str) -> usize {
    if !matches!(route.why, WhyView::OtherPath | WhyView::OtherHost) {
        return 0;
    }
    let start = route.takes.find('/').unwrap_or(0);
    route.takes[start..]
        .bytes()
        .zip(path.bytes())
        .take_while(|(a, b)| a == b)
        .count()
}

fn show_limit(limit: &LimitView) -> String {
    let policy = &limit.policy;
    let mut text = format!(
        "{}: {}, this request costs {}\n",
        limit.limit,
        show_policy(policy),
        policy.cost
    );
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "           {label:<7} {value}");
    };
    if let Some(from) = &policy.plan_from {
        line("plan", &format!("from {from}"));
    }
    if let Some(settled) = &policy.settled {
        line(
            "cost",
            &format!(
                "{} are reserved; settled by {}",
                policy.cost,
                show_settled(settled)
            ),
        );
    }
    if let Some(counted) = &policy.counted {
        line(
            "counts",
            &format!("responses with {counted}; what others took is given back"),
        );
    }
    if let Some(bucket) = &limit.bucket {
        line("bucket", bucket);
    }
    if let Some(enforced) = &limit.enforced {
        line("acts", enforced);
    }
    if let Some(note) = &limit.note {
        line("lacks", &format!("{}: {note}", limit.lacking.join(", ")));
    }
    if let Some((level, by)) = limit.level.as_ref().zip(limit.source) {
        line(
            "level",
            &format!(
                "{}, {}; by {}",
                show_level(level, policy.burst),
                show_wait(level, policy.cost),
                show_source(by)
            ),
        );
    }
    if let Some(store) = &limit.store {
        line("store", store);
    }
    line("over", &limit.on_limit);
    line("outage", &limit.outage);
    text
}

fn show_action(action: &ActionView) -> String {
    match action {
        ActionView::Respond { status } => format!("action   answers {status}\n"),
        ActionView::Redirect { status, to } => {
            format!("action   redirects to {to} with {status}\n")
        }
        ActionView::Echo => "action   answers with a description of the request\n".to_owned(),
        ActionView::Forward {
            upstream,
            endpoints,
            target,
            host,
            timeout,
            max_body,
        } => {
            let mut text = format!(
                "action   forwards to {upstream}: {}\n",
                endpoints.join(", ")
            );
            let bounds = [
                ("target", Some(target)),
                ("host", Some(host)),
                ("timeout", timeout.as_ref()),
            ];
            for (label, value) in bounds.into_iter().chain([("body", max_body.as_ref())]) {
                if let Some(value) = value {
                    let _ = writeln!(text, "           {label:<7} {value}");
                }
            }
            text
        }
    }
}
