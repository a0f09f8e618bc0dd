//! The admin port of a gateway with policies, asked as programs and people ask it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use tollgate_policies::people::Rights;

use crate::editor::Editor;
use crate::process::{Gateway, curl};

/// Somebody with an account, at the admin port of a node.
pub struct Port<'a> {
    gateway: &'a Gateway,
    pub token: String,
    name: String,
}

/// An answer of the port.
#[derive(Debug)]
pub struct PortAnswer {
    pub status: u16,
    pub etag: String,
    pub body: Json,
}

impl<'a> Port<'a> {
    /// Makes an account with these rights.
    pub fn of(gateway: &'a Gateway, editor: &Editor, name: &str, rights: Rights) -> Self {
        editor.make_account(name, rights.clone());
        Self {
            gateway,
            token: editor.make_token(name, rights),
            name: name.to_owned(),
        }
    }

    pub fn admin(gateway: &'a Gateway, editor: &Editor) -> Self {
        Self::of(gateway, editor, "ada", Rights::admin())
    }

    /// Somebody without an account.
    pub fn stranger(gateway: &'a Gateway) -> Self {
        Self {
            gateway,
            token: "tgt_made-up".to_owned(),
            name: "eve".to_owned(),
        }
    }

    pub fn get(&self, target: &str) -> PortAnswer {
        self.send("GET", target, &[], None)
    }

    pub fn post(&self, target: &str, body: &Json) -> PortAnswer {
        self.send("POST", target, &[], Some(body))
    }

    /// Makes or changes an object; `seen` is its `If-Match`, or nothing if it is new.
    pub fn put(&self, target: &str, seen: &str, body: &Json) -> PortAnswer {
        let condition = if seen.is_empty() {
            "If-None-Match: *".to_owned()
        } else {
            format!("If-Match: {seen}")
        };
        self.send("PUT", target, &[&condition], Some(body))
    }

    pub fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: Option<&Json>,
    ) -> PortAnswer {
        let url = format!("http://{}{target}", self.gateway.admin);
        let own = [
            format!("Authorization: Bearer {}", self.token),
            format!("X-Tollgate-Operator: {}", self.name),
        ];
        let mut args = ["-g", "-X", method, "-w", "\n%{http_code} %header{etag}"]
            .map(str::to_owned)
            .to_vec();
        let fields = own
            .iter()
            .map(String::as_str)
            .chain(headers.iter().copied())
            .chain(["Content-Type: application/json"]);
        args.extend(fields.flat_map(|field| ["-H".to_owned(), field.to_owned()]));
        // By a file: an argument may not be that long.
        let sent = body.map(|body| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), body.to_string()).unwrap();
            file
        });
        args.extend(sent.iter().flat_map(|file| {
            [
                "--data-binary".to_owned(),
                format!("@{}", file.path().display()),
            ]
        }));
        args.push(url);
        let said = curl(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let (body, end) = said.rsplit_once('\n').unwrap();
        let (status, etag) = end.split_once(' ').unwrap();
        let read = serde_json::from_str(body).unwrap_or_else(|_| Json::String(body.to_owned()));
        PortAnswer {
            status: status.parse().unwrap(),
            etag: etag.to_owned(),
            body: read,
        }
    }

    /// Runs `tollgate policy …`.
    pub fn policy(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .arg("policy")
            .args(args)
            .env("TOLLGATE_ADMIN", format!("http://{}", self.gateway.admin));
        command
            .env("TOLLGATE_TOKEN", &self.token)
            .env("TOLLGATE_OPERATOR", &self.name)
            .output()
            .unwrap()
    }

    /// Like `policy`, which must do it.
    pub fn policy_text(&self, args: &[&str]) -> String {
        let output = self.policy(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Like `policy`, which must refuse it.
    pub fn policy_refusal(&self, args: &[&str]) -> String {
        let output = self.policy(args);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8(output.stderr).unwrap()
    }
}

/// A file with this text.
pub fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}
