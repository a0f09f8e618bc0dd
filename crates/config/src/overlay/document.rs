//! A policy document as a tree: from YAML with its lines, or from JSON without any.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map as Object, Value as Json};

use crate::report::{Location, Mistakes, Report, ValueProblem};
use crate::source;
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};
use crate::yaml::{parse, print};

/// Nested mappings and lists, as of a file.
const MAX_DEPTH: usize = 32;

/// The position of a value without a line.
pub(super) const NOWHERE: (usize, usize) = (0, 0);

/// A policy document that is not checked yet, with its name in messages.
#[derive(Clone)]
pub struct PolicySet {
    pub(super) name: Arc<str>,
    pub(super) root: YamlNode,
    /// The name of the node that the document is for. `None`: the document has to fit any.
    pub(super) node: Option<Arc<str>>,
}

impl PolicySet {
    /// Reads the file at `path`: YAML or JSON.
    ///
    /// # Errors
    /// When it cannot be read, or is no YAML.
    pub fn load(path: &Path) -> Result<Self, Mistakes> {
        let name = path.display().to_string();
        Self::parse(&name, &source::read_keys(&name, path)?)
    }

    /// Reads `text`, which messages call `name`. It has no environment variables: each node would
    /// put in its own.
    ///
    /// # Errors
    /// When it is no YAML, or empty.
    pub fn parse(name: &str, text: &str) -> Result<Self, Mistakes> {
        let mut report = Report::new(name);
        let file = report.file();
        let mut root = parse::tree(&file, text, &mut report);
        if let Some(empty) = &root
            && empty.value.is_null()
        {
            let problem = ValueProblem::new("the document is empty")
                .hint("write applications: {} for no policies");
            report.mistake(&empty.location, problem);
            root = None;
        }
        report.close(root).map(|(root, _)| Self {
            name: file,
            root,
            node: None,
        })
    }

    /// Reads `json`, which messages call `name`.
    ///
    /// # Errors
    /// When it is nested too deep.
    pub fn of_json(name: &str, json: &Json) -> Result<Self, Mistakes> {
        let mut report = Report::new(name);
        let file = report.file();
        let root = node(json, Location::root(&file, NOWHERE), 0, &mut report);
        report.close(root).map(|(root, _)| Self {
            name: file,
            root,
            node: None,
        })
    }

    /// The document for the node called `name` alone.
    pub fn on(self, name: Arc<str>) -> Self {
        Self {
            node: Some(name),
            ..self
        }
    }

    /// The document as JSON: what was written without quotes is a number, a switch or nothing where
    /// it reads as one.
    pub fn to_json(&self) -> Json {
        json(&self.root.value)
    }

    /// The document as YAML.
    pub fn to_yaml(&self) -> String {
        print::text(&self.root)
    }
}

/// `None`: a mistake was reported.
pub(super) fn node(
    json: &Json,
    location: Location,
    depth: usize,
    report: &mut Report,
) -> Option<YamlNode> {
    if depth > MAX_DEPTH {
        let problem = ValueProblem::new(format!("nested deeper than {MAX_DEPTH} levels"));
        report.mistake(&location, problem.hint("no policy is as deep as this"));
        return None;
    }
    let value = match json {
        Json::Null => scalar("", true),
        Json::Bool(switch) => scalar(if *switch { "true" } else { "false" }, true),
        Json::Number(number) => scalar(&number.to_string(), true),
        Json::String(text) => scalar(text, false),
        Json::Array(items) => {
            let mut nodes = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let at = location.index(index, NOWHERE);
                nodes.push(node(item, at, depth + 1, report)?);
            }
            YamlValue::List(nodes)
        }
        Json::Object(members) => {
            let mut entries = Vec::with_capacity(members.len());
            for (key, value) in members {
                let at = location.key(key, NOWHERE);
                entries.push(NodeEntry {
                    key: key.clone(),
                    value: node(value, at.clone(), depth + 1, report)?,
                    key_location: at,
                });
            }
            YamlValue::Map(entries)
        }
    };
    Some(YamlNode { location, value })
}

fn scalar(text: &str, plain: bool) -> YamlValue {
    YamlValue::Scalar {
        text: text.to_owned(),
        plain,
    }
}

fn json(value: &YamlValue) -> Json {
    match value {
        value if value.is_null() => Json::Null,
        YamlValue::Scalar { text, plain: false } => text.as_str().into(),
        YamlValue::Scalar { text, plain: true } => match text.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            // A number that is written in another way would come back in another way.
            text => match text.parse::<i64>() {
                Ok(number) if number.to_string() == text => number.into(),
                _ => text.into(),
            },
        },
        YamlValue::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        YamlValue::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|entry| (entry.key.clone(), json(&entry.value.value)))
                .collect::<Object<_, _>>(),
        ),
        YamlValue::Unusable => Json::Null,
    }
}
