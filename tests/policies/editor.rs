//! Somebody who changes policies, and the gateways that follow.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tollgate_policies::database::{Page, PolicyDatabase};
use tollgate_policies::model::{Draft, Expected, ObjectEdit, ObjectId, ObjectKind, Revision};
use tollgate_policies::people::{
    AuthorProof, ChangeAuthor, NewAccount, NewToken, PeopleError, Rights, SessionTerms,
};

use crate::process::{Gateway, eventually, status};

pub const REVISION: &str = "tollgate_policy_revision";
pub const AGE: &str = "tollgate_policy_age_seconds";
pub const APPLIED: &str = "tollgate_policy_updates_total{outcome=\"applied\"}";
pub const REFUSED: &str = "tollgate_policy_updates_total{outcome=\"refused\"}";

/// Writes to a database around all gateways.
pub struct Editor {
    runtime: Runtime,
    pub database: PolicyDatabase,
}

impl Editor {
    pub fn of(url: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let database = PolicyDatabase::open(url).unwrap();
        runtime.block_on(database.migrate()).unwrap();
        Self { runtime, database }
    }

    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Commits a revision. Whether it is good is for the nodes to say.
    pub fn commit(&self, edits: Vec<ObjectEdit>) -> u64 {
        let draft = Draft {
            edits,
            author: "ada".to_owned(),
            reason: "a test".to_owned(),
        };
        let committed = self
            .runtime
            .block_on(self.database.commit(&draft, |_| Ok::<_, String>(())));
        committed.unwrap_or_else(|error| panic!("{error}")).number
    }

    /// All revisions, the newest first.
    pub fn history(&self) -> Vec<Revision> {
        self.runtime
            .block_on(self.database.history(Page::default()))
            .unwrap()
    }

    /// An object of the application, as it stands now.
    pub fn body(&self, kind: ObjectKind, name: &str) -> Json {
        let state = self.runtime.block_on(self.database.state(None)).unwrap();
        (*state
            .get(&ObjectId::new(kind, "shop", name).unwrap())
            .unwrap()
            .body)
            .clone()
    }

    /// The field by which an admin who has signed in asks for pages of the console.
    pub fn sign_in(&self) -> String {
        self.make_account("ada", Rights::admin());
        self.begin_session("ada")
    }

    pub fn make_account(&self, name: &str, rights: Rights) {
        let (name, display_name) = (name.to_owned(), name.to_owned());
        let account = NewAccount {
            name,
            display_name,
            rights,
            ..NewAccount::default()
        };
        let people = self.database.people();
        self.wait(async {
            let mut change = people.begin(&OPERATOR).await?;
            change.create(&account).await?;
            change.commit_unrecorded().await?;
            Ok::<_, PeopleError>(())
        })
        .unwrap();
    }

    /// A token of an account, for as much as its scope says.
    pub fn make_token(&self, name: &str, scope: Rights) -> String {
        let token = NewToken {
            label: "a test".to_owned(),
            scope,
            expires_in: None,
        };
        let people = self.database.people();
        let made = self.wait(async {
            let mut change = people.begin(&OPERATOR).await?;
            let (secret, _) = change.create_token(name, &token).await?;
            change.commit_unrecorded().await?;
            Ok::<_, PeopleError>(secret)
        });
        made.unwrap().expose().to_owned()
    }

    /// The field by which somebody who has signed in asks for pages of the console.
    pub fn begin_session(&self, name: &str) -> String {
        let hour = Duration::from_secs(3_600);
        let terms = SessionTerms {
            idle: hour,
            absolute: hour,
        };
        let people = self.database.people();
        let begun = self.wait(async {
            let mut change = people.begin(&OPERATOR).await?;
            let (secret, _) = change.begin_session(name, terms).await?;
            change.commit_unrecorded().await?;
            Ok::<_, PeopleError>(secret)
        });
        format!("cookie: tollgate={}", begun.unwrap().expose())
    }
}

/// Somebody at a terminal.
const OPERATOR: ChangeAuthor<'_> = ChangeAuthor {
    account: "",
    address: "command line",
    proof: AuthorProof::Trusted,
};

pub fn edit(kind: ObjectKind, name: &str, body: Json) -> ObjectEdit {
    let id = ObjectId::new(kind, "shop", name).unwrap();
    ObjectEdit {
        id,
        expected: Expected::Any,
        body: Some(body),
    }
}

/// The application, with these routes as its own.
pub fn owning(routes: &[&str]) -> ObjectEdit {
    let id = ObjectId::of_application("shop").unwrap();
    ObjectEdit {
        id,
        expected: Expected::Any,
        body: Some(json!({"routes": routes})),
    }
}

/// A limit of all requests of a route together.
pub fn strategy(name: &str, burst: u64, resource: &str) -> ObjectEdit {
    let limit = json!({"key": {"constant": "all"}, "rate": "1/h", "burst": burst});
    edit(
        ObjectKind::Strategy,
        name,
        json!({"limit": limit, "resources": [resource]}),
    )
}

/// Resources for the routes of [`routes`], and a limit of three for the first.
pub fn first_edits() -> Vec<ObjectEdit> {
    vec![
        owning(&["orders", "items"]),
        edit(ObjectKind::Resource, "all", json!({"route": "orders"})),
        edit(ObjectKind::Resource, "items", json!({"route": "items"})),
        strategy("few", 3, "all"),
    ]
}

/// A gateway with a copy in `folder`.
pub fn routes(database: &str, folder: &Path, more: &str) -> String {
    let copy = copy(folder);
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
policies: {{database: '{database}', copy: '{copy}'}}
{more}
routes:
  - {{name: orders, match: {{path: '/orders/*'}}, respond: {{status: 200, body: ok}}}}
  - {{name: items, match: {{path: '/items'}}, respond: {{status: 200, body: ok}}}}
  - {{name: free, match: {{path: /free}}, respond: {{status: 200, body: ok}}}}
"
    )
}

pub fn copy(folder: &Path) -> String {
    format!("{}/node/policies.json", folder.display())
}

pub fn await_revision(gateway: &Gateway, revision: u64) {
    eventually(&format!("the node runs revision {revision}"), || {
        (gateway.metric(REVISION) as u64 == revision).then_some(())
    });
}

/// Sends so many requests. Returns how many of them passed.
pub fn spend(gateway: &Gateway, path: &str, requests: usize) -> usize {
    (0..requests)
        .filter(|_| status(&[&gateway.url(path)]) == 200)
        .count()
}

pub fn await_log(gateway: &Gateway, words: &str) {
    eventually(&format!("the log has {words:?}"), || {
        gateway.log().contains(words).then_some(())
    });
}
