//! The pages of people: signing in, one's own account, everybody's, and the audit log. `words` has
//! what they say of rights.

pub mod account;
pub mod audit;
pub mod people;
pub mod person;
mod presence;
pub mod provider;
pub mod sign_in;
mod words;
