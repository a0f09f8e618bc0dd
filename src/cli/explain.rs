//! `tollgate explain`: what becomes of a request, and why.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Method;

use super::ask::{Admin, Answer, target};
use super::bucket::{next, show_settled, source, terms, tokens};
use super::{check, refuse};
use crate::admin::query::{self, check_listener};
use crate::admin::views::explain::{ActionView, ExplainView, LimitView, RouteView, WhyView};
use crate::app;
use crate::config::registered_method;
use crate::gateway::explain::explain;

/// Say what becomes of a request, and why: its route, its limits with their buckets, and what is sent.
///
/// Reads the configuration, and needs no running gateway; with --admin it asks one, which also tells how full each bucket
/// is. Nothing is sent to an upstream, and nothing is charged. Exit code 0: explained; 1: the file has mistakes, or the
/// admin port was not reached; 2: the command line has a mistake.
#[derive(Debug, Args)]
#[command(override_usage = "tollgate explain [OPTIONS] [METHOD] <URL>")]
#[command(after_help = "\
Examples:
  tollgate explain localhost/hello
  tollgate explain http://api.example.com/orders/7
  tollgate explain POST http://api.example.com/orders -H 'x-tenant: acme' --client-ip 203.0.113.9
  tollgate explain http://api.example.com/orders/7 --admin http://127.0.0.1:9901")]
pub struct Explain {
    /// The request's method (GET if left out), and the URL as a client would write it; without a scheme, http:// is
    /// meant.
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "URL"])]
    request: Vec<String>,
    /// The request's method, as curl takes it.
    #[arg(short = 'X', long = "method", value_name = "METHOD")]
    method: Option<String>,
    /// A header field.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    headers: Vec<(String, String)>,
    /// The other end of the connection: the client, or the proxy in front.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client_ip: IpAddr,
    /// The listener it comes through, by its place in the file, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    listener: usize,
    /// The configuration file; - is standard input.
    #[arg(short, long, value_name = "FILE", default_value = "routes.yaml", env = "TOLLGATE_CONFIG")]
    config: PathBuf,
    /// Ask the gateway with this admin port instead of reading the file.
    #[arg(long, value_name = "URL")]
    admin: Option<Admin>,
    /// Show every route that was passed over, not the nearest only.
    #[arg(long)]
    all: bool,
    /// Print the explanation as JSON, with every route.
    #[arg(long)]
    json: bool,
}

/// Which of the routes that do not take the request are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Nearest,
    Every,
}

/// Routes passed over that are shown at most: more bury the answer.
const MOST_SHOWN: usize = 5;

/// The first rank in [`reason`] of routes whose path or host is another.
const FAR: u8 = 3;

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked, or the file holds what it was not checked for.
pub fn run(args: &Explain) -> anyhow::Result<Answer> {
    if args.method.is_some() && args.request.len() > 1 {
        let twice = "the method is given twice: before the URL and with --method";
        refuse("explain", twice);
    }
    if let [alone] = args.request.as_slice()
        && registered_method(alone).is_some()
    {
        refuse("explain", "a method alone: which URL?");
    }
    let shown = if args.all { Shown::Every } else { Shown::Nearest };
    let pairs = args.pairs();
    if let Some(admin) = &args.admin {
        return admin.ask(Method::GET, &target(&["explain"], &pairs), None, |body| {
            let view = serde_json::from_slice(body)?;
            Ok(if args.json { String::from_utf8(body.to_vec())? } else { show(&view, shown) })
        });
    }
    let config = match check::load(&args.config) {
        Ok(loaded) => loaded.config,
        Err(mistakes) => return Ok(Answer::Refused(mistakes.to_string())),
    };
    let gateway = app::for_explaining(&config).context("cannot build the gateway")?;
    let described = query::request(&pairs).and_then(|described| {
        check_listener(gateway.listeners(), &described)?;
        Ok(described)
    });
    let described = match described {
        Ok(described) => described,
        Err(problem) => return Ok(Answer::Refused(problem.detail)),
    };
    let view = ExplainView::of(&described, &explain(&gateway, &described));
    let json = || serde_json::to_string_pretty(&view).map(|text| text + "\n");
    Ok(Answer::Done(if args.json { json()? } else { show(&view, shown) }))
}

impl Explain {
    /// As the admin port reads them: one way to understand a description, not two.
    fn pairs(&self) -> Vec<(String, String)> {
        let (method, url) = match self.request.as_slice() {
            [method, url] => (method.as_str(), url.as_str()),
            [url] => (self.method.as_deref().unwrap_or("GET"), url.as_str()),
            _ => ("GET", ""),
        };
        let fixed = [
            ("method", registered_method(method).unwrap_or(method).to_owned()),
            ("url", with_scheme(url)),
            ("client_ip", self.client_ip.to_string()),
            ("listener", self.listener.to_string()),
        ];
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value));
        fixed.chain(self.headers.iter().map(|(name, value)| (format!("header.{name}"), value.clone()))).collect()
    }
}

/// `url`, as curl takes it: `http://` is meant where there is no scheme. A path alone stays one.
fn with_scheme(url: &str) -> String {
    let scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if url.starts_with('/') || url.split_once("://").is_some_and(|(before, _)| scheme(before)) {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

/// `NAME: VALUE`, as curl takes it.
fn field(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("write 'NAME: VALUE'")?;
    if name.trim().is_empty() {
        Err("write 'NAME: VALUE'")
    } else {
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    }
}

/// The explanation for people.
pub fn show(view: &ExplainView, shown: Shown) -> String {
    let request = &view.request;
    let host = if request.host.is_empty() { "(no host)" } else { &request.host };
    let mut text = format!(
        "request  {} {host}{} from {} through listener {}\n",
        request.method, request.path, request.client_ip, request.listener
    );
    // Writing to a String cannot fail.
    let _ = match (&view.route, &view.refused) {
        (Some(route), _) => writeln!(text, "route    {route}"),
        (None, _) => writeln!(text, "route    none"),
    };
    text.push_str(&routes(view, shown));
    if view.route.is_some() && view.limits.is_empty() {
        text.push_str("limits   none\n");
    }
    for (at, limit) in view.limits.iter().enumerate() {
        let label = if at == 0 { "limits" } else { "" };
        let _ = write!(text, "{label:<9}{}", self::limit(limit));
    }
    if let Some(policy) = &view.ratelimit_policy {
        let _ = writeln!(text, "fields   RateLimit-Policy: {policy}");
    }
    if let Some(refused) = &view.refused {
        let allow = refused.allow.as_ref().map_or_else(String::new, |allow| format!(", Allow: {allow}"));
        let _ = writeln!(text, "answer   {} {}{allow}", refused.status, refused.problem);
    } else if let Some(action) = &view.action {
        text.push_str(&self::action(action));
    }
    text
}

/// The routes, one line for each: the one that applies, then those that came nearest to it.
fn routes(view: &ExplainView, shown: Shown) -> String {
    let mut text = String::new();
    for route in view.routes.iter().filter(|route| route.why == WhyView::Applies) {
        let _ = writeln!(text, "         takes {}", route.takes);
    }
    let mut passed_over: Vec<_> = view.routes.iter().filter_map(|route| Some((reason(route.why)?, route))).collect();
    // Stable: among equals, the more specific first.
    passed_over.sort_by_key(|((rank, _), route)| (*rank, Reverse(likeness(route, &view.request.path))));
    let most = match (shown, &view.route) {
        (Shown::Nearest, Some(_)) if passed_over.len() > MOST_SHOWN => {
            passed_over.iter().filter(|((rank, _), _)| *rank < FAR).count().min(MOST_SHOWN)
        }
        (Shown::Nearest, _) => MOST_SHOWN,
        (Shown::Every, _) => passed_over.len(),
    };
    for ((_, reason), route) in passed_over.iter().take(most) {
        let _ = writeln!(text, "         {reason}: {} ({})", route.route, route.takes);
    }
    match passed_over.len().saturating_sub(most) {
        0 => {}
        more => drop(writeln!(text, "         … and {more} more, which --all shows")),
    }
    text
}

/// How far a route was from taking the request, and that in words. `None`: it takes it.
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

/// How many bytes a route's path has in common with the request's, from the start. Only for those that are far off: the
/// others have all of it in common, and an order already.
fn likeness(route: &RouteView, path: &str) -> usize {
    if !matches!(route.why, WhyView::OtherPath | WhyView::OtherHost) {
        return 0;
    }
    let start = route.takes.find('/').unwrap_or(0);
    route.takes[start..].bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count()
}

fn limit(limit: &LimitView) -> String {
    let policy = &limit.policy;
    let mut text = format!("{}: {}, this request costs {}\n", limit.limit, terms(policy), policy.cost);
    let mut line = |label: &str, said: &str| {
        let _ = writeln!(text, "           {label:<7} {said}");
    };
    if let Some(from) = &policy.plan_from {
        line("plan", &format!("from {from}"));
    }
    if let Some(settled) = &policy.settled {
        line("cost", &format!("{} are reserved; settled by {}", policy.cost, show_settled(settled)));
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
        line("level", &format!("{}, {}; by {}", tokens(level, policy.burst), next(level, policy.cost), source(by)));
    }
    if let Some(store) = &limit.store {
        line("store", store);
    }
    line("over", &limit.on_limit);
    line("outage", &limit.outage);
    text
}

fn action(action: &ActionView) -> String {
    match action {
        ActionView::Respond { status } => format!("action   answers {status}\n"),
        ActionView::Echo => "action   answers with a description of the request\n".to_owned(),
        ActionView::Forward { upstream, endpoints, target, host, timeout, max_body } => {
            let mut text = format!("action   forwards to {upstream}: {}\n", endpoints.join(", "));
            let bounds = [("target", Some(target)), ("host", Some(host)), ("timeout", timeout.as_ref())];
            for (label, value) in bounds.into_iter().chain([("body", max_body.as_ref())]) {
                if let Some(value) = value {
                    let _ = writeln!(text, "           {label:<7} {value}");
                }
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_is_one_of_http() {
        for (typed, meant) in [
            ("localhost/x", "http://localhost/x"),
            ("localhost:8080", "http://localhost:8080"),
            ("a/x?next=http://b", "http://a/x?next=http://b"),
            ("https://a/", "https://a/"),
            ("/x", "/x"),
        ] {
            assert_eq!(with_scheme(typed), meant);
        }
    }
}
