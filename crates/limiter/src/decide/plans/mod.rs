//! Plans in the shared store: those that this node has read (`cache`), and how it reads more
//! (`reader`).

pub mod cache;
pub mod reader;
