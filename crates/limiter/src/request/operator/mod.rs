//! An operator's view of limits: looked up by name (`catalog`), and applied to one description
//! request (`explanation`). Nothing here is on a request's way.

pub mod catalog;
pub mod explanation;
