//! The first minutes with the gateway, as `make run` makes them: traffic to look at, and no limit
//! of the visitor's spent by it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use tollgate_testing::redis::free_port;

use crate::process::{curl, eventually, status};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/first-run");

/// The command lines of processes that name this.
fn processes_about(words: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(words)).collect()
}

#[test]
fn a_first_run_has_traffic_to_look_at_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes.yaml");
    let urls = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/routes.yaml")).unwrap();
    let [listener, admin] = urls.each_ref().map(|url| url.trim_start_matches("http://"));
    std::fs::write(
        &file,
        committed
            .replace("0.0.0.0:8080", listener)
            .replace("127.0.0.1:9901", admin),
    )
    .unwrap();
    let [gateway, admin] = &urls;
    let said = folder.path().join("log");
    let mut script = Command::new(SCRIPT)
        .args([
            env!("CARGO_BIN_EXE_tollgate").as_ref(),
            file.as_os_str(),
            gateway.as_ref(),
            admin.as_ref(),
        ])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let shown = lines.any(|line| line == format!("The console: {admin}/console"));
    assert!(shown, "{}", std::fs::read_to_string(&said).unwrap());

    let limit = format!("{admin}/console/limits/per-client");
    eventually("the greedy client is denied, and only that", || {
        let page = curl(&["-s", &limit]);
        page.contains("127.0.0.4").then_some(())
    });
    let page = curl(&["-s", &limit]);
    assert!(
        !page.contains("127.0.0.2") && !page.contains("127.0.0.3"),
        "{page}"
    );
    let mine: Vec<u16> = (0..20)
        .map(|_| status(&[&format!("{gateway}/hello")]))
        .collect();
    assert_eq!(mine, [200; 20], "the burst is all there");

    assert!(
        Command::new("kill")
            .arg(script.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    script.wait().unwrap();
    assert!(
        TcpStream::connect(admin.trim_start_matches("http://")).is_err(),
        "the gateway goes on"
    );
    assert_eq!(processes_about(gateway), Vec::<String>::new());
}
