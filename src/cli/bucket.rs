//! `tollgate bucket`: looks at one bucket of a running gateway, resets it or gives it tokens.

use std::net::IpAddr;
use std::num::NonZeroU64;

use clap::{Args, Subcommand};
use http::Method;

use super::admin_client::{AdminArgs, OperatorNote, target};
use super::output::CommandOutput;
use super::text::bucket::{show_bucket, show_change};
use crate::config::registered_method;

/// Look at one bucket of a running gateway, or give tokens back to it.
///
/// Asks the admin port of a gateway. A bucket is named by its key, as `tollgate explain` shows it,
/// or by what its limit counts by. Exit code 0: done; 1: refused, or not reached; 2: the command
/// line has a mistake.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate bucket peek per-client --client-ip 203.0.113.9
  tollgate bucket peek per-tenant --header x-tenant=acme --route orders
  tollgate bucket reset per-client --key per-client:203.0.113.9 --reason 'ticket 4711'
  tollgate bucket grant per-tenant --header x-tenant=acme --route orders --tokens 100 --dry-run")]
pub struct BucketArgs {
    #[command(subcommand)]
    command: BucketCommand,
}

#[derive(Debug, Subcommand)]
enum BucketCommand {
    /// Say how full a bucket is. Changes nothing.
    Peek {
        #[command(flatten)]
        which: BucketSelector,
        /// Say what this node holds: where its share of the limit goes on from if the store goes
        /// away.
        #[arg(long)]
        local: bool,
    },
    /// Make a bucket full, in the whole fleet.
    Reset {
        #[command(flatten)]
        which: BucketSelector,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Give tokens back to a bucket, at most until it is full.
    Grant {
        #[command(flatten)]
        which: BucketSelector,
        /// How many.
        #[arg(long, value_name = "N")]
        tokens: NonZeroU64,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

#[derive(Debug, Args)]
struct BucketSelector {
    /// The limit, as the configuration calls it.
    limit: String,
    /// The whole key, as `tollgate explain` shows it. Beside it, only what tells the client's plan
    /// is given.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["client_ip", "client_certificate", "identity", "claim", "path_param", "body", "method", "host", "route"])]
    key: Option<String>,
    /// The client's address.
    #[arg(long, value_name = "ADDRESS")]
    client_ip: Option<IpAddr>,
    /// A part of the client's certificate: subject, san or fingerprint.
    #[arg(long, value_name = "PART=VALUE", value_parser = pair)]
    client_certificate: Vec<(String, String)>,
    /// The client that an authenticator finds, as AUTHENTICATOR/ID; also its plan and labels.
    #[arg(long, value_name = "id|plan|label.NAME=VALUE", value_parser = pair)]
    identity: Vec<(String, String)>,
    /// A claim of the client's token.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    claim: Vec<(String, String)>,
    /// A header field of the request.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// A cookie of the request.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    cookie: Vec<(String, String)>,
    /// A query parameter, not encoded.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    query: Vec<(String, String)>,
    /// A parameter of the route's path.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    path_param: Vec<(String, String)>,
    /// A member of the request's body, not encoded.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    body: Vec<(String, String)>,
    /// The request's method; registered ones in any case.
    #[arg(long)]
    method: Option<String>,
    /// The request's host.
    #[arg(long)]
    host: Option<String>,
    /// The route's name.
    #[arg(long)]
    route: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ChangeArgs {
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// The operator's name, for the gateway's log; the user's name if left out.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_OPERATOR")]
    operator: Option<String>,
    /// Why, for the gateway's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked.
pub fn run(args: &BucketArgs) -> anyhow::Result<CommandOutput> {
    match &args.command {
        BucketCommand::Peek { which, local } => {
            let local = local.then(|| ("local".to_owned(), "true".to_owned()));
            let pairs: Vec<_> = which.pairs().into_iter().chain(local).collect();
            let target = target(&["buckets", &which.limit], &pairs);
            which.admin.port()?.ask(Method::GET, &target, None, |body| {
                which.show(body, show_bucket)
            })
        }
        BucketCommand::Reset { which, change } => {
            let target = target(&["buckets", &which.limit], &change.pairs(which, None));
            which.admin.port()?.ask(
                Method::DELETE,
                &target,
                Some(&change.operator_note()),
                |body| which.show(body, show_change),
            )
        }
        BucketCommand::Grant {
            which,
            tokens,
            change,
        } => {
            let target = target(
                &["buckets", &which.limit, "grant"],
                &change.pairs(which, Some(*tokens)),
            );
            which.admin.port()?.ask(
                Method::POST,
                &target,
                Some(&change.operator_note()),
                |body| which.show(body, show_change),
            )
        }
    }
}

/// `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if name.is_empty() {
        Err("write NAME=VALUE")
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}

impl BucketSelector {
    fn pairs(&self) -> Vec<(String, String)> {
        let Self {
            key,
            client_ip,
            header,
            cookie,
            query,
            path_param,
            method,
            host,
            route,
            ..
        } = self;
        let address = client_ip.map(|address| address.to_string());
        let method = &method
            .as_deref()
            .map(|method| registered_method(method).unwrap_or(method).to_owned());
        let single = [
            ("key", key),
            ("client_ip", &address),
            ("method", method),
            ("host", host),
            ("route", route),
        ];
        let single = single
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let named = [
            ("client_certificate", &self.client_certificate),
            ("identity", &self.identity),
            ("claim", &self.claim),
            ("header", header),
            ("cookie", cookie),
            ("query", query),
            ("path", path_param),
            ("body", &self.body),
        ];
        let named = named.into_iter().flat_map(|(kind, pairs)| {
            pairs
                .iter()
                .map(move |(name, value)| (format!("{kind}.{name}"), value.clone()))
        });
        single.chain(named).collect()
    }

    fn show<V: serde::de::DeserializeOwned>(
        &self,
        body: &[u8],
        text: impl Fn(&V) -> String,
    ) -> anyhow::Result<String> {
        let view = serde_json::from_slice(body)?;
        Ok(if self.json {
            String::from_utf8(body.to_vec())?
        } else {
            text(&view)
        })
    }
}

impl ChangeArgs {
    fn pairs(&self, which: &BucketSelector, tokens: Option<NonZeroU64>) -> Vec<(String, String)> {
        let tokens = tokens.map(|tokens| ("tokens".to_owned(), tokens.to_string()));
        let dry_run = self
            .dry_run
            .then(|| ("dry_run".to_owned(), "true".to_owned()));
        which
            .pairs()
            .into_iter()
            .chain(tokens)
            .chain(dry_run)
            .collect()
    }

    fn operator_note(&self) -> OperatorNote {
        let user = || {
            std::env::var("USER")
                .ok()
                .filter(|user| user.is_ascii() && !user.is_empty())
        };
        let operator = self
            .operator
            .clone()
            .or_else(user)
            .unwrap_or_else(|| "tollgate".to_owned());
        OperatorNote {
            operator,
            reason: self.reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        which: BucketSelector,
    }

    #[test]
    fn a_registered_method_is_named_in_any_case() {
        for (typed, meant) in [
            ("get", "GET"),
            ("Post", "POST"),
            ("frobnicate", "frobnicate"),
        ] {
            let line = CommandLine::parse_from(["tollgate", "per-method", "--method", typed]);
            assert!(
                line.which
                    .pairs()
                    .contains(&("method".to_owned(), meant.to_owned())),
                "{typed}"
            );
        }
    }
}
