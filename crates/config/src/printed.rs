//! A configuration in one piece: what `tollgate check --print` shows.

use std::path::Path;

use super::include::{self, FileVariables, IncludedTree};
use super::report::{Mistakes, Report};
use super::yaml::node::{NodeEntry, YamlNode, YamlValue};
use super::yaml::print;
use super::yaml::variables::{self, VariableLookup};
use super::{load, section::defaults};

/// The file called `file_name` in one piece: included files, defaults and the values of aliases are
/// in their places, and variables stay as they are written. In the folder of the file it means what
/// the file does.
///
/// # Errors
/// When a file cannot be read, or is no YAML.
pub fn print(file_name: &str, text: &str) -> Result<String, Mistakes> {
    let env: VariableLookup<'_> = &load::variable;
    let mut report = Report::new(file_name);
    let whole = include::tree(text, FileVariables::Kept(env), &mut report, &mut Vec::new());
    let printed = whole.map(|IncludedTree { mut root, .. }| {
        defaults::apply_unchecked(&mut root, &mut report);
        let folder = folder(file_name).to_owned();
        for page in pages(&mut root) {
            lead(page, &folder, env, &mut report);
        }
        print::text(&root)
    });
    report.close(printed).map(|(text, _)| text)
}

fn folder(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

/// The paths of pages, which begin at the folders of the files that name them.
fn pages(root: &mut YamlNode) -> Vec<&mut YamlNode> {
    let mut lists = Vec::new();
    for section in members(root) {
        match section.key.as_str() {
            "error_pages" => lists.push(&mut section.value),
            "routes" => {
                for entry in items(&mut section.value).iter_mut().flat_map(members) {
                    match entry.key.as_str() {
                        "error_pages" => lists.push(&mut entry.value),
                        "maintenance" => {
                            for entry in members(&mut entry.value) {
                                if entry.key == "pages" {
                                    lists.push(&mut entry.value);
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let mut pages = Vec::new();
    for page in lists.into_iter().flat_map(items) {
        for entry in members(page) {
            if entry.key == "file" {
                pages.push(&mut entry.value);
            }
        }
    }
    pages
}

fn members(node: &mut YamlNode) -> &mut [NodeEntry] {
    if let YamlValue::Map(entries) = &mut node.value {
        entries
    } else {
        &mut []
    }
}

fn items(node: &mut YamlNode) -> &mut [YamlNode] {
    if let YamlValue::List(items) = &mut node.value {
        items
    } else {
        &mut []
    }
}

/// Makes a path begin at `folder`. An absolute one stays, also where a variable makes it one.
fn lead(page: &mut YamlNode, folder: &Path, env: VariableLookup<'_>, report: &mut Report) {
    let own = self::folder(page.location.file());
    let begin = own.strip_prefix(folder).unwrap_or(own).to_owned();
    let mut meant = page.clone();
    variables::substitute(&mut meant, env, report);
    let (YamlValue::Scalar { text, plain }, YamlValue::Scalar { text: meant, .. }) =
        (&mut page.value, &meant.value)
    else {
        return;
    };
    if Path::new(meant).is_relative() && !begin.as_os_str().is_empty() {
        *text = begin.join(&text).to_string_lossy().into_owned();
        *plain = false;
    }
}
