//! `tollgate token`: makes and revokes the tokens by which programs use the admin port.

use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use tollgate_policies::people::{ApiToken, Deed, NewToken};

use super::roles::{RoleArgs, show_rights};
use super::{DatabaseArgs, begin, commit};
use crate::cli::arguments::duration;
use crate::cli::output::CommandOutput;

/// Make, list and revoke the tokens by which programs use the admin port.
///
/// A token belongs to an account and may do what that may, or less. Programs send it as
/// `Authorization: Bearer tgt_…`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate token create ada --label 'nightly report' --expires 720h > token
  tollgate token create ci --label deploys --role shop=editor
  tollgate token list ada
  tollgate bucket peek per-client --client-ip 203.0.113.9 --token-file token")]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Print a new token, which is shown only now.
    Create {
        /// The account that it belongs to.
        account: String,
        /// The purpose of the token.
        #[arg(long, value_name = "TEXT")]
        label: String,
        #[command(flatten)]
        roles: RoleArgs,
        /// When it ends; never, if left out.
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<Duration>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List the tokens of an account.
    List {
        /// The account.
        account: String,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// End a token at once.
    Revoke {
        /// The account that it belongs to.
        account: String,
        /// The token's id, as `tollgate token list` shows it. Some begin with a dash.
        #[arg(allow_hyphen_values = true)]
        id: String,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// Does what the command line says.
///
/// # Errors
/// When the file names no database, that cannot be asked, or refuses.
pub fn run(args: TokenArgs) -> anyhow::Result<CommandOutput> {
    let done = match args.command {
        TokenCommand::Create {
            account,
            label,
            roles,
            expires,
            database,
        } => database.with_people(async |people| {
            let known = people
                .account(&account)
                .await?
                .with_context(|| format!("there is no account {account}"))?;
            let scope = if roles.is_empty() {
                known.rights
            } else {
                roles.rights()
            };
            let new = NewToken {
                label,
                scope,
                expires_in: expires,
            };
            let mut change = begin(&people).await?;
            let (secret, token) = change.create_token(&account, &new).await?;
            let deed = Deed {
                action: "token_create",
                object: &format!("token {} of {account}", token.id),
                detail: &format!("{}: {}", token.label, show_rights(&token.scope)),
            };
            commit(change, &deed).await?;
            Ok(format!("{}\n", secret.expose()))
        }),
        TokenCommand::List { account, database } => database.with_people(async |people| {
            people
                .account(&account)
                .await?
                .with_context(|| format!("there is no account {account}"))?;
            let tokens = people.tokens(&account).await?;
            Ok(tokens.iter().map(show_token).collect())
        }),
        TokenCommand::Revoke {
            account,
            id,
            database,
        } => database.with_people(async |people| {
            let mut change = begin(&people).await?;
            anyhow::ensure!(
                change.revoke_token(&account, &id).await?,
                "{account} has no token {id}, or it was revoked before"
            );
            let deed = Deed {
                action: "token_revoke",
                object: &format!("token {id} of {account}"),
                detail: "",
            };
            commit(change, &deed).await?;
            Ok(format!("revoked the token {id}\n"))
        }),
    };
    done.map(CommandOutput::Done)
}

/// A line of the list of tokens.
fn show_token(token: &ApiToken) -> String {
    let end = match &token.expires_at {
        _ if token.revoked => "revoked".to_owned(),
        Some(at) => format!("until {at}"),
        None => "no end".to_owned(),
    };
    let scope = show_rights(&token.scope);
    format!("{}  {}  {scope}  {end}\n", token.id, token.label)
}
