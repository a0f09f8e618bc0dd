//! The console: what the admin port knows, as pages for people.
//!
//! `router` is the table of paths; `pages` has a file for each page, `templates` their markup,
//! which is compiled in and escaped, and `assets` the stylesheet, the script and the library for
//! charts. `shell` is the frame around a page. `live` takes samples of the metrics every two
//! seconds and keeps ten minutes of them. `guard` stands before every page and `forms` before every
//! change, with `tokens`. `editor` has the pages of policies, and `numbers` writes numbers with
//! their units. Everything is read from `state`. No script is needed but for what moves by itself.
//! In builds with the feature `console` alone.

mod assets;
mod editor;
mod forms;
mod guard;
pub mod live;
mod numbers;
mod pages;
mod router;
mod shell;
pub mod state;
pub mod tokens;

pub use router::{INDEX, lead_browsers, router};
