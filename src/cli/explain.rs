//! `tollgate explain`: what becomes of a request, and why.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Method;

use super::ask::{Admin, Answer, target};
use super::bucket::{next, show_settled, source, terms, tokens};
use crate::admin::query::{self, check_listener};
use crate::admin::views::explain::{ActionView, ExplainView, LimitView, RouteView, WhyView};
use crate::gateway::explain::explain;
use crate::{app, config};

/// Say what becomes of a request, and why: its route, its limits with their buckets, and what is sent.
///
/// Reads the configuration, and needs no running gateway; with --admin it asks one, which also tells how full each bucket
/// is. Nothing is sent to an upstream, and nothing is charged. Exit code 0: explained; 1: the file has mistakes, or the
/// admin port was not reached; 2: the command line has a mistake.
#[derive(Debug, Args)]
#[command(override_usage = "tollgate explain [OPTIONS] [METHOD] <URL>")]
#[command(after_help = "\
Examples:
  tollgate explain http://api.example.com/orders/7
  tollgate explain POST http://api.example.com/orders -H 'x-tenant: acme' --client-ip 203.0.113.9
  tollgate explain http://api.example.com/orders/7 --admin http://127.0.0.1:9901")]
pub struct Explain {
    /// The request's method (GET if left out), and the URL as a client would write it.
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "URL"])]
    request: Vec<String>,
    /// A header field.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    headers: Vec<(String, String)>,
    /// The other end of the connection: the client, or the proxy in front.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client_ip: IpAddr,
    /// The listener it comes through, by its place in the file, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    listener: usize,
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "routes.yaml", env = "TOLLGATE_CONFIG")]
    config: PathBuf,
    /// Ask the gateway with this admin port instead of reading the file.
    #[arg(long, value_name = "URL")]
    admin: Option<Admin>,
    /// Print the explanation as JSON.
    #[arg(long)]
    json: bool,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked, or the file holds what it was not checked for.
pub fn run(args: &Explain) -> anyhow::Result<Answer> {
    let pairs = args.pairs();
    if let Some(admin) = &args.admin {
        return admin.ask(Method::GET, &target(&["explain"], &pairs), None, |body| {
            let view = serde_json::from_slice(body)?;
            Ok(if args.json { String::from_utf8(body.to_vec())? } else { show(&view) })
        });
    }
    let config = match config::load(&args.config) {
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
    Ok(Answer::Done(if args.json { json()? } else { show(&view) }))
}

impl Explain {
    /// As the admin port reads them: one way to understand a description, not two.
    fn pairs(&self) -> Vec<(String, String)> {
        let (method, url) = match self.request.as_slice() {
            [method, url] => (method.as_str(), url.as_str()),
            [url] => ("GET", url.as_str()),
            _ => ("GET", ""),
        };
        let fixed = [
            ("method", method.to_owned()),
            ("url", url.to_owned()),
            ("client_ip", self.client_ip.to_string()),
            ("listener", self.listener.to_string()),
        ];
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value));
        fixed.chain(self.headers.iter().map(|(name, value)| (format!("header.{name}"), value.clone()))).collect()
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
pub fn show(view: &ExplainView) -> String {
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
    text.push_str(&routes(&view.routes));
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

/// What became of every route, one line for each reason.
fn routes(routes: &[RouteView]) -> String {
    let of = |why: WhyView| routes.iter().filter(move |route| route.why == why);
    let mut text = String::new();
    for route in of(WhyView::Applies) {
        let _ = writeln!(text, "         takes {}", route.takes);
    }
    let passed_over = [
        (WhyView::OtherHeader, "not, for a header field"),
        (WhyView::OtherMethod, "not, for the method"),
        (WhyView::LessSpecific, "also, but less specific"),
        (WhyView::OtherPath, "not, for the path"),
        (WhyView::OtherHost, "not, for the host"),
    ];
    for (why, reason) in passed_over {
        for route in of(why) {
            let _ = writeln!(text, "         {reason}: {} ({})", route.route, route.takes);
        }
    }
    text
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
