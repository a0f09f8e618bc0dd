//! The pages of policies: applications, an object in a form, what a change would be, and the
//! history.
//!
//! `applications` and `application` show what there is, `editor` changes an object in two steps,
//! with `fields` as the form of its kind and `choices` as the routes that it offers, and
//! `revisions` has the history. A change goes through the same
//! [`Proposal`](crate::admin::policies::proposal) as one of the API: rights and checks are its.

pub mod application;
pub mod applications;
mod choices;
pub mod editor;
mod fields;
pub mod revisions;
mod shown;
