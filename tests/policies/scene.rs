//! The place where most tests begin: a SQLite database of policies, and a gateway that follows it.

use tempfile::TempDir;
use tollgate_policies::model::ObjectEdit;

use crate::editor::{Editor, await_revision, routes};
use crate::process::Gateway;

/// A gateway, and somebody who changes its policies.
pub struct Scene {
    pub gateway: Gateway,
    pub editor: Editor,
    pub folder: TempDir,
}

impl Scene {
    /// With a database without policies.
    pub fn empty() -> Self {
        let (folder, url, editor) = new_database();
        Self {
            gateway: Gateway::start(&routes(&url, folder.path(), "")),
            editor,
            folder,
        }
    }

    /// Where the gateway runs the revision that `edits` make.
    pub fn of(edits: Vec<ObjectEdit>) -> Self {
        let (folder, url, editor) = new_database();
        editor.commit(edits);
        let gateway = Gateway::start(&routes(&url, folder.path(), ""));
        await_revision(&gateway, 1);
        Self {
            gateway,
            editor,
            folder,
        }
    }
}

/// The folder, the URL and an editor of a SQLite database without policies.
pub fn new_database() -> (TempDir, String, Editor) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/policies.db", folder.path().display());
    let editor = Editor::of(&url);
    (folder, url, editor)
}
