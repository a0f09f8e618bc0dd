//! The configuration: from a file to types of the domain, or to a list of all that is wrong with
//! the file.
//!
//! A file passes through three rooms. `yaml` reads text into a tree and values off the tree; `file`
//! mirrors the file, one section each, and refuses unknown keys; `check` looks up names, compares
//! sections and builds [`Config`]. Mistakes of all three are collected in `report` and reported at
//! once. `load` is the way in: `source` reads the text of a file, `include` joins the trees of
//! several, and `defaults` completes what stands in them. `printed` writes all of that as one file.
//! `watch` notices a changed file, `source_watch` any of several. `load_keys` is the way in of
//! files of credentials, `load_endpoints` of a file of endpoints. `policies` lays what people edit
//! elsewhere over the tree of a file; `candidate` is a limit of them that is tried out. Types of
//! the domain know nothing of this module. (`yaml` says why decoding is not left to serde.)

mod candidate;
mod check;
mod defaults;
mod file;
mod include;
mod load;
mod load_endpoints;
mod load_keys;
mod overlay;
mod printed;
mod report;
mod settings;
mod source;
pub mod source_watch;
pub mod watch;
mod yaml;

pub use candidate::{Candidate, CandidateBounds, CandidateTerms};
pub use check::ProbedAddress;
pub use file::scalar::http::{PublicUrl, registered_method};
pub use load::{
    Ground, Loaded, Reading, load, load_probed, load_stdin, parse, parse_with, read, read_ground,
    read_with,
};
pub use load_endpoints::load_endpoints;
pub use load_keys::{load_api_keys, load_key_set, load_users};
pub use overlay::document::PolicySet;
pub use printed::print;
pub use report::{Mistake, Mistakes};
pub use settings::{AdminSpec, Config, ListenerConfig, PolicySource, SignInSpec};
pub use source::{STDIN, of_file, of_stdin};

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
