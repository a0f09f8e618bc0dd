//! The configuration: from a file to types of the domain, or to a list of all that is wrong with
//! the file.
//!
//! **Ways in.** `load` takes a file, `load_keys` and `load_endpoints` the files that it names, and
//! `printed` shows a file in one piece. `source` reads text, `include` joins files, `watch` and
//! `source_watch` notice changes.
//!
//! **Sections.** `section` has all that is to know of each section: its keys, its rules, and the
//! types of the domain that it becomes. `settings` is what comes of the whole: [`Config`].
//!
//! **Tools.** `yaml` reads trees and types off them, `scalar` has values that sections share, and
//! `report` collects all mistakes. (`yaml` says why decoding is not left to serde.)
//!
//! **Policies.** `policies` puts what people edit elsewhere over the tree of a file, and
//! `candidate` is a limit of them that is tried out.
//!
//! Types of the domain know nothing of this module.

mod candidate;
mod include;
mod load;
mod load_endpoints;
mod load_keys;
mod overlay;
mod printed;
mod report;
mod scalar;
mod section;
mod settings;
mod source;
pub mod source_watch;
pub mod watch;
mod yaml;

pub use candidate::{Candidate, CandidateBounds, CandidateTerms};
pub use load::{
    Ground, Loaded, Reading, load, load_probed, load_stdin, parse, parse_with, read, read_ground,
    read_with,
};
pub use load_endpoints::load_endpoints;
pub use load_keys::{load_api_keys, load_key_set, load_users};
pub use overlay::document::PolicySet;
pub use printed::print;
pub use report::{Mistake, Mistakes};
pub use scalar::http::registered_method;
pub use section::admin::server::ProbedAddress;
pub use settings::{AdminSpec, Config, ListenerConfig, PolicySource, PublicUrl, SignInSpec};
pub use source::{STDIN, read_file, read_stdin};

/// The JSON Schema of the file, for editors.
pub fn schema() -> serde_json::Value {
    yaml::schema::document::<section::root::RawConfig>("Tollgate routes.yaml")
}

impl Loaded {
    /// Logs the warnings.
    pub fn warn(&self) {
        for warning in &self.warnings {
            tracing::warn!(hint = warning.hint.as_deref(), "{}", warning.headline());
        }
    }
}
