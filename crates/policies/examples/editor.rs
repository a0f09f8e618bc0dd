//! Commits revisions: each line of standard input is a JSON list of edits, and each line of its
//! output the number of the revision that they have become. Nothing is checked but what the
//! database itself asks for.
//!
//! ```sh
//! echo '[{"id": {"kind": "plan", "application": "shop", "name": "gold"}, "expected": "any", "body": {}}]' |
//!   cargo run -p tollgate-policies --example editor sqlite:///tmp/policies.db
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::io::{Write as _, stdin, stdout};

use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::Draft;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("give the URL of a database")?;
    let database = PolicyDatabase::open(&url)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(database.migrate())?;
    for line in stdin().lines() {
        let edits = serde_json::from_str(&line?)?;
        let draft = Draft {
            edits,
            author: "editor".to_owned(),
            reason: "an example".to_owned(),
        };
        let revision = runtime.block_on(database.commit(&draft, |_| Ok::<_, Infallible>(())))?;
        writeln!(stdout(), "{}", revision.number)?;
        stdout().flush()?;
    }
    Ok(())
}
