//! The client's view of its limits: the refusal of a request (`denial`), its body (`problem`), the
//! fields of each answer (`headers`), and the id of the request (`request_id`).

pub mod denial;
pub mod headers;
pub mod problem;
pub mod request_id;
