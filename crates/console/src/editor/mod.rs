//! The pages of policies: applications, an object in a form, what a change would be, and the
//! history.
//!
//! `applications` and `application` show what there is, `form` changes an object in two steps,
//! with `fields` as the form of its kind and `choices` as the routes that it offers, and
//! `revisions` has the history. A change goes through the same
//! [`Proposal`](tollgate_team::changes::proposal) as one of the API: rights and checks are its.

pub mod application;
pub mod applications;
mod choices;
mod fields;
pub mod form;
pub mod revisions;
mod shown;
