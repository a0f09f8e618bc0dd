//! The people of a gateway and what they edit: services that the API, the console, the commands and
//! roll-outs share. In builds with the feature `team` alone.
//!
//! `policies` follows a database of policies and puts them over the file, and `rollout` judges
//! candidates of strategies. `accounts` knows the people who may use the admin port, and `audit`
//! what is kept of their deeds. `caller` is who asks, `changes` has what callers propose, and `api`
//! the pages for programs, with `views` as their JSON. `apart` does what takes long.

pub mod accounts;
mod apart;
pub mod api;
mod audit;
pub mod caller;
pub mod changes;
pub mod database_problem;
pub mod policies;
pub mod rollout;
pub mod views;

use std::sync::Arc;

use self::accounts::AccountService;
use self::policies::service::PolicyService;

/// The people of a gateway, and the policies that they edit.
#[derive(Clone, Default)]
pub struct Team {
    /// `None`: there are no accounts, and everybody who reaches the admin port may do everything.
    pub accounts: Option<Arc<AccountService>>,
    /// `None`: the gateway has no database of policies.
    pub policies: Option<Arc<PolicyService>>,
}

impl Team {
    /// The application that has `limit` as one of its strategies.
    pub fn application_of<'a>(&self, limit: &'a str) -> Option<&'a str> {
        self.policies.as_ref()?.application_of(limit)
    }
}
