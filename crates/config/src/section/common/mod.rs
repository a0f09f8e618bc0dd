//! Parts that several sections have: members that are found by name (`named`), header fields
//! (`header`), networks of clients (`networks`) and fixed answers (`respond`).

pub mod header;
pub mod named;
pub mod networks;
pub mod respond;
