//! Plans kept in the shared store: what this node has read of them, and how it reads more.

pub mod cache;
pub mod reader;
