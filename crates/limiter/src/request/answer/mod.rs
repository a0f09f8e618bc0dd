//! The client's view of its limits: the refusal of a request (`denial`), its body (`problem`), and the fields of each
//! answer (`headers`).

pub mod denial;
pub mod headers;
pub mod problem;
