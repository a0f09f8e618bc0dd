//! Redis in more than one piece, behind certificates, or far away.

pub mod delaying_proxy;

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tracing::Dispatch;

use crate::redis::{RedisServer, basic_arguments, free_port, reserve_port, spec_at};
use crate::{PATIENCE, eventually};

/// A store at `url`, with a time limit that a machine keeps unless it is busy.
pub fn spec(url: String) -> RedisSpec {
    RedisSpec {
        url: url.into(),
        timeout: Duration::from_millis(100),
        ..spec_at(1)
    }
}

/// This store with a time limit that no call reaches, however busy the machine is.
pub fn patient(spec: RedisSpec) -> RedisSpec {
    RedisSpec {
        timeout: PATIENCE,
        ..spec
    }
}

/// The log of this thread, as text.
#[derive(Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

/// Subscribers that nobody writes to. While a process has fewer than two, the first thread that
/// comes by a line decides for all threads whether the line logs anything. That thread may be one
/// that captures nothing.
static SILENT: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [silent(), silent()]);

fn silent() -> Dispatch {
    Dispatch::new(
        tracing_subscriber::fmt()
            .with_writer(std::io::sink)
            .with_max_level(tracing::Level::TRACE)
            .finish(),
    )
}

impl CapturedLog {
    /// Makes sure that a log which is captured later misses nothing. Call it before the code under
    /// test runs on any thread.
    pub fn prepare() {
        LazyLock::force(&SILENT);
    }

    pub fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        Self::prepare();
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::TRACE);
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Certificates of a test's own, made with openssl.
pub struct CertificateAuthority {
    dir: TempDir,
}

impl CertificateAuthority {
    pub fn create() -> Self {
        let authority = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let key = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ];
        let files = [
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            "/CN=A test's authority",
        ];
        authority.openssl(&[&["req", "-x509"], &key[..], &files[..]].concat());
        authority
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn pem(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).unwrap()
    }

    /// `{name}.pem` and `{name}.key`, for `subject` (`DNS:…` or `IP:…`).
    pub fn issue(&self, name: &str, subject: &str) {
        self.issue_to(name, "/CN=a test", subject, "2");
    }

    /// Like `issue`, to an owner (`/O=Example/CN=billing`), for `days`; none if negative.
    pub fn issue_to(&self, name: &str, owner: &str, subject: &str, days: &str) {
        let [pem, key, request, extensions] =
            ["pem", "key", "csr", "ext"].map(|kind| format!("{name}.{kind}"));
        std::fs::write(
            self.path(&extensions),
            format!("subjectAltName={subject}\n"),
        )
        .unwrap();
        let curve = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ];
        let files = ["-keyout", &key, "-out", &request, "-subj", owner];
        self.openssl(&[&["req", "-new"], &curve[..], &files[..]].concat());
        let sign = [
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            days,
        ];
        self.openssl(&[&sign[..], &["-extfile", &extensions, "-out", &pem]].concat());
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(&self.dir)
            .output();
        let output = output.unwrap_or_else(|error| {
            panic!("openssl is needed ({error}): install the package openssl")
        });
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// A Redis that speaks TLS on a port of its own, which is returned, with the certificate `name`.
pub fn with_tls(authority: &CertificateAuthority, name: &str, clients: &str) -> (RedisServer, u16) {
    let tls_port = free_port();
    let [cert, key, ca] = [&format!("{name}.pem"), &format!("{name}.key"), "ca.pem"]
        .map(|file| authority.path(file).display().to_string());
    let arguments = [
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        clients,
    ]
    .map(str::to_owned);
    let server = RedisServer::start_with(&|_, _| arguments.to_vec());
    (server, tls_port)
}

/// A primary, its replica and a sentinel that watches them.
pub struct SentinelGroup {
    pub primary: RedisServer,
    pub replica: RedisServer,
    pub sentinel: RedisServer,
}

impl SentinelGroup {
    pub async fn start() -> Self {
        let primary = RedisServer::start();
        let master = primary.port().to_string();
        let replica = RedisServer::start_with(&|_, _| {
            [
                "--replicaof",
                "127.0.0.1",
                &master,
                "--repl-diskless-sync-delay",
                "0",
            ]
            .map(str::to_owned)
            .to_vec()
        });
        eventually("the replica is up to date", async || {
            let state = replica.command(&["INFO", "replication"]);
            state.contains("master_link_status:up")
        })
        .await;
        // After that: a sentinel looks for replicas at once, and then every ten seconds.
        let sentinel = std::iter::repeat_with(|| sentinel(primary.port()))
            .take(5)
            .flatten()
            .next()
            .unwrap();
        let watched = Self {
            primary,
            replica,
            sentinel,
        };
        eventually("the sentinel knows both", async || {
            watched.knows("status=ok") && watched.knows("slaves=1")
        })
        .await;
        watched
    }

    pub fn spec(&self) -> RedisSpec {
        spec(format!(
            "redis-sentinel://127.0.0.1:{}/main",
            self.sentinel.port()
        ))
    }

    /// Whether the sentinel's `INFO` contains this.
    pub fn knows(&self, what: &str) -> bool {
        self.sentinel.command(&["INFO", "sentinel"]).contains(what)
    }

    pub fn has_switched(&self) -> bool {
        self.knows(&format!("address=127.0.0.1:{},", self.replica.port()))
    }
}

fn sentinel(primary: u16) -> Option<RedisServer> {
    let port = free_port();
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    writeln!(
        text,
        "port {port}\nbind 127.0.0.1\ndir {}",
        dir.path().display()
    )
    .unwrap();
    writeln!(text, "sentinel monitor main 127.0.0.1 {primary} 1").unwrap();
    writeln!(
        text,
        "sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 3000"
    )
    .unwrap();
    let file = dir.path().join("sentinel.conf");
    std::fs::write(&file, text).unwrap();
    RedisServer::launch(
        port,
        vec![file.display().to_string(), "--sentinel".to_owned()],
        dir,
    )
}

/// Three primaries without replicas.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub async fn start() -> Self {
        let nodes: Vec<_> = std::iter::repeat_with(cluster_node)
            .flatten()
            .take(3)
            .collect();
        let cluster = Self { nodes };
        let addresses = cluster
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()));
        let mut create = Command::new("redis-cli");
        create
            .args(["--cluster", "create"])
            .args(addresses)
            .arg("--cluster-yes");
        let output = create.output();
        let output = output
            .unwrap_or_else(|error| panic!("redis-cli is needed ({error}): install redis-tools"));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        eventually("the cluster is up", async || {
            cluster.nodes.iter().all(cluster_is_up)
        })
        .await;
        cluster
    }

    /// Named by one of its nodes: the others are found.
    pub fn spec(&self) -> RedisSpec {
        spec(format!(
            "redis-cluster://127.0.0.1:{}",
            self.nodes[0].port()
        ))
    }

    /// The node that has `key`, by its place.
    pub fn owner(&self, key: &str) -> usize {
        let mut nodes = self.nodes.iter();
        let owner = nodes.position(|node| !node.command(&["GET", key]).starts_with("-MOVED"));
        owner.expect("a node has the slot of each key")
    }

    /// Moves the slot of `key`, with all that is in it, in the order of Redis's own tool, and gives
    /// time to every step.
    pub async fn migrate(&self, key: &str, from: usize, to: usize, pause: impl AsyncFn()) {
        let (slot, target_id) = self.begin_to_move(key, from, to);
        pause().await;
        self.move_key(key, from, to);
        pause().await;
        for node in [to, from] {
            assert_eq!(
                self.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]),
                "+OK"
            );
        }
        pause().await;
    }

    /// Begins to move the slot of `key`: it, and the name of the node that gets it.
    pub fn begin_to_move(&self, key: &str, from: usize, to: usize) -> (String, String) {
        let source = &self.nodes[from];
        let target = &self.nodes[to];
        let slot = source
            .command(&["CLUSTER", "KEYSLOT", key])
            .trim_start_matches(':')
            .to_owned();
        let [source_id, target_id] =
            [source, target].map(|node| node.command(&["CLUSTER", "MYID"]));
        assert_eq!(
            target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]),
            "+OK"
        );
        assert_eq!(
            source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]),
            "+OK"
        );
        (slot, target_id)
    }

    /// Moves a key whose slot moves.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let moved = self.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]);
        assert!(moved == "+OK" || moved == "+NOKEY", "{moved}");
    }
}

pub fn cluster_is_up(node: &RedisServer) -> bool {
    let info = node.command(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:ok")
        && info.contains("cluster_slots_ok:16384")
        && info.contains("cluster_known_nodes:3")
}

/// A node of a cluster. The cluster's bus needs the port ten thousand above the node's, which must
/// not be one that the system hands out by itself either.
fn cluster_node() -> Option<RedisServer> {
    let port = std::iter::repeat_with(free_port)
        .find(|port| *port < 22_000 && reserve_port(*port + 10_000))
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = basic_arguments(port, dir.path());
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    arguments.extend(cluster.map(str::to_owned));
    RedisServer::launch(port, arguments, dir)
}
