//! `policies`: the database of policies, and this node's copy of them.

use crate::settings::{DatabaseUrl, PolicySource};
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

record! {
    /// Policies that people edit, kept in a database.
    RawPolicySource {
        /// The database: sqlite:///path, postgres://user:password@host/name or
        /// mysql://user:password@host/name.
        required database: Located<DatabaseUrl>,
        /// This node's copy of the policies that it runs: it starts with them when the database is
        /// away.
        default("/var/lib/tollgate/policies.json") copy: Located<CopyPath>,
        /// Whether a start without database and copy fails. Otherwise the limits of the file hold
        /// alone until the database answers.
        default(true) required: Located<bool>,
    }
}

/// The absolute path of a copy.
#[derive(Clone)]
pub struct CopyPath(pub PathBuf);

impl Scalar for DatabaseUrl {
    const WHAT: &'static str = "the address of a database";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        check_database(text)?;
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("(sqlite|postgres|postgresql|mysql|mariadb):.+") })
    }
}

#[cfg(feature = "team")]
fn check_database(text: &str) -> Result<(), ValueProblem> {
    match tollgate_policies::database::PolicyDatabase::open(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(ValueProblem::new(format!(
            "this is not the address of a database: {error}"
        ))
        .hint(
            "write sqlite:///var/lib/tollgate/policies.db, postgres://user:password@host/name or \
             mysql://user:password@host/name, with special characters of the password percent-encoded",
        )),
    }
}

#[cfg(not(feature = "team"))]
fn check_database(_: &str) -> Result<(), ValueProblem> {
    let problem = ValueProblem::new("this build of Tollgate has no policies in a database");
    Err(problem.hint("use a build with the feature `team`, or leave `policies` out"))
}

impl Scalar for CopyPath {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.starts_with('/') && !text.ends_with('/') {
            return Ok(Self(text.into()));
        }
        let problem = ValueProblem::new(format!(
            "{} is not the absolute path of a file",
            quote(text)
        ));
        Err(problem.hint("write all of it, such as /var/lib/tollgate/policies.json"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*[^/]") })
    }
}

pub fn policy_source(raw: &RawPolicySource) -> Option<PolicySource> {
    Some(PolicySource {
        database: raw.database.value()?,
        copy: raw.copy.value()?.0,
        required: raw.required.value()?,
    })
}
