//! `tollgate account` and `tollgate token`: the people who may use the admin port, in the database
//! that the file names.
//!
//! Both need no running gateway: access to the file's database is the right to name its users.
//! `roles` has the arguments for roles.

pub mod account;
mod roles;
pub mod token;

use std::future::Future;
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::people::{AuthorProof, ChangeAuthor, Deed, People, PeopleChange};

use tollgate_config as config;

/// The file that names the database.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// The configuration file, which names the database.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "routes.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    config: PathBuf,
}

impl DatabaseArgs {
    /// Does `work` with the accounts of the database, of the newest schema.
    ///
    /// # Errors
    /// When the file names no database, or that cannot be asked.
    pub fn with_people<F: Future<Output = anyhow::Result<String>>>(
        &self,
        work: impl FnOnce(People) -> F,
    ) -> anyhow::Result<String> {
        let database = database(&self.config)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let done = runtime.block_on(async {
            database.migrate().await?;
            work(database.people()).await
        });
        runtime.shutdown_background();
        done
    }
}

fn database(file: &Path) -> anyhow::Result<PolicyDatabase> {
    let Some(source) = config::load(file)?.config.policies else {
        anyhow::bail!(
            "{} names no database. Add\n  policies: {{database: 'sqlite:///var/lib/tollgate/policies.db'}}",
            file.display()
        );
    };
    Ok(PolicyDatabase::open(&source.database.0)?)
}

/// Begins a change by somebody at a terminal.
async fn begin(people: &People) -> anyhow::Result<PeopleChange<'_>> {
    let operator = ChangeAuthor {
        account: "",
        address: "command line",
        proof: AuthorProof::Trusted,
    };
    Ok(people.begin(&operator).await?)
}

/// Ends a change with its entry in the audit log.
async fn commit(change: PeopleChange<'_>, deed: &Deed<'_>) -> anyhow::Result<()> {
    let user = std::env::var("USER").unwrap_or_default();
    let detail = format!("{} (user {user} of the machine)", deed.detail);
    let deed = Deed {
        detail: detail.trim_start(),
        ..*deed
    };
    change.commit(&deed).await?;
    Ok(())
}
