//! The people who edit policies: accounts, what each may do, sessions and tokens, and a log of what
//! was done.

mod account;
mod accounts;
mod audit;
mod change;
mod error;
mod handle;
mod rights;
mod secret;
mod session;
mod stored_rights;
mod token;

pub use account::{
    AccountChange, EarlierTokens, NewAccount, OidcSubject, ProvenAccount, ROLLOUT_AUTHOR,
    UserAccount, check_display_name,
};
pub use audit::{AuditEntry, AuditOutcome, AuditRecord, AuditVerdict, Deed};
pub use error::PeopleError;
pub use handle::{AuthorProof, ChangeAuthor, People, PeopleChange};
pub use rights::{ApplicationRole, FleetRole, Operation, Rights, RoleChange, may};
pub use secret::Secret;
pub use secret::password::HashedPassword;
pub use session::{MOST_SESSIONS, SESSION_BEGINNING, Session, SessionTerms};
pub use token::{ApiToken, MOST_TOKENS, NewToken};
