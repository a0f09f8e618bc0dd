//! A gateway with accounts, and browsers and programs that use its admin port.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::people::People;

use crate::process::{Gateway, curl};

pub const PASSWORD: &str = "correct horse battery";

/// A gateway, and its database of accounts.
pub struct House {
    pub gateway: Gateway,
    file: String,
    /// How its admin port is spoken to.
    scheme: &'static str,
    /// How browsers call it.
    pub origin: String,
    folder: TempDir,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Somebody's browser, with the cookie of its session.
pub struct BrowserSession<'a> {
    house: &'a House,
    pub cookie: String,
}

impl House {
    /// A gateway without any account.
    pub fn empty() -> Self {
        Self::at("", "http", None)
    }

    /// A gateway whose admin server has `more` keys and is spoken to by `scheme`. Browsers call it
    /// by its address, unless it has an `origin`.
    pub fn at(more: &str, scheme: &'static str, origin: Option<&str>) -> Self {
        Self::of(more, "", scheme, origin)
    }

    /// A gateway that believes a proxy on this machine. Browsers call it by an `origin`.
    pub fn behind_proxy(origin: &str) -> Self {
        Self::of(
            &format!(", public_url: '{origin}'"),
            "trusted_proxies: [127.0.0.1]",
            "http",
            Some(origin),
        )
    }

    fn of(more: &str, rest: &str, scheme: &'static str, origin: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display();
        let routes = format!(
            "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'{more}}}
{rest}
policies: {{database: 'sqlite://{place}/policies.db', copy: '{place}/policies.json'}}
limits: {{per-client: {{key: client_ip, rate: 1/h, burst: 3}}}}
routes: [{{name: client, respond: {{status: 200}}, limits: [per-client]}}]
"
        );
        let file = folder.path().join("accounts.yaml");
        std::fs::write(&file, &routes).unwrap();
        let gateway = Gateway::start(&routes);
        let origin = origin.map_or_else(
            || format!("{scheme}://{}", gateway.admin),
            ToOwned::to_owned,
        );
        Self {
            gateway,
            file: file.display().to_string(),
            scheme,
            origin,
            folder,
        }
    }

    /// A gateway with these accounts, each with its roles as the command line has them. All have
    /// one password.
    pub fn with(accounts: &[(&str, &[&str])]) -> Self {
        let house = Self::empty();
        for (name, roles) in accounts {
            let mut args = vec!["account", "create", name];
            args.extend(*roles);
            house.done(&args);
        }
        house
    }

    /// Runs a command on the gateway's database, with the password as its standard input.
    pub fn command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .args(args)
            .args(["--config", &self.file])
            .env_remove("TOLLGATE_TOKEN");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that asks for none may have ended already.
        let _ = child
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{PASSWORD}\n").as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Its accounts, as another node has them.
    pub fn people(&self) -> People {
        let file = self.folder.path().join("policies.db");
        PolicyDatabase::open(&format!("sqlite://{}", file.display()))
            .unwrap()
            .people()
    }

    /// A connection to its database, around all gateways.
    pub async fn connect(&self) -> SqliteConnection {
        let file = self.folder.path().join("policies.db");
        let options = SqliteConnectOptions::new().filename(file);
        options.connect().await.unwrap()
    }

    /// The processor's time that its gateway has had, in ticks.
    pub fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.gateway.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let used = fields.split_whitespace().skip(11).take(2);
        used.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// A browser with a session that was begun elsewhere.
    pub fn browser(&self, cookie: String) -> BrowserSession<'_> {
        BrowserSession {
            house: self,
            cookie,
        }
    }

    /// The output of a command that succeeds.
    pub fn done(&self, args: &[&str]) -> String {
        let output = self.command(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks the admin port.
    pub fn ask(&self, method: &str, path: &str, more: &[&str]) -> Reply {
        self.ask_by(
            self.origin.rsplit('/').next().unwrap_or_default(),
            method,
            path,
            more,
        )
    }

    fn ask_by(&self, host: &str, method: &str, path: &str, more: &[&str]) -> Reply {
        let url = format!("{}://{}{path}", self.scheme, self.gateway.admin);
        let host = format!("Host: {host}");
        // Heads of HTTP/1.1 are read below.
        let mut args = vec!["-i", "-g", "-k", "--http1.1", "-H", &host, "-X", method];
        args.extend(more);
        args.push(&url);
        Reply::read(&curl(&args))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    /// Asks as a browser does that calls the gateway `host`.
    pub fn get_by(&self, path: &str, host: &str) -> Reply {
        self.ask_by(host, "GET", path, &[])
    }

    /// A token with all rights of an account.
    pub fn token(&self, account: &str) -> String {
        self.done(&["token", "create", account, "--label", "test"])
            .trim()
            .to_owned()
    }

    pub fn by_token(&self, method: &str, path: &str, token: &str) -> Reply {
        let bearer = format!("Authorization: Bearer {token}");
        self.ask(
            method,
            path,
            &["-H", &bearer, "-H", "X-Tollgate-Operator: somebody"],
        )
    }

    /// Sends the form of the page for signing in, as a browser with `cookie` does.
    pub fn try_to_sign_in(&self, name: &str, password: &str, cookie: &str) -> Reply {
        let cookie = format!("Cookie: {cookie}");
        let shown = self.ask("GET", "/console/sign-in", &["-H", &cookie]);
        let token = if shown.status == 200 {
            form_token(&shown.body)
        } else {
            String::new()
        };
        let fields = [
            ("token", token.as_str()),
            ("name", name),
            ("password", password),
            ("page", "/console/limits"),
        ];
        self.send_form("/console/sign-in", &fields, &[&cookie])
    }

    pub fn sign_in(&self, name: &str) -> BrowserSession<'_> {
        let reply = self.try_to_sign_in(name, PASSWORD, "");
        assert_eq!(reply.status, 303, "{}", reply.body);
        BrowserSession {
            house: self,
            cookie: reply.cookie(),
        }
    }

    /// Sends a form as a browser does that is on a page of the console.
    pub fn send_form(&self, path: &str, fields: &[(&str, &str)], headers: &[&str]) -> Reply {
        let origin = format!("Origin: {}", self.origin);
        let mut all = vec![origin.as_str(), "Sec-Fetch-Site: same-origin"];
        all.extend(headers);
        self.send_form_of(path, fields, &all)
    }

    /// Sends a form with no header fields but these.
    pub fn send_form_of(&self, path: &str, fields: &[(&str, &str)], headers: &[&str]) -> Reply {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut args = Vec::new();
        headers
            .iter()
            .for_each(|header| args.extend(["-H", header]));
        pairs
            .iter()
            .for_each(|pair| args.extend(["--data-urlencode", pair]));
        self.ask("POST", path, &args)
    }
}

impl BrowserSession<'_> {
    pub fn get(&self, path: &str) -> Reply {
        self.house
            .ask("GET", path, &["-H", &format!("Cookie: {}", self.cookie)])
    }

    /// The token of a page that everybody may see.
    pub fn form_token(&self) -> String {
        form_token(&self.get("/console/account").body)
    }

    /// When the account was made whose page this is; 1 where it has no form.
    pub fn made_at(&self, path: &str) -> Option<String> {
        let page = self.get(path).body;
        let (_, rest) = page
            .split_once("name=\"made_at\" value=\"")
            .unwrap_or(("", "1\""));
        rest.split('"').next().map(str::to_owned)
    }

    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let token = self.form_token();
        let is_of_account = path.starts_with("/console/people/")
            && fields.iter().all(|(name, _)| *name != "made_at");
        let made_at = if is_of_account {
            self.made_at(path)
        } else {
            None
        };
        let mut all = vec![("token", token.as_str())];
        all.extend(made_at.iter().map(|made_at| ("made_at", made_at.as_str())));
        all.extend(fields);
        self.house
            .send_form(path, &all, &[&format!("Cookie: {}", self.cookie)])
    }
}

impl Reply {
    fn read(answer: &str) -> Self {
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no head: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields
            .into_iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The cookie that it sets, as a browser sends it.
    pub fn cookie(&self) -> String {
        self.header("set-cookie")
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    }
}

/// The token of the first form of a page.
pub fn form_token(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"token\" value=\"")
        .unwrap_or_else(|| panic!("no token: {page}"));
    rest.split('"').next().unwrap().to_owned()
}
