//! Policies that people edit beside the file. `source` is the section of the file, `document` what
//! is in a policy document, with `candidate` and `strategy_limit` for the limits in it.

pub mod candidate;
pub mod document;
pub mod source;
pub mod strategy_limit;
