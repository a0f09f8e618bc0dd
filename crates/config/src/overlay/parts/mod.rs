//! Parts of the file's routes: `changes` makes one of its route, `within` keeps it there, and
//! `bounds` says how many an application may have.

mod bounds;
pub mod changes;
mod within;
