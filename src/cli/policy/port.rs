//! The options of commands that ask for policies and their changes.

use clap::{Args, ValueEnum};
use http::Method;
use serde::de::DeserializeOwned;

use crate::cli::admin_client::{AdminArgs, AdminCall, OperatorNote};
use crate::cli::arguments::{QueryPairs, add_flag, add_value};
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
    pub fn query(&self) -> QueryPairs {
        let mut query = QueryPairs::new();
        add_value(&mut query, "reason", Some(self.reason.clone()));
        add_flag(&mut query, "dry_run", self.dry_run);
        query
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
        let call = Self::call(Method::GET, target.to_owned());
        let port = self.admin.port()?;
        port.call(&call, |body| self.show(body, text))
    }

    pub fn show<V: DeserializeOwned>(
        &self,
        body: &[u8],
        text: impl Fn(&V) -> String,
    ) -> anyhow::Result<String> {
        let view = serde_json::from_slice(body)?;
        if self.is_json() {
            Ok(String::from_utf8(body.to_vec())?)
        } else {
            Ok(text(&view))
        }
    }

    /// Sends a change in the operator's name.
    pub fn change(
        &self,
        call: AdminCall<'_>,
        show: impl FnOnce(&[u8]) -> anyhow::Result<String>,
    ) -> anyhow::Result<CommandOutput> {
        let note = OperatorNote::new(self.operator.as_deref(), None);
        let call = AdminCall {
            note: Some(&note),
            ..call
        };
        self.admin.port()?.call(&call, show)
    }

    pub fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }
}
