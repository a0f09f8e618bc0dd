//! Changes of policies, as the API and the console make them: rights first, then the check, then a
//! revision.
//!
//! `proposal` does all of that. `document` is the whole of the policies as people keep it beside
//! code, and `refusal` says what is wrong, each mistake at its place.

pub mod document;
pub mod proposal;
pub mod refusal;
mod revoked_keys;
