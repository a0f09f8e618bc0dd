//! `tollgate explain`: says what becomes of a request, and why.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Method;

use super::admin_client::{AdminAccessArgs, AdminPort, target};
use super::arguments::{QueryPairs, add_named, add_value, pair};
use super::check;
use super::output::{CommandOutput, UsageError};
use super::text::explanation::{ShownRoutes, show_explanation};
use crate::app;
use tollgate_admin::query::{self, check_listener};
use tollgate_admin::views::explain::ExplainView;
use tollgate_config::registered_method;
use tollgate_gateway::explain::explain;

/// Say what becomes of a request, and why: its route, its limits with their buckets, and what is
/// sent.
///
/// Reads the configuration, and needs no running gateway; with --admin it asks one, which also
/// tells how full each bucket is. Nothing is sent to an upstream, and nothing is charged. Exit code
/// 0: explained; 1: the file has mistakes, or the admin port was not reached; 2: the command line
/// has a mistake.
#[derive(Debug, Args)]
#[command(override_usage = "tollgate explain [OPTIONS] [METHOD] <URL>")]
#[command(after_help = "\
Examples:
  tollgate explain localhost/hello
  tollgate explain http://api.example.com/orders/7
  tollgate explain POST http://api.example.com/orders -H 'x-tenant: acme' --client-ip 203.0.113.9
  tollgate explain http://api.example.com/orders/7 --admin http://127.0.0.1:9901")]
pub struct ExplainArgs {
    /// The request's method (GET if left out), and the URL as a client would write it; without a
    /// scheme, http:// is meant.
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
    /// A part of the certificate by which the client authenticates itself: subject, san or
    /// fingerprint.
    #[arg(long, value_name = "PART=VALUE", value_parser = pair)]
    client_certificate: Vec<(String, String)>,
    /// The client that an authenticator finds, as AUTHENTICATOR/ID; also its plan and labels.
    #[arg(long, value_name = "id|plan|label.NAME=VALUE", value_parser = pair)]
    identity: Vec<(String, String)>,
    /// A claim of the client's token.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    claim: Vec<(String, String)>,
    /// A member of the body, not encoded.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    body: Vec<(String, String)>,
    /// The listener it comes through, by its place in the file, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    listener: usize,
    /// The configuration file; - is standard input.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "routes.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    config: PathBuf,
    /// Ask the gateway with this admin port instead of reading the file.
    #[arg(long, value_name = "URL")]
    admin: Option<AdminPort>,
    #[command(flatten)]
    access: AdminAccessArgs,
    /// Show every route that was passed over, not the nearest only.
    #[arg(long)]
    all: bool,
    /// Print the explanation as JSON, with every route.
    #[arg(long)]
    json: bool,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked, or the file holds what it was not checked for.
pub fn run(args: &ExplainArgs) -> anyhow::Result<CommandOutput> {
    if args.method.is_some() && args.request.len() > 1 {
        let message = "the method is given twice: before the URL and with --method";
        anyhow::bail!(UsageError::new("explain", message));
    }
    if let [alone] = args.request.as_slice()
        && registered_method(alone).is_some()
    {
        anyhow::bail!(UsageError::new("explain", "a method alone: which URL?"));
    }
    let shown = if args.all {
        ShownRoutes::Every
    } else {
        ShownRoutes::Nearest
    };
    let query = args.query();
    if let Some(admin) = &args.admin {
        let admin = args.access.apply_to(admin)?;
        return admin.ask(Method::GET, &target(&["explain"], &query), None, |body| {
            let view = serde_json::from_slice(body)?;
            if args.json {
                Ok(String::from_utf8(body.to_vec())?)
            } else {
                Ok(show_explanation(&view, shown))
            }
        });
    }
    let config = match check::load(&args.config, None) {
        Ok(loaded) => loaded.config,
        Err(mistakes) => return Ok(CommandOutput::Refused(mistakes.to_string())),
    };
    let gateway = app::for_explaining(&config).context("cannot build the gateway")?;
    let described = match query::request(&query) {
        Ok(described) => described,
        Err(problem) => return Ok(CommandOutput::Refused(problem.detail.into())),
    };
    if let Err(problem) = check_listener(gateway.listeners(), &described) {
        return Ok(CommandOutput::Refused(problem.detail.into()));
    }
    let view = ExplainView::new(&described, &explain(&gateway, &described));
    let text = if args.json {
        serde_json::to_string_pretty(&view)? + "\n"
    } else {
        show_explanation(&view, shown)
    };
    Ok(CommandOutput::Done(text))
}

impl ExplainArgs {
    /// The request as the admin port reads it, so that there is one way to understand a
    /// description.
    fn query(&self) -> QueryPairs {
        let (method, url) = match self.request.as_slice() {
            [method, url] => (method.as_str(), url.as_str()),
            [url] => (self.method.as_deref().unwrap_or("GET"), url.as_str()),
            _ => ("GET", ""),
        };
        let method = registered_method(method).unwrap_or(method);
        let mut query = QueryPairs::new();
        add_value(&mut query, "method", Some(method.to_owned()));
        add_value(&mut query, "url", Some(with_scheme(url)));
        add_value(&mut query, "client_ip", Some(self.client_ip.to_string()));
        add_value(&mut query, "listener", Some(self.listener.to_string()));
        add_named(&mut query, "client_certificate", &self.client_certificate);
        add_named(&mut query, "identity", &self.identity);
        add_named(&mut query, "claim", &self.claim);
        add_named(&mut query, "header", &self.headers);
        add_named(&mut query, "body", &self.body);
        query
    }
}

/// `url`, as curl takes it: `http://` is meant where there is no scheme. A path alone stays one,
/// and so does the `*` of OPTIONS (RFC 9112 §3.2.4).
fn with_scheme(url: &str) -> String {
    let has_scheme = match url.split_once("://") {
        Some((scheme, _)) => scheme.bytes().all(is_of_scheme),
        None => false,
    };
    if has_scheme || url.starts_with('/') || url == "*" {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

/// Whether a scheme may have this character (RFC 3986 §3.1).
fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// `NAME: VALUE`, as curl takes it.
fn field(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => Err("write 'NAME: VALUE'"),
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
            ("*", "*"),
        ] {
            assert_eq!(with_scheme(typed), meant);
        }
    }
}
