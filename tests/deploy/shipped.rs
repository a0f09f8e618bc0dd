//! Reading what is shipped: YAML, Markdown, the Dockerfile; and asking `promtool` and the gateway
//! about it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use saphyr::{LoadableYamlNode as _, YamlOwned};

/// Every file below `directory` with this extension.
pub fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory}: {error}")) {
        let path = entry.expect("the directory is readable").path();
        if path.is_dir() {
            found.append(&mut files(&path.display().to_string(), extension));
        } else if path.extension().is_some_and(|actual| actual == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All that the gateway is compiled from.
pub fn sources() -> String {
    files("src", "rs")
        .into_iter()
        .chain(files("crates", "rs"))
        .map(read)
        .collect()
}

pub fn documents(path: impl AsRef<Path>) -> Vec<YamlOwned> {
    let path = path.as_ref();
    YamlOwned::load_from_str(&read(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The value at `path`, names and indices separated by dots.
pub fn at<'a>(node: &'a YamlOwned, path: &str) -> Option<&'a YamlOwned> {
    path.split('.')
        .try_fold(node, |node, step| match step.parse() {
            Ok(index) => node.as_sequence_get(index),
            Err(_) => node.as_mapping_get(step),
        })
}

pub fn text(node: &YamlOwned, path: &str) -> String {
    at(node, path)
        .and_then(YamlOwned::as_str)
        .unwrap_or_else(|| panic!("no text at {path}"))
        .to_owned()
}

pub fn text_at<'a>(node: &'a YamlOwned, path: &str) -> Option<&'a str> {
    at(node, path).and_then(YamlOwned::as_str)
}

pub fn number(node: &YamlOwned, path: &str) -> u64 {
    let number = at(node, path)
        .and_then(YamlOwned::as_integer)
        .unwrap_or_else(|| panic!("no number at {path}"));
    number.try_into().expect("it is not negative")
}

pub fn is_gateway_config(document: &YamlOwned) -> bool {
    document.contains_mapping_key("listeners") && document.contains_mapping_key("routes")
}

/// Configurations of the gateway among what is shipped.
pub fn gateway_configs() -> Vec<PathBuf> {
    let mut found = files("deploy", "yaml");
    found.retain(|path| documents(path).iter().any(is_gateway_config));
    found
}

/// `10s` and `500ms`: what the files here use.
pub fn duration(text: &str) -> Duration {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let count = digits
        .parse()
        .unwrap_or_else(|_| panic!("{text} is no duration"));
    match &text[digits.len()..] {
        "s" => Duration::from_secs(count),
        "ms" => Duration::from_millis(count),
        unit => panic!("{text}: this test knows s and ms, not {unit:?}"),
    }
}

pub fn drain_timeout(config: &str) -> Duration {
    duration(&text(&documents(config)[0], "drain_timeout"))
}

pub fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output();
    let output = output.expect(
        "this test needs promtool: install Prometheus (Debian: apt-get install prometheus)",
    );
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
}

/// The output of `tollgate check` for a file, in an environment without variables. `Err`: it
/// refuses it.
pub fn check(config: &Path) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("check")
        .arg(config)
        .env_clear()
        .output();
    let output = output.expect("the gateway's binary runs");
    let said = (String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr))
        .into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

#[track_caller]
pub fn assert_checks(name: &str, config: &Path) {
    check(config).unwrap_or_else(|said| panic!("`tollgate check` refuses {name}:\n{said}"));
}

pub fn temporary(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(content.as_bytes())
        .expect("it can be written");
    file
}

/// The YAML blocks of a Markdown file, with the line each begins at.
pub fn yaml_blocks(markdown: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "```yaml" {
            let inside = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| line.trim() != "```");
            let inside: Vec<_> = inside
                .map(|line| line.strip_prefix(indent).unwrap_or(line))
                .collect();
            blocks.push((at + 2, inside.join("\n") + "\n"));
        }
    }
    blocks
}

pub fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .into();
    pages.append(&mut files("deploy", "md"));
    if Path::new("docs").is_dir() {
        pages.append(&mut files("docs", "md"));
    }
    pages
}

/// Names of metrics in a text: `tollgate_…`, without what a histogram adds. A trailing `*` or `_`
/// stands for several.
pub fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("tollgate_") && !word.ends_with('_'));
    names
        .map(|name| {
            let base = ["_bucket", "_sum", "_count"]
                .into_iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            base.unwrap_or(name).to_owned()
        })
        .collect()
}

/// The instructions of the Dockerfile, each with its arguments on one line.
pub fn docker_instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile");
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let instructions = joined.lines().filter(|line| !line.trim().is_empty());
    instructions
        .map(|line| {
            line.split_once(' ')
                .unwrap_or_else(|| panic!("Dockerfile: {line:?} has no arguments"))
        })
        .map(|(name, arguments)| (name.to_owned(), arguments.trim().to_owned()))
        .collect()
}

pub fn docker_argument(name: &str) -> String {
    let found = docker_instructions()
        .into_iter()
        .rfind(|(instruction, _)| instruction == name);
    found
        .unwrap_or_else(|| panic!("Dockerfile has no {name}"))
        .1
}
