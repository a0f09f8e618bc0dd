//! `tollgate key`: makes API keys.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::bucket::pair;
use super::output::print;
use crate::identity::api_key::NewApiKey;

/// Make an API key, and the entry for the file that an `api_key` authenticator reads.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate key new --id ada --plan gold --label team=web
  tollgate key new --id ada --json | jq -r .key_sha256")]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Print a new key, which is shown only now, and its entry: the file has the key's hash alone.
    New {
        /// The client that the key is for.
        #[arg(long, value_name = "ID")]
        id: String,
        /// The plan of the client.
        #[arg(long, value_name = "NAME")]
        plan: Option<String>,
        /// A label of the client.
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        label: Vec<(String, String)>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Does what the command line says.
///
/// # Errors
/// When the system has no random bytes, or the output cannot be written.
pub fn run(args: &KeyArgs) -> anyhow::Result<ExitCode> {
    let KeyCommand::New { id, plan, label, json } = &args.command;
    let NewApiKey { key, key_sha256 } = NewApiKey::generate().context("the system has no random bytes")?;
    let labels: serde_json::Map<_, _> = label.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut entry = json!({ "id": id, "key_sha256": key_sha256 });
    if let Some(plan) = plan {
        entry["plan"] = json!(plan);
    }
    if !labels.is_empty() {
        entry["labels"] = labels.into();
    }
    let text = if *json {
        entry["key"] = json!(key);
        format!("{entry}\n")
    } else {
        // JSON is YAML.
        format!("# For the client:\n{key}\n\n# For the file of keys:\n- {entry}\n")
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
