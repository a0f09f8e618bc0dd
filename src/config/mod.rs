//! The configuration: from a file to types of the domain, or to a list of all that is wrong with the file.
//!
//! A file passes through three rooms. `yaml` reads text into a tree and values off the tree; `file` mirrors the file,
//! one section each, and refuses unknown keys; `check` looks up names, compares sections and builds [`Config`].
//! Mistakes of all three are collected in `report` and reported at once. `load` is the way in, `watch` notices a
//! changed file. Types of the domain know nothing of this module. (`yaml` says why decoding is not left to serde.)

mod check;
mod file;
mod load;
mod report;
mod settings;
pub mod watch;
mod yaml;

pub use file::scalar::http::registered_method;
pub use load::{Loaded, STDIN, load, load_admin, load_stdin, parse};
pub use report::{Mistake, Mistakes};
pub use settings::{AccessLogFormat, Config, ListenerConfig};

/// The JSON Schema of the file, for editors.
pub fn schema() -> serde_json::Value {
    yaml::schema::document::<file::config::RawConfig>("Tollgate routes.yaml")
}

impl Loaded {
    /// Logs the warnings.
    pub fn warn(&self) {
        for warning in &self.warnings {
            tracing::warn!(hint = warning.hint.as_deref(), "{}", warning.headline());
        }
    }
}
