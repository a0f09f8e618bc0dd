//! `include`: one tree of several files.
//!
//! A file names files and folders, by paths from its own folder. Lists of all files are joined,
//! sections of named members too, and anything else that is there twice is a mistake. Guarantees an
//! end: circles, repeated files and too many of them are mistakes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::report::{Location, Report, ValueProblem, quote};
use super::section::root::{RawConfig, RawInclude};
use super::source;
use super::watch::FileVersion;
use super::yaml::collection::OneOrMore;
use super::yaml::decode::{Decode, mismatch};
use super::yaml::node::{NodeEntry, YamlNode, YamlValue};
use super::yaml::parse;
use super::yaml::record::required_keys;
use super::yaml::variables::{self, VariableLookup};

/// The key that names other files.
const INCLUDE: &str = "include";

/// Files that a configuration is made of, at most.
const MOST_FILES: usize = 1_000;

/// Files that include one another in a row, at most.
const DEEPEST: usize = 16;

/// The tree of a file, with those of the files that it includes.
pub struct IncludedTree {
    pub root: YamlNode,
    /// Whether every file could be read.
    pub is_whole: bool,
}

/// The treatment of the variables in a file.
#[derive(Clone, Copy)]
pub enum FileVariables<'a> {
    /// Variables are replaced by their values.
    Replaced(VariableLookup<'a>),
    /// Variables stay as they are written, save in the paths of other files.
    Kept(VariableLookup<'a>),
}

/// A file that is being read, or one that includes it.
struct OpenFile {
    name: Arc<str>,
    /// The path without symbolic links. `None`: there is no such file.
    real: Option<PathBuf>,
}

/// The reading of a file and all that it includes.
struct FileReader<'a> {
    variables: FileVariables<'a>,
    report: &'a mut Report,
    files: &'a mut Vec<FileVersion>,
    /// The files from the first to the one that is read.
    chain: Vec<OpenFile>,
    /// The files read so far by their real paths, and where each is included.
    included: HashMap<PathBuf, Location>,
    is_whole: bool,
}

/// The tree of `text`, the file that `report` is about, and of the files that it includes. Adds
/// those to `files`. `None`: a mistake was reported.
pub fn tree(
    text: &str,
    variables: FileVariables<'_>,
    report: &mut Report,
    files: &mut Vec<FileVersion>,
) -> Option<IncludedTree> {
    let name = report.file();
    let first = OpenFile {
        name: name.clone(),
        real: fs::canonicalize(&*name).ok(),
    };
    let mut reading = FileReader {
        variables,
        report,
        files,
        chain: vec![first],
        included: HashMap::new(),
        is_whole: true,
    };
    let root = reading.parse(&name, text)?;
    if root.value.is_null() {
        let problem = ValueProblem::new("the file is empty")
            .hint("it needs at least \"listeners\" and \"routes\"");
        reading
            .report
            .mistake(&Location::root(&name, (1, 1)), problem);
        return None;
    }
    let mut root = reading.with_included(root);
    let is_whole = reading.is_whole;
    if let (false, YamlValue::Map(entries)) = (is_whole, &mut root.value) {
        // A missing key may be in a file that could not be read.
        for key in required_keys::<RawConfig>() {
            if !entries.iter().any(|entry| entry.key == key) {
                let location = root.location.key(key, root.location.position());
                let value = YamlNode {
                    location: location.clone(),
                    value: YamlValue::Unusable,
                };
                entries.push(NodeEntry {
                    key: key.to_owned(),
                    key_location: location,
                    value,
                });
            }
        }
    }
    Some(IncludedTree { root, is_whole })
}

impl FileReader<'_> {
    /// The tree of one file, with its variables. `None`: a mistake was reported.
    fn parse(&mut self, name: &Arc<str>, text: &str) -> Option<YamlNode> {
        source::check_size(text, &Location::root(name, (1, 1)), self.report)?;
        let mut root = parse::tree(name, text, self.report)?;
        match self.variables {
            FileVariables::Replaced(env) => variables::substitute(&mut root, env, self.report),
            FileVariables::Kept(_) => {}
        }
        Some(root)
    }

    /// Joins the tree of a file with those of the files that it includes.
    fn with_included(&mut self, mut root: YamlNode) -> YamlNode {
        let YamlValue::Map(entries) = &mut root.value else {
            return root;
        };
        let Some(at) = entries.iter().position(|entry| entry.key == INCLUDE) else {
            return root;
        };
        let mut node = entries.remove(at).value;
        if node.value.is_null() {
            return root;
        }
        match self.variables {
            FileVariables::Replaced(_) => {}
            FileVariables::Kept(env) => variables::substitute(&mut node, env, self.report),
        }
        match RawInclude::decode(&node, self.report) {
            None => self.is_whole = false,
            Some(OneOrMore(paths)) => {
                // A path that is none was left out.
                self.is_whole &=
                    !matches!(&node.value, YamlValue::List(items) if items.len() > paths.len());
                for path in paths {
                    for included in self.file_or_folder(&path.value.0, &path.location) {
                        join(entries, included, self.report);
                    }
                }
            }
        }
        root
    }

    /// The entries of the file at `path`, or of each file in the folder there.
    fn file_or_folder(&mut self, path: &Path, at: &Location) -> Vec<Vec<NodeEntry>> {
        // The path is that of a file from here on: a join with an empty folder leaves it as it is.
        let path = Path::new(&**at.file())
            .parent()
            .unwrap_or(Path::new(""))
            .join(path);
        self.files.push(FileVersion::current(&path));
        let files = match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => files_in(&path),
            Ok(_) => Ok(vec![path.clone()]),
            Err(error) => Err(error),
        };
        match files {
            Ok(files) => files
                .iter()
                .filter_map(|file| self.file(file, &path, at))
                .collect(),
            Err(error) => {
                let hint = if path.to_string_lossy().contains('*') {
                    "name the folder: every .yaml and .yml file in it is read"
                } else {
                    "paths begin at the folder of the file that names them"
                };
                let problem = ValueProblem::new(format!(
                    "cannot read {}: {error}",
                    quote(&path.to_string_lossy())
                ));
                self.refuse(at, problem.hint(hint));
                Vec::new()
            }
        }
    }

    /// The entries of the file at `path`, which was found at `place`. `None`: a mistake was
    /// reported, or it has none.
    fn file(&mut self, path: &Path, place: &Path, at: &Location) -> Option<Vec<NodeEntry>> {
        let name: Arc<str> = path.to_string_lossy().into();
        if path != place {
            self.files.push(FileVersion::current(path));
        }
        let real = self.check(path, &name, at)?;
        let text = match source::read_file(&name, path) {
            Ok(text) => text,
            Err(mistakes) => {
                self.report.include(name);
                self.report.unreadable(mistakes);
                self.is_whole = false;
                return None;
            }
        };
        self.included.insert(real.clone(), at.clone());
        self.report.include(name.clone());
        self.chain.push(OpenFile {
            name: name.clone(),
            real: Some(real),
        });
        let root = match self.parse(&name, &text) {
            Some(root) if root.value.is_null() => None,
            Some(root) => Some(self.with_included(root)),
            None => {
                self.is_whole = false;
                None
            }
        };
        self.chain.pop();
        match root? {
            YamlNode {
                value: YamlValue::Map(entries),
                ..
            } => Some(entries),
            node => {
                mismatch(
                    &node,
                    "a mapping",
                    Some("its keys are those of the file that includes it"),
                    self.report,
                );
                self.is_whole = false;
                None
            }
        }
    }

    /// Whether a file may be read: its real path. `None`: a mistake was reported.
    fn check(&mut self, path: &Path, name: &Arc<str>, at: &Location) -> Option<PathBuf> {
        let problem = match fs::metadata(path)
            .and_then(|meta| Ok((meta.is_file(), fs::canonicalize(path)?)))
        {
            Err(error) => ValueProblem::new(format!("cannot read {}: {error}", quote(name))),
            Ok((false, _)) => {
                ValueProblem::new(format!("{} is neither a file nor a folder", quote(name)))
            }
            Ok((true, real)) => {
                let circle = self
                    .chain
                    .iter()
                    .position(|open| open.real.as_ref() == Some(&real));
                if let Some(begin) = circle {
                    let names = self.chain[begin..]
                        .iter()
                        .map(|open| &*open.name)
                        .chain([&**name]);
                    let way = names.collect::<Vec<_>>().join(" > ");
                    ValueProblem::new(format!("a file includes itself: {way}"))
                        .hint("remove one of these includes")
                } else if let Some(first) = self.included.get(&real) {
                    let first = first.line_beside(at);
                    ValueProblem::new(format!(
                        "{} is included twice, first on {first}",
                        quote(name)
                    ))
                    .hint("keep one of the two")
                } else if self.included.len() + 1 >= MOST_FILES {
                    ValueProblem::new(format!("the configuration has over {MOST_FILES} files"))
                } else if self.chain.len() >= DEEPEST {
                    ValueProblem::new(format!("over {DEEPEST} files include one another in a row"))
                } else {
                    return Some(real);
                }
            }
        };
        self.refuse(at, problem);
        None
    }

    fn refuse(&mut self, at: &Location, problem: ValueProblem) {
        self.report.mistake(at, problem);
        self.is_whole = false;
    }
}

/// The YAML files of a folder, in the order of their names. A mounted ConfigMap has hidden entries
/// besides.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml && !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Adds the entries of an included file: to lists their items, to mappings their members.
fn join(entries: &mut Vec<NodeEntry>, included: Vec<NodeEntry>, report: &mut Report) {
    for new in included {
        let Some(old) = entries.iter_mut().find(|entry| entry.key == new.key) else {
            entries.push(new);
            continue;
        };
        match (&mut old.value.value, new.value.value) {
            (YamlValue::List(items), YamlValue::List(more)) => items.extend(more),
            (YamlValue::Map(members), YamlValue::Map(more)) => join_members(members, more, report),
            (_, value) if value.is_null() => {}
            (null, value) if null.is_null() => {
                old.key_location = new.key_location;
                old.value = YamlNode {
                    location: new.value.location,
                    value,
                };
            }
            _ => twice(&old.key_location, &new.key, &new.key_location, report),
        }
    }
}

fn join_members(members: &mut Vec<NodeEntry>, more: Vec<NodeEntry>, report: &mut Report) {
    let mut known: HashMap<String, Location> = members
        .iter()
        .map(|member| (member.key.clone(), member.key_location.clone()))
        .collect();
    for member in more {
        match known.get(&member.key) {
            Some(first) => twice(first, &member.key, &member.key_location, report),
            None => {
                known.insert(member.key.clone(), member.key_location.clone());
                members.push(member);
            }
        }
    }
}

fn twice(first: &Location, key: &str, at: &Location, report: &mut Report) {
    let line = first.line_beside(at);
    let problem = ValueProblem::new(format!("{} is here twice, first on {line}", quote(key)));
    report.mistake(at, problem.hint("keep one of the two"));
}
