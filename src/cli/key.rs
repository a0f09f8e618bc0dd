//! `tollgate key`: makes API keys.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::arguments::pair;
use super::output::print;
use tollgate_identity::api_key::NewApiKey;

/// Make an API key, and its entry for the file or the hash in Redis that an `api_key` authenticator
/// reads.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate key new --id ada --plan gold --label team=web
  tollgate key new --id ada --redis tollgate:keys
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
        /// The hash in Redis that has the keys, with the store's key_prefix: print the command that
        /// adds the key there.
        #[arg(long, value_name = "HASH", conflicts_with = "json")]
        redis: Option<String>,
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
    let KeyCommand::New {
        id,
        plan,
        label,
        redis,
        json,
    } = &args.command;
    let NewApiKey { key, key_sha256 } =
        NewApiKey::generate().context("the system has no random bytes")?;
    let mut entry = json!({ "id": id });
    if let Some(plan) = plan {
        entry["plan"] = json!(plan);
    }
    for (name, value) in label {
        entry["labels"][name] = json!(value);
    }
    if let Some(hash) = redis {
        let client = entry.to_string();
        let words = ["redis-cli", "HSET", hash, &key_sha256, &client]
            .map(shell_word)
            .join(" ");
        print(&format!(
            "# For the client:\n{key}\n\n# For Redis:\n{words}\n"
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    entry["key_sha256"] = json!(key_sha256);
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

/// A word as a shell reads it.
fn shell_word(word: &str) -> String {
    let mut bytes = word.bytes();
    if bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_:./".contains(&byte)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
