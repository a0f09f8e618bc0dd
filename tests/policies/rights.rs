//! The table of roles: what each may do with the strategies of an application, by the API and in
//! the console.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};
use tollgate_policies::model::{Expected, ObjectEdit, ObjectId, ObjectKind};
use tollgate_policies::people::{ApplicationRole, FleetRole, Rights};

use crate::editor::{Editor, await_revision, first_edits, routes};
use crate::port::Port;
use crate::process::Gateway;
use crate::scene::{Scene, new_database};
use crate::visit::Visit;

/// The rights of each, by the API and in the console alike. Without an account nothing is done at
/// all.
const TABLE: &str = "
                                   nobody  viewer  editor  owner   operator  admin
look at a strategy of shop         -       yes     yes     yes     yes       yes
see who created and updated it     -       yes     yes     yes     yes       yes
create one                         -       -       yes     yes     -         yes
change it                          -       -       yes     yes     -         yes
undo a change of it                -       -       yes     yes     -         yes
delete it                          -       -       -       yes     -         yes
look at one of bank                -       -       -       -       yes       yes
see who created and updated it     -       -       -       -       yes       yes
create one                         -       -       -       -       -         yes
change it                          -       -       -       -       -         yes
undo a change of it                -       -       -       -       -         yes
delete it                          -       -       -       -       -         yes
";

/// Characters of the first column, and of those of the roles.
const POINTS: usize = 35;
const COLUMNS: [usize; 6] = [8, 8, 8, 8, 10, 5];

fn roles() -> [(&'static str, Rights); 6] {
    let shop = |role| Rights::new("shop", role);
    [
        ("nobody", Rights::default()),
        ("viewer", shop(ApplicationRole::Viewer)),
        ("editor", shop(ApplicationRole::Editor)),
        ("owner", shop(ApplicationRole::Owner)),
        (
            "operator",
            Rights {
                fleet: Some(FleetRole::Operator),
                ..Rights::default()
            },
        ),
        ("admin", Rights::admin()),
    ]
}

fn strategy(burst: u64) -> Json {
    json!({"limit": {"key": {"constant": "all"}, "rate": "1/h", "burst": burst}, "resources": ["all"]})
}

/// The burst of the strategy that is undone.
const UNDONE: u64 = 8;

/// Ada, who makes the strategies that others then try to change.
struct Maker(Editor);

impl Maker {
    fn write(&self, application: &str, name: &str, body: Json) -> u64 {
        let id = ObjectId::new(ObjectKind::Strategy, application, name).unwrap();
        self.0.commit(vec![ObjectEdit {
            id,
            expected: Expected::Any,
            body: Some(body),
        }])
    }

    fn head(&self) -> u64 {
        self.0.wait(self.0.database.head()).unwrap().revision
    }
}

/// A way to the policies. Each answers with its status, and what it says.
trait PolicyAccess {
    fn look(&self, application: &str, name: &str) -> (u16, String);
    fn stamps(&self, application: &str, name: &str) -> (u16, String);
    fn write(&self, application: &str, name: &str, seen: Option<u64>) -> u16;
    fn undo(&self, revision: u64) -> u16;
    fn delete(&self, application: &str, name: &str, seen: u64) -> u16;
}

impl PolicyAccess for Port<'_> {
    fn look(&self, application: &str, name: &str) -> (u16, String) {
        let found = self.get(&format!(
            "/policies/applications/{application}/strategies/{name}"
        ));
        (
            found.status,
            found.body["body"]["limit"]["rate"].to_string(),
        )
    }

    fn stamps(&self, application: &str, name: &str) -> (u16, String) {
        let found = self.get(&format!(
            "/policies/applications/{application}/strategies/{name}"
        ));
        (
            found.status,
            format!("{}, {}", found.body["created"], found.body["changed"]),
        )
    }

    fn write(&self, application: &str, name: &str, seen: Option<u64>) -> u16 {
        let seen = seen.map(|seen| format!("\"{seen}\"")).unwrap_or_default();
        let target = format!("/policies/applications/{application}/strategies/{name}?reason=x");
        self.put(&target, &seen, &strategy(7)).status
    }

    fn undo(&self, revision: u64) -> u16 {
        self.send(
            "POST",
            &format!("/policies/revisions/{revision}/undo?reason=x"),
            &[],
            None,
        )
        .status
    }

    fn delete(&self, application: &str, name: &str, seen: u64) -> u16 {
        let target = format!("/policies/applications/{application}/strategies/{name}?reason=x");
        self.send("DELETE", &target, &[&format!("If-Match: \"{seen}\"")], None)
            .status
    }
}

impl PolicyAccess for Visit<'_> {
    fn look(&self, application: &str, name: &str) -> (u16, String) {
        self.read(&format!(
            "/edit?application={application}&kind=strategy&name={name}"
        ))
    }

    fn stamps(&self, application: &str, name: &str) -> (u16, String) {
        let (status, page) = self.read(&format!("/applications/{application}"));
        let row = page
            .split("<tr>")
            .find(|row| row.contains(&format!(">{name}</a>")))
            .unwrap_or_default();
        (status, row.to_owned())
    }

    fn write(&self, application: &str, name: &str, seen: Option<u64>) -> u16 {
        let body = strategy(7).to_string();
        let seen = seen.map_or_else(|| "absent".to_owned(), |seen| seen.to_string());
        save(
            self,
            "/edit",
            &[
                ("application", application),
                ("name", name),
                ("expected", &seen),
                ("body", &body),
            ],
        )
    }

    fn undo(&self, revision: u64) -> u16 {
        save(self, &format!("/revisions/{revision}"), &[])
    }

    fn delete(&self, application: &str, name: &str, seen: u64) -> u16 {
        let seen = seen.to_string();
        let fields = [
            ("application", application),
            ("name", name),
            ("expected", &seen),
            ("action", "delete"),
        ];
        save(self, "/edit", &fields)
    }
}

/// Sends the last form of a change, though its page may never have been shown. 200: it was done.
fn save(visit: &Visit<'_>, path: &str, more: &[(&str, &str)]) -> u16 {
    let token = visit.form_token();
    let known = [
        ("token", token.as_str()),
        ("kind", "strategy"),
        ("step", "save"),
        ("reason", "x"),
    ];
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let answer = visit.submit(
        path,
        &known.iter().chain(more).map(owned).collect::<Vec<_>>(),
    );
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap();
    // It leads on to the revision.
    if status == 303 { 200 } else { status }
}

/// Tries every point of the table, and says which were done. All others must be a `refusal` that
/// changes nothing; a revision that is not to be looked at is not there.
fn tries(way: &dyn PolicyAccess, maker: &Maker, refusal: u16) -> Vec<bool> {
    let mut done = Vec::new();
    for application in ["shop", "bank"] {
        let name = format!("s{}", maker.head());
        maker.write(application, &name, strategy(3));
        maker.write(application, &name, strategy(4));
        for ((status, text), told) in [
            (way.look(application, &name), "1/h"),
            (way.stamps(application, &name), "ada"),
        ] {
            assert_eq!(
                (status == 200, status == refusal),
                (text.contains(told), !text.contains(told)),
                "{text}"
            );
            done.push(status == 200);
        }
        let mut attempt = |burst, act: &dyn Fn(u64) -> u16| {
            let before = maker.write(application, &name, strategy(burst));
            let status = act(before);
            let is_hidden = status == 404 && burst == UNDONE && application == "bank";
            assert!(
                is_hidden || [200, refusal].contains(&status),
                "{status} in {application}"
            );
            assert_eq!(
                maker.head() - before,
                u64::from(status == 200),
                "{status} in {application}"
            );
            done.push(status == 200);
        };
        attempt(5, &|seen| {
            way.write(application, &format!("new-{seen}"), None)
        });
        attempt(6, &|seen| way.write(application, &name, Some(seen)));
        attempt(UNDONE, &|seen| way.undo(seen));
        attempt(9, &|seen| way.delete(application, &name, seen));
    }
    done
}

#[test]
fn a_limit_of_the_file_belongs_to_no_application_however_it_is_called() {
    let (folder, url, editor) = new_database();
    let candidate = json!({"limit": {"key": {"constant": "all"}, "rate": "9/h"}, "on": "shadow", "bounds": {"denials": "5%"}});
    let mut tried = strategy(3);
    tried["candidate"] = candidate;
    let id = ObjectId::new(ObjectKind::Strategy, "shop", "tried").unwrap();
    let tried = ObjectEdit {
        id,
        expected: Expected::Any,
        body: Some(tried),
    };
    editor.commit(first_edits().into_iter().chain([tried]).collect());
    let limit = "limits: {shop.file: {key: client_ip, rate: 1/h}}";
    let file =
        routes(&url, folder.path(), limit).replace("body: ok}}", "body: ok}, limits: [shop.file]}");
    let gateway = Gateway::start(&file);
    await_revision(&gateway, 1);
    let owner = Port::of(
        &gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    let visit = Visit::with(&gateway, editor.begin_session("owner"));
    let admin = Port::admin(&gateway, &editor);
    for (limit, key, status) in [
        ("shop.few", "shop.few:all", 200),
        ("shop.tried.candidate", "shop.tried.candidate:all", 200),
        ("shop.file", "shop.file:127.0.0.1", 403),
    ] {
        let bucket = format!("/buckets/{limit}?key={key}");
        assert_eq!(owner.get(&bucket).status, status, "{limit}");
        assert_eq!(
            owner.send("DELETE", &bucket, &[], None).status,
            status,
            "{limit}"
        );
        assert_eq!(
            visit.read(&format!("/limits/{limit}/bucket?key={key}")).0,
            status,
            "{limit}"
        );
        assert_eq!(admin.get(&bucket).status, 200, "{limit}");
    }
}

#[test]
fn a_revision_that_somebody_may_not_look_at_is_not_there_to_be_undone() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let banker = Port::of(
        &gateway,
        &editor,
        "banker",
        Rights::new("bank", ApplicationRole::Editor),
    );
    for revision in [1, 7] {
        for way in ["undo", "revert"] {
            let answer = banker.send(
                "POST",
                &format!("/policies/revisions/{revision}/{way}?reason=x"),
                &[],
                None,
            );
            assert_eq!(answer.status, 404, "{way} of {revision}: {answer:?}");
            assert!(
                !answer.body.to_string().contains("shop"),
                "{way} of {revision}: {answer:?}"
            );
        }
    }
    let visit = Visit::with(&gateway, editor.begin_session("banker"));
    assert_eq!(visit.undo(1), 404);
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is there to be read")]
fn each_role_may_do_with_a_strategy_what_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/policies.db", folder.path().display());
    let maker = Maker(Editor::of(&url));
    for (application, route) in [("shop", "orders"), ("bank", "items")] {
        let own = ObjectId::of_application(application).unwrap();
        let all = ObjectId::new(ObjectKind::Resource, application, "all").unwrap();
        let bodies = [
            (own, json!({"routes": [route]})),
            (all, json!({"route": route})),
        ];
        let edit = |(id, body)| ObjectEdit {
            id,
            expected: Expected::Any,
            body: Some(body),
        };
        maker.0.commit(bodies.map(edit).into());
    }
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    await_revision(&gateway, 2);
    let mut columns = Vec::new();
    for (name, rights) in roles() {
        let port = Port::of(&gateway, &maker.0, name, rights);
        let visit = Visit::with(&gateway, maker.0.begin_session(name));
        let by_api = tries(&port, &maker, 403);
        assert_eq!(
            tries(&visit, &maker, 403),
            by_api,
            "{name}: the console and the API differ"
        );
        columns.push(by_api);
    }
    let stranger = tries(&Port::stranger(&gateway), &maker, 401);
    assert!(
        stranger.iter().all(|done| !done),
        "without an account: {stranger:?}"
    );

    let mut table = String::new();
    for (line, expected) in TABLE.lines().enumerate() {
        let cells: Vec<&str> = match line {
            0 => Vec::new(),
            1 => roles().map(|(name, _)| name).to_vec(),
            _ => columns
                .iter()
                .map(|done| if done[line - 2] { "yes" } else { "-" })
                .collect(),
        };
        let cells: String = cells
            .iter()
            .zip(COLUMNS)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let point = expected.get(..POINTS).unwrap_or_default();
        writeln!(table, "{}", format!("{point}{cells}").trim_end()).unwrap();
    }
    println!("{table}");
    assert_eq!(table, TABLE, "{table}");
}
