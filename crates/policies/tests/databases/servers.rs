//! PostgreSQL and MariaDB of this test run's own, on ports of their own with data in a temporary
//! folder, and databases in them. A program that is missing fails the test, with a message that
//! says what to install.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;
use tollgate_policies::database::PolicyDatabase;
use tollgate_testing::answer_within;

/// The password, which no error and no log may show.
pub const PASSWORD: &str = "hunter2";

/// More than a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    Sqlite,
    Postgres,
    MariaDb,
}

/// A database that no other test uses, without tables.
pub struct TestDatabase {
    pub product: Product,
    pub url: String,
    /// Of a SQLite database.
    pub folder: Option<TempDir>,
}

impl TestDatabase {
    pub async fn new(product: Product) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        if product == Product::Sqlite {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite://{}/policies.db", folder.path().display());
            return Self {
                product,
                url,
                folder: Some(folder),
            };
        }
        let server = tokio::task::spawn_blocking(move || port_of(product))
            .await
            .unwrap();
        run(
            &url_of(product, server, None),
            &format!("CREATE DATABASE {name}"),
        )
        .await;
        Self {
            product,
            url: url_of(product, server, Some(&name)),
            folder: None,
        }
    }

    /// A handle of its own, as another node has one.
    pub fn handle(&self) -> PolicyDatabase {
        PolicyDatabase::open_with(&self.url, PATIENCE).unwrap()
    }

    /// A handle, and the tables are there.
    pub async fn migrated(&self) -> PolicyDatabase {
        let database = self.handle();
        database.migrate().await.unwrap();
        database
    }

    /// Runs a statement like somebody who goes around Tollgate.
    pub async fn run(&self, sql: &str) {
        run(&self.url, sql).await;
    }

    pub async fn try_run(&self, sql: &str) -> Result<(), sqlx::Error> {
        try_run(&self.url, sql).await
    }

    pub fn file(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("policies.db")
    }

    /// Where its server listens.
    pub fn port(&self) -> u16 {
        port_of(self.product)
    }

    /// The URL of the same database through another port.
    pub fn url_through(&self, port: u16) -> String {
        self.url
            .replace(&format!(":{}/", self.port()), &format!(":{port}/"))
    }
}

async fn run(url: &str, sql: &str) {
    try_run(url, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn try_run(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let sql = sqlx::raw_sql(sql);
    match url.split_once(':').unwrap().0 {
        "sqlite" => {
            let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
            let mut connection = options.busy_timeout(PATIENCE).connect().await?;
            connection.execute(sql).await?;
            connection.close().await
        }
        "postgres" => {
            let mut connection = sqlx::PgConnection::connect(url).await?;
            connection.execute(sql).await?;
            connection.close().await
        }
        _ => {
            let mut connection = sqlx::MySqlConnection::connect(url).await?;
            connection.execute(sql).await?;
            connection.close().await
        }
    }
}

fn url_of(product: Product, port: u16, database: Option<&str>) -> String {
    match product {
        Product::Sqlite => unreachable!("a file has no port"),
        Product::Postgres => {
            format!(
                "postgres://tollgate:{PASSWORD}@127.0.0.1:{port}/{}",
                database.unwrap_or("postgres")
            )
        }
        Product::MariaDb => format!(
            "mysql://tollgate:{PASSWORD}@127.0.0.1:{port}/{}",
            database.unwrap_or("mysql")
        ),
    }
}

/// Starts the server when it is first asked for.
fn port_of(product: Product) -> u16 {
    static POSTGRES: OnceLock<u16> = OnceLock::new();
    static MARIADB: OnceLock<u16> = OnceLock::new();
    match product {
        Product::Sqlite => unreachable!("a file has no port"),
        Product::Postgres => *POSTGRES.get_or_init(start_postgres),
        Product::MariaDb => *MARIADB.get_or_init(start_mariadb),
    }
}

fn start_postgres() -> u16 {
    let programs = newest_postgres();
    let (folder, port) = (data_folder(), free_port());
    let password = folder.join("password");
    fs::write(&password, PASSWORD).unwrap();
    // The server refuses to be root.
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .unwrap()
        .stdout
        .starts_with(b"0\n");
    let by: &[&str] = if is_root {
        &["runuser", "-u", "postgres", "--"]
    } else {
        &[]
    };
    if is_root {
        finish(Command::new("chown").args(["-R", "postgres"]).arg(&folder));
    }
    let data = folder.join("data");
    let words = |rest: &[&str]| {
        by.iter()
            .chain(rest)
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let (initdb, postgres) = (
        programs.join("initdb").display().to_string(),
        programs.join("postgres").display().to_string(),
    );
    let (data, password) = (data.display().to_string(), password.display().to_string());
    let init = words(&[
        &initdb,
        "-D",
        &data,
        "-U",
        "tollgate",
        "-A",
        "scram-sha-256",
        "--pwfile",
        &password,
        "-N",
    ]);
    finish(Command::new(&init[0]).args(&init[1..]));
    let (port_word, sockets) = (
        port.to_string(),
        format!("unix_socket_directories={}", folder.display()),
    );
    let serve = words(&[
        &postgres,
        "-D",
        &data,
        "-p",
        &port_word,
        "-c",
        &sockets,
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "fsync=off",
        "-c",
        "max_connections=300",
    ]);
    keep_running(&serve, &folder, port);
    port
}

fn start_mariadb() -> u16 {
    let (folder, port) = (data_folder(), free_port());
    let (data, user) = (
        format!("--datadir={}/data", folder.display()),
        "--user=root",
    );
    let log = format!("--log-error={}/log.err", folder.display());
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .unwrap()
        .stdout
        .starts_with(b"0\n");
    let user = is_root.then_some(user);
    let init = [
        "--no-defaults",
        &data,
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--force",
    ];
    finish(
        Command::new(needed("mariadb-install-db", "mariadb-server"))
            .args(init)
            .args(user),
    );
    let users = folder.join("users.sql");
    let text = format!(
        "CREATE USER tollgate@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO tollgate@'%' WITH GRANT OPTION;\n"
    );
    fs::write(&users, text).unwrap();
    let words = [
        needed("mariadbd", "mariadb-server").display().to_string(),
        "--no-defaults".into(),
        data.clone(),
        log,
        format!("--port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--skip-name-resolve".into(),
        "--innodb-flush-log-at-trx-commit=0".into(),
        "--max-connections=300".into(),
        format!("--init-file={}", users.display()),
        format!("--socket={}/s", folder.display()),
        format!("--pid-file={}/pid", folder.display()),
    ];
    let words: Vec<_> = words.into_iter().chain(user.map(str::to_owned)).collect();
    keep_running(&words, &folder, port);
    port
}

/// Runs a server beside a shell that waits for this process to end, in whichever way, and then ends
/// the server and takes its folder away: statics are not dropped.
fn keep_running(words: &[String], folder: &Path, port: u16) {
    let script = "trap '' HUP INT TERM; folder=$1; shift; \"$@\" >\"$folder/out\" 2>&1 </dev/null & server=$!; \
                  cat >/dev/null; kill -9 $server $(cat \"$folder/data/postmaster.pid\" 2>/dev/null | head -1) 2>/dev/null; \
                  wait $server 2>/dev/null; rm -rf \"$folder\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(folder)
        .args(words)
        .stdin(Stdio::piped());
    let shell = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its end of the pipe is closed by the end of this process and by nothing else.
    std::mem::forget(shell);
    wait_for(port, folder);
}

/// Until it says so itself: a server that still starts accepts connections and refuses them then.
fn wait_for(port: u16, folder: &Path) {
    let said = || {
        ["out", "log.err"]
            .map(|file| fs::read_to_string(folder.join(file)).unwrap_or_default())
            .concat()
    };
    let ready = ["ready to accept connections", "ready for connections"];
    answer_within(
        PATIENCE,
        &format!("port {port} is served: {}", folder.display()),
        || {
            let said = said();
            ready.iter().any(|words| said.contains(words)).then_some(())
        },
    );
}

fn newest_postgres() -> PathBuf {
    let found = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"));
    let found = found.filter(|bin| bin.join("postgres").exists()).max();
    found
        .or_else(|| on_path("postgres").and_then(|path| path.parent().map(Path::to_owned)))
        .unwrap_or_else(|| {
            panic!("PostgreSQL's server is needed: install the package postgresql");
        })
}

fn needed(program: &str, package: &str) -> PathBuf {
    on_path(program).unwrap_or_else(|| panic!("{program} is needed: install the package {package}"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.exists())
}

/// Others may look into it: the server is another user. The shell that ends the server takes it
/// away.
fn data_folder() -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::Builder::new()
        .prefix("tollgate-db-")
        .tempdir()
        .unwrap()
        .keep();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A port that is free and of no other test of this machine, until this process ends: a socket in
/// the abstract namespace stands for it, as in `tollgate_testing::redis::reserve_port`.
pub fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..32_000);
        let name = SocketAddr::from_abstract_name(format!("tollgate-test-port-{port}")).unwrap();
        if let Ok(reservation) = UnixListener::bind_addr(&name)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            // Closed by the end of the process and by nothing else.
            std::mem::forget(reservation);
            return port;
        }
    }
}

fn finish(command: &mut Command) {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}
