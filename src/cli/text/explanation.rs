//! The explanation of a request as text for people.

use std::cmp::Reverse;
use std::fmt::{Display, Write as _};

use tollgate_admin::views::explain::{ActionView, ExplainView, LimitView, RouteView, WhyView};
use tollgate_admin::views::words::{show_level, show_policy, show_settled, show_source, show_wait};

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
        let allow = match &refused.allow {
            Some(allow) => format!(", Allow: {allow}"),
            None => String::new(),
        };
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
    let mut passed_over = Vec::new();
    for route in &view.routes {
        match reason(route.why) {
            Some(reason) => passed_over.push(PassedOver {
                likeness: likeness(route, &view.request.path),
                route,
                reason,
            }),
            None => {
                let _ = writeln!(text, "         takes {}", route.takes);
            }
        }
    }
    // Stable: among equals, the more specific first.
    passed_over.sort_by_key(|passed| (passed.reason.rank, Reverse(passed.likeness)));
    let most = match (shown, &view.route) {
        (ShownRoutes::Nearest, Some(_)) if passed_over.len() > MOST_SHOWN => {
            let near = passed_over.iter().filter(|passed| passed.reason.rank < FAR);
            near.count().min(MOST_SHOWN)
        }
        (ShownRoutes::Nearest, _) => MOST_SHOWN,
        (ShownRoutes::Every, _) => passed_over.len(),
    };
    for PassedOver { route, reason, .. } in passed_over.iter().take(most) {
        let words = reason.words;
        let _ = writeln!(text, "         {words}: {} ({})", route.route, route.takes);
    }
    let more = passed_over.len().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(text, "         … and {more} more, which --all shows");
    }
    text
}

/// A route that does not take the request.
struct PassedOver<'a> {
    route: &'a RouteView,
    reason: PassedOverReason,
    /// The bytes that its path has in common with the request's.
    likeness: usize,
}

/// How far a route was from taking the request, and why in words.
struct PassedOverReason {
    rank: u8,
    words: &'static str,
}

/// Why a route does not take the request. `None`: the route takes it.
fn reason(why: WhyView) -> Option<PassedOverReason> {
    let (rank, words) = match why {
        WhyView::Applies => return None,
        WhyView::OtherHeader => (0, "not, for a header field"),
        WhyView::OtherMethod => (1, "not, for the method"),
        WhyView::LessSpecific => (2, "also, but less specific"),
        WhyView::OtherPath => (FAR, "not, for the path"),
        WhyView::OtherHost => (FAR + 1, "not, for the host"),
        WhyView::OtherListener => (FAR + 2, "not, for the listener"),
    };
    Some(PassedOverReason { rank, words })
}

/// How many bytes a route's path has in common with the request's, from the start. Only for routes
/// that are far off: the others have all of it in common, and an order already.
fn likeness(route: &RouteView, path: &str) -> usize {
    let is_far = matches!(
        route.why,
        WhyView::OtherPath | WhyView::OtherHost | WhyView::OtherListener
    );
    if !is_far {
        return 0;
    }
    let start = route.takes.find('/').unwrap_or(0);
    let pairs = route.takes[start..].bytes().zip(path.bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

fn show_limit(limit: &LimitView) -> String {
    let policy = &limit.policy;
    let mut text = format!(
        "{}: {}, this request costs {}\n",
        limit.limit,
        show_policy(policy),
        policy.cost
    );
    if let Some(from) = &policy.plan_from {
        text.push_str(&detail("plan", format_args!("from {from}")));
    }
    if let Some(settled) = &policy.settled {
        let reserved = policy.cost;
        let settled = show_settled(settled);
        let cost = format!("{reserved} are reserved; settled by {settled}");
        text.push_str(&detail("cost", cost));
    }
    if let Some(counted) = &policy.counted {
        let counts = format!("responses with {counted}; what others took is given back");
        text.push_str(&detail("counts", counts));
    }
    if let Some(bucket) = &limit.bucket {
        text.push_str(&detail("bucket", bucket));
    }
    if let Some(enforced) = &limit.enforced {
        text.push_str(&detail("acts", enforced));
    }
    if let Some(note) = &limit.note {
        let lacks = format!("{}: {note}", limit.lacking.join(", "));
        text.push_str(&detail("lacks", lacks));
    }
    if let (Some(level), Some(source)) = (&limit.level, limit.source) {
        let wait = show_wait(level, policy.cost);
        let level = show_level(level, policy.burst);
        let level = format!("{level}, {wait}; by {}", show_source(source));
        text.push_str(&detail("level", level));
    }
    if let Some(store) = &limit.store {
        text.push_str(&detail("store", store));
    }
    text.push_str(&detail("over", &limit.on_limit));
    text.push_str(&detail("outage", &limit.outage));
    text
}

/// A line below the first one of a limit or an action.
fn detail(label: &str, value: impl Display) -> String {
    format!("           {label:<7} {value}\n")
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
            text.push_str(&detail("target", target));
            text.push_str(&detail("host", host));
            if let Some(timeout) = timeout {
                text.push_str(&detail("timeout", timeout));
            }
            if let Some(max_body) = max_body {
                text.push_str(&detail("body", max_body));
            }
            text
        }
    }
}
