//! `tollgate account`: makes and changes accounts. A password is asked for, or read from standard
//! input; it is never an argument, which others on the machine could read.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use tollgate_policies::people::{
    AccountChange, Deed, EarlierTokens, HashedPassword, NewAccount, OidcSubject, People,
    RoleChange, UserAccount,
};

use super::roles::{RoleArgs, show_rights};
use super::{DatabaseArgs, begin, commit};
use crate::cli::output::CommandOutput;

/// Make and change the accounts of people who may use the admin port.
///
/// Accounts live in the database that the file names under `policies`. Needs no running gateway,
/// and works while one runs. Passwords have 12 characters or more; they are asked for on the
/// terminal, or read from the first line of standard input.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate account create ada --admin --config routes.yaml
  tollgate account create bob --role shop=editor --role bank=viewer
  tollgate account change bob --role shop=owner --role bank=none
  pass show tollgate/bob | tollgate account password bob
  tollgate account list")]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, Subcommand)]
enum AccountCommand {
    /// Make an account, and ask for its password.
    Create {
        /// The account's name: letters, digits and . _ @ + -
        name: String,
        #[command(flatten)]
        roles: RoleArgs,
        /// The person's name; the account's, if left out.
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// Ask for no password: the account is for tokens or OpenID Connect alone, or gets one
        /// later.
        #[arg(long)]
        no_password: bool,
        /// The person who signs in to it at a provider of OpenID Connect: the issuer, and what that
        /// calls them (sub).
        #[arg(long, num_args = 2, value_names = ["ISSUER", "SUBJECT"])]
        subject: Option<Vec<String>>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List all accounts with their roles.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Change the roles or the name of somebody, or let a disabled account in again.
    Change {
        /// The account.
        name: String,
        #[command(flatten)]
        roles: RoleArgs,
        /// Take the role in the fleet away.
        #[arg(long, conflicts_with_all = ["admin", "operator", "viewer"])]
        no_fleet_role: bool,
        /// The person's name.
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// Let a disabled account in again.
        #[arg(long)]
        enable: bool,
        /// The person who signs in to it at a provider of OpenID Connect. In place of somebody
        /// else, ends sessions and tokens.
        #[arg(long, num_args = 2, value_names = ["ISSUER", "SUBJECT"], conflicts_with = "no_subject")]
        subject: Option<Vec<String>>,
        /// Nobody signs in to it by OpenID Connect any more.
        #[arg(long)]
        no_subject: bool,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Let somebody in no more, at once. The account and what it did stay known.
    Disable {
        /// The account.
        name: String,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Set a new password. Ends all sessions of the account, and its tokens.
    Password {
        /// The account.
        name: String,
        /// Leave its tokens as they are: programs go on.
        #[arg(long)]
        keep_tokens: bool,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Remove an account, its sessions and its tokens.
    Remove {
        /// The account.
        name: String,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// Does what the command line says.
///
/// # Errors
/// When the file names no database, that cannot be asked, or refuses.
pub fn run(args: AccountArgs) -> anyhow::Result<CommandOutput> {
    let done = match args.command {
        AccountCommand::Create {
            name,
            roles,
            display_name,
            no_password,
            subject,
            database,
        } => {
            let password = if no_password {
                None
            } else {
                Some(ask_password(&name)?)
            };
            let new = NewAccount {
                display_name: display_name.unwrap_or_else(|| name.clone()),
                name,
                password: None,
                subject: subject.and_then(pair),
                rights: roles.rights(),
            };
            database.with_people(async |people| create(&people, new, password).await)
        }
        AccountCommand::List { json, database } => {
            database.with_people(async |people| list(&people, json).await)
        }
        AccountCommand::Change {
            name,
            roles,
            no_fleet_role,
            display_name,
            enable,
            subject,
            no_subject,
            database,
        } => {
            let mut role_changes = roles.changes();
            if no_fleet_role {
                role_changes.insert(0, RoleChange::Fleet(None));
            }
            let wanted = AccountChange {
                display_name,
                roles: role_changes,
                subject: if no_subject {
                    Some(None)
                } else {
                    subject.map(pair)
                },
                disabled: if enable { Some(false) } else { None },
                ..AccountChange::default()
            };
            database.with_people(async |people| change(&people, &name, &wanted).await)
        }
        AccountCommand::Disable { name, database } => {
            database.with_people(async |people| disable(&people, &name).await)
        }
        AccountCommand::Password {
            name,
            keep_tokens,
            database,
        } => {
            let password = ask_password(&name)?;
            let tokens = if keep_tokens {
                EarlierTokens::Keep
            } else {
                EarlierTokens::Revoke
            };
            database
                .with_people(async |people| set_password(&people, &name, &password, tokens).await)
        }
        AccountCommand::Remove { name, database } => {
            database.with_people(async |people| remove(&people, &name).await)
        }
    };
    Ok(CommandOutput::Done(done?))
}

async fn create(
    people: &People,
    mut new: NewAccount,
    password: Option<String>,
) -> anyhow::Result<String> {
    if let Some(password) = password {
        new.password = Some(HashedPassword::new(&password).await?);
    }
    let mut change = begin(people).await?;
    let account = change.create(&new).await?;
    let shown = show_account(&account, account.subject.as_ref());
    let deed = Deed {
        action: "account_create",
        object: &format!("account {}", account.name),
        detail: &shown,
    };
    commit(change, &deed).await?;
    Ok(format!("made the account {} ({shown})\n", account.name))
}

async fn list(people: &People, as_json: bool) -> anyhow::Result<String> {
    let accounts = people.accounts().await?;
    if !as_json {
        return Ok(table(&accounts));
    }
    let accounts: Vec<_> = accounts.iter().map(in_json).collect();
    Ok(serde_json::to_string_pretty(&accounts)? + "\n")
}

async fn change(people: &People, name: &str, wanted: &AccountChange) -> anyhow::Result<String> {
    let mut change = begin(people).await?;
    let account = change.change(name, wanted).await?;
    let subject = match wanted.subject {
        Some(_) => account.subject.as_ref(),
        None => None,
    };
    let shown = show_account(&account, subject);
    let deed = Deed {
        action: "account_change",
        object: &format!("account {name}"),
        detail: &shown,
    };
    commit(change, &deed).await?;
    Ok(format!("changed the account {name} ({shown})\n"))
}

async fn disable(people: &People, name: &str) -> anyhow::Result<String> {
    let wanted = AccountChange {
        disabled: Some(true),
        ..AccountChange::default()
    };
    let mut change = begin(people).await?;
    change.change(name, &wanted).await?;
    let deed = Deed {
        action: "account_disable",
        object: &format!("account {name}"),
        detail: "",
    };
    commit(change, &deed).await?;
    Ok(format!("disabled the account {name}\n"))
}

async fn set_password(
    people: &People,
    name: &str,
    password: &str,
    tokens: EarlierTokens,
) -> anyhow::Result<String> {
    let password = HashedPassword::new(password).await?;
    let mut change = begin(people).await?;
    change.set_password(name, &password, tokens).await?;
    let (detail, ended) = match tokens {
        EarlierTokens::Keep => ("", ""),
        EarlierTokens::Revoke => (
            "and its tokens were revoked",
            ", and its tokens were revoked",
        ),
    };
    let deed = Deed {
        action: "account_password",
        object: &format!("account {name}"),
        detail,
    };
    commit(change, &deed).await?;
    Ok(format!(
        "set the password of {name}: its sessions have ended{ended}\n"
    ))
}

async fn remove(people: &People, name: &str) -> anyhow::Result<String> {
    let mut change = begin(people).await?;
    change.remove(name).await?;
    let deed = Deed {
        action: "account_remove",
        object: &format!("account {name}"),
        detail: "",
    };
    commit(change, &deed).await?;
    Ok(format!("removed the account {name}\n"))
}

/// The rights of an account, and the `subject` who signs in to it, if that is to be shown.
fn show_account(account: &UserAccount, subject: Option<&OidcSubject>) -> String {
    let rights = show_rights(&account.rights);
    match subject {
        Some(OidcSubject { issuer, subject }) => {
            format!("{rights}; signs in as {subject} at {issuer}")
        }
        None => rights,
    }
}

/// The two values of `--subject`.
fn pair(values: Vec<String>) -> Option<OidcSubject> {
    let [issuer, subject] = <[String; 2]>::try_from(values).ok()?;
    Some(OidcSubject { issuer, subject })
}

/// The most bytes that are read of a line with a password: more than the longest password has.
const MOST_PASSWORD_LINE: u64 = 64 << 10;

/// Asks twice on a terminal. Otherwise reads a line: without its end, and with the spaces that it
/// may have.
fn ask_password(name: &str) -> anyhow::Result<String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        let mut line = String::new();
        input
            .lock()
            .take(MOST_PASSWORD_LINE)
            .read_line(&mut line)
            .context("cannot read the password from standard input")?;
        let password = match line.strip_suffix('\n') {
            Some(line) => line.strip_suffix('\r').unwrap_or(line),
            None => line.as_str(),
        };
        anyhow::ensure!(
            !password.is_empty(),
            "standard input has no password in its first line"
        );
        return Ok(password.to_owned());
    }
    let password = prompt(&format!("Password for {name}: "))?;
    anyhow::ensure!(
        password == prompt("Again: ")?,
        "the password was not written twice alike"
    );
    Ok(password)
}

fn prompt(what: &str) -> anyhow::Result<String> {
    rpassword::prompt_password(what).context("cannot ask for the password")
}

fn in_json(account: &UserAccount) -> serde_json::Value {
    json!({
        "name": account.name,
        "display_name": account.display_name,
        "rights": account.rights,
        "subject": account.subject,
        "disabled": account.disabled,
        "has_password": account.has_password,
        "created_at": account.created_at,
        "changed_at": account.changed_at,
    })
}

fn table(accounts: &[UserAccount]) -> String {
    if accounts.is_empty() {
        return "no account yet: tollgate account create NAME --admin\n".to_owned();
    }
    let widths = accounts.iter().map(|account| account.name.chars().count());
    let width = widths.max().unwrap_or_default();
    let mut table = String::new();
    for account in accounts {
        let rights = show_rights(&account.rights);
        let disabled = if account.disabled { "  disabled" } else { "" };
        table.push_str(&format!("{:width$}  {rights}{disabled}\n", account.name));
    }
    table
}
