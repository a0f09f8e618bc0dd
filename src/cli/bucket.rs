//! `tollgate bucket`: looks at one bucket of a running gateway, resets it or gives it tokens.

use std::net::IpAddr;
use std::num::NonZeroU64;

use clap::{Args, Subcommand};
use http::Method;

use super::admin_client::{AdminArgs, OperatorNote, target};
use super::arguments::{QueryPairs, add_flag, add_named, add_value, pair};
use super::output::CommandOutput;
use super::text::bucket::{show_bucket, show_change};
use tollgate_config::registered_method;

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
        /// The number of tokens.
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
            let mut query = which.query();
            add_flag(&mut query, "local", *local);
            let target = target(&["buckets", &which.limit], &query);
            which.admin.port()?.ask(Method::GET, &target, None, |body| {
                which.show(body, show_bucket)
            })
        }
        BucketCommand::Reset { which, change } => {
            let target = target(&["buckets", &which.limit], &change.query(which));
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
            let mut query = change.query(which);
            add_value(&mut query, "tokens", Some(tokens.to_string()));
            let target = target(&["buckets", &which.limit, "grant"], &query);
            which.admin.port()?.ask(
                Method::POST,
                &target,
                Some(&change.operator_note()),
                |body| which.show(body, show_change),
            )
        }
    }
}

impl BucketSelector {
    fn query(&self) -> QueryPairs {
        let address = self.client_ip.map(|address| address.to_string());
        let method = self.method.as_deref();
        let method = method.map(|method| registered_method(method).unwrap_or(method).to_owned());
        let mut query = QueryPairs::new();
        add_value(&mut query, "key", self.key.clone());
        add_value(&mut query, "client_ip", address);
        add_value(&mut query, "method", method);
        add_value(&mut query, "host", self.host.clone());
        add_value(&mut query, "route", self.route.clone());
        add_named(&mut query, "client_certificate", &self.client_certificate);
        add_named(&mut query, "identity", &self.identity);
        add_named(&mut query, "claim", &self.claim);
        add_named(&mut query, "header", &self.header);
        add_named(&mut query, "cookie", &self.cookie);
        add_named(&mut query, "query", &self.query);
        add_named(&mut query, "path", &self.path_param);
        add_named(&mut query, "body", &self.body);
        query
    }

    fn show<V: serde::de::DeserializeOwned>(
        &self,
        body: &[u8],
        text: impl Fn(&V) -> String,
    ) -> anyhow::Result<String> {
        let view = serde_json::from_slice(body)?;
        if self.json {
            Ok(String::from_utf8(body.to_vec())?)
        } else {
            Ok(text(&view))
        }
    }
}

impl ChangeArgs {
    fn query(&self, which: &BucketSelector) -> QueryPairs {
        let mut query = which.query();
        add_flag(&mut query, "dry_run", self.dry_run);
        query
    }

    fn operator_note(&self) -> OperatorNote {
        OperatorNote::new(self.operator.as_deref(), self.reason.clone())
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
                    .query()
                    .contains(&("method".to_owned(), meant.to_owned())),
                "{typed}"
            );
        }
    }
}
