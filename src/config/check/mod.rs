//! From the mirror of the file to types of the domain: whatever needs more than one section to
//! judge.
//!
//! `config` builds the whole. `identity`, `listener`, `limit`, `route`, `store` and `upstream`
//! build a section each. `named` looks up limits, upstreams and authenticators by name and tells
//! which nobody uses. `networks` reads lists of networks, `action` holds what a route does against
//! its path, `matches` reads its conditions, `ambiguity` finds routes of which neither goes first,
//! and `hidden` those that no request reaches. `known` has limits and routes of policies that were
//! checked before.
//!
//! Everything is visited even after a mistake. A part that cannot be built is `None`, with its
//! mistake in the report, and nothing is said of what only follows from it.

mod action;
mod ambiguity;
mod config;
mod hidden;
mod identity;
mod known;
mod limit;
mod listener;
mod matches;
mod named;
mod networks;
mod route;
mod store;
mod upstream;

pub use config::{config, probed_address};
pub use identity::keys::{ApiKeyEntries, ClientSpace};
pub use identity::users::table as users;
pub use known::{KnownParts, KnownRoute};
pub use listener::admin::ProbedAddress;
pub use matches::matches;
pub use upstream::listed::endpoints;
