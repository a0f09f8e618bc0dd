//! The options of commands that ask for policies and their changes.

use clap::{Args, ValueEnum};
use http::Method;
use serde::de::DeserializeOwned;

use crate::cli::admin_client::{AdminArgs, AdminCall, OperatorNote};
use crate::cli::output::CommandOutput;

#[derive(Debug, Args)]
pub struct PolicyChangeArgs {
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct PortArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Your name, where the gateway has no accounts.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_OPERATOR")]
    operator: Option<String>,
    /// How to print the answer. An exported document is YAML or JSON.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people.
    Text,
    Json,
}

impl PolicyChangeArgs {
    /// The query of the change.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let trial = self
            .dry_run
            .then(|| ("dry_run".to_owned(), "true".to_owned()));
        [("reason".to_owned(), self.reason.clone())]
            .into_iter()
            .chain(trial)
            .collect()
    }
}

impl PortArgs {
    pub fn call<'a>(method: Method, target: String) -> AdminCall<'a> {
        AdminCall {
            method,
            target,
            ..AdminCall::default()
        }
    }

    pub fn get<V: DeserializeOwned>(
        &self,
        target: &str,
        text: impl Fn(&V) -> String,
    ) -> anyhow::Result<CommandOutput> {
        self.admin
            .port()?
            .call(&Self::call(Method::GET, target.to_owned()), |body| {
                self.show(body, text)
            })
    }

    pub fn show<V: DeserializeOwned>(
        &self,
        body: &[u8],
        text: impl Fn(&V) -> String,
    ) -> anyhow::Result<String> {
        let view = serde_json::from_slice(body)?;
        Ok(if self.is_json() {
            String::from_utf8(body.to_vec())?
        } else {
            text(&view)
        })
    }

    /// Sends a change in the operator's name.
    pub fn change(
        &self,
        call: AdminCall<'_>,
        show: impl FnOnce(&[u8]) -> anyhow::Result<String>,
    ) -> anyhow::Result<CommandOutput> {
        let note = self.note();
        self.admin.port()?.call(
            &AdminCall {
                note: Some(&note),
                ..call
            },
            show,
        )
    }

    pub fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    fn note(&self) -> OperatorNote {
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
            reason: None,
        }
    }
}
