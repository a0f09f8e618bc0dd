//! `tollgate policy key`: an application's API keys. The key itself stays with the operator who
//! makes it: the gateway gets its hash.

use anyhow::Context;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method};
use serde_json::{Value as Json, json};

use super::port::{PolicyChangeArgs, PortArgs};
use crate::cli::admin_client::{AdminCall, target};
use crate::cli::arguments::pair;
use crate::cli::output::CommandOutput;
use crate::cli::text::policies::show_outcome;
use tollgate_identity::api_key::NewApiKey;

#[derive(Debug, Subcommand)]
pub enum PolicyKeyCommand {
    /// Make a key and print it, which is done only now. The policies have its hash alone.
    New {
        #[command(flatten)]
        key: NamedKeyArgs,
        /// The client that the key is for. Default: the key's name.
        #[arg(long, value_name = "ID")]
        client: Option<String>,
        /// A label of the client.
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        label: Vec<(String, String)>,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Take a key away. A node refuses it as soon as it has the revision.
    Revoke {
        #[command(flatten)]
        key: NamedKeyArgs,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
}

#[derive(Debug, Args)]
pub struct NamedKeyArgs {
    application: String,
    /// The key's name in the policies.
    name: String,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked, or the system has no random bytes.
pub fn run(command: &PolicyKeyCommand) -> anyhow::Result<CommandOutput> {
    match command {
        PolicyKeyCommand::New {
            key,
            client,
            label,
            change,
            port,
        } => {
            let NewApiKey {
                key: secret,
                key_sha256,
            } = NewApiKey::generate().context("the system has no random bytes")?;
            let mut body = json!({ "key_sha256": key_sha256 });
            if let Some(client) = client {
                body["client"] = json!(client);
            }
            for (name, value) in label {
                body["labels"][name] = json!(value);
            }
            // Only a key that there is not yet is made.
            let call = AdminCall {
                method: Method::PUT,
                condition: Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
                target: key.target(change),
                body: Bytes::from(body.to_string()),
                note: None,
            };
            port.change(call, |answer| {
                let text = port.show(answer, show_outcome)?;
                if change.dry_run {
                    return Ok(text);
                }
                if port.is_json() {
                    let mut answer: Json = serde_json::from_str(&text)?;
                    answer["key"] = json!(secret);
                    return Ok(format!("{answer}\n"));
                }
                Ok(format!(
                    "{text}\n# For the client; it is not shown again:\n{secret}\n"
                ))
            })
        }
        PolicyKeyCommand::Revoke { key, change, port } => {
            // The key is taken away, whatever has become of it meanwhile.
            let call = AdminCall {
                method: Method::DELETE,
                condition: Some((IF_MATCH, HeaderValue::from_static("*"))),
                target: key.target(change),
                body: Bytes::new(),
                note: None,
            };
            port.change(call, |answer| port.show(answer, show_outcome))
        }
    }
}

impl NamedKeyArgs {
    fn target(&self, change: &PolicyChangeArgs) -> String {
        let path = [
            "policies",
            "applications",
            &self.application,
            "api_keys",
            &self.name,
        ];
        target(&path, &change.query())
    }
}
