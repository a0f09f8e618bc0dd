//! Text → tree. No other file names the YAML crate.
//!
//! Works on the parser's events, without recursion, so neither depth nor size of the input can
//! exhaust the stack. Keeps every scalar as it was written: the type that is read decides what
//! `off` or `1_000` means. Aliases become copies of what they stand for, within the bounds of
//! `alias`.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::alias::{self, Anchors, MERGE, Stop};
use super::node::{NodeEntry, YamlNode, YamlValue};
use crate::report::{Location, Report, ValueProblem, quote};

/// Nested mappings and lists. The deepest of the format is six.
const MAX_DEPTH: usize = 32;

/// Takes the items of a list, one by one.
type ItemSink<'a> = &'a mut dyn FnMut(YamlNode, &mut Report);

/// The tree of the only document of `file`; an empty one is null. `None`: a mistake was reported.
pub fn tree(file: &Arc<str>, text: &str, report: &mut Report) -> Option<YamlNode> {
    read(file, text, None, report)
}

/// Like [`tree`], of a document that may be a long list: `take` gets its items, and the list that
/// is returned is empty. A tree of all of them would take many times the memory of the text.
pub fn items<'a>(
    file: &'a Arc<str>,
    text: &'a str,
    take: ItemSink<'a>,
    report: &mut Report,
) -> Option<YamlNode> {
    read(file, text, Some(take), report)
}

fn read<'a>(
    file: &'a Arc<str>,
    text: &'a str,
    take: Option<ItemSink<'a>>,
    report: &mut Report,
) -> Option<YamlNode> {
    let mut tree = Tree {
        file,
        text,
        stack: Vec::new(),
        anchors: Anchors::default(),
        root: None,
        take,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((event, span)) => tree.push(event, span, report),
            Err(error) => Err((
                Location::root(
                    file,
                    (error.marker().line().max(1), error.marker().col() + 1),
                ),
                tree.syntax_trouble(error.marker().line(), error.info()),
            )),
        };
        if let Err((location, problem)) = step {
            report.mistake(&location, problem);
            return None;
        }
    }
    let nothing = YamlValue::Scalar {
        text: String::new(),
        plain: true,
    };
    Some(tree.root.unwrap_or(YamlNode {
        location: Location::root(file, (1, 1)),
        value: nothing,
    }))
}

struct Tree<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    stack: Vec<Frame>,
    anchors: Anchors,
    root: Option<YamlNode>,
    /// Takes the items of the outermost list.
    take: Option<ItemSink<'a>>,
}

/// A collection whose end has not been seen.
struct Frame {
    location: Location,
    /// The number of its anchor; 0: it has none.
    anchor: usize,
    open: Open,
}

enum Open {
    List(Vec<YamlNode>),
    /// The outermost list, and how many of its items were taken.
    Taken(usize),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<NodeEntry>,
    /// Keys seen and their lines.
    lines: HashMap<String, usize>,
    /// A key whose value comes next.
    key: Option<OpenKey>,
    /// The mappings that `<<` merges into it.
    merged: Option<YamlNode>,
}

struct OpenKey {
    text: String,
    location: Location,
    /// Whether it is YAML's `<<`.
    merges: bool,
}

impl Tree<'_> {
    fn push(&mut self, event: Event<'_>, span: Span, report: &mut Report) -> Result<(), Stop> {
        let at = (span.start.line().max(1), span.start.col() + 1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.check(at, tag.is_some())?;
                self.scalar(
                    text.into_owned(),
                    style == ScalarStyle::Plain,
                    anchor,
                    at,
                    report,
                )
            }
            Event::SequenceStart(anchor, tag) => {
                self.check(at, tag.is_some())?;
                let is_taken = self.stack.is_empty() && self.take.is_some();
                self.open(
                    at,
                    anchor,
                    if is_taken {
                        Open::Taken(0)
                    } else {
                        Open::List(Vec::new())
                    },
                )
            }
            Event::MappingStart(anchor, tag) => {
                self.check(at, tag.is_some())?;
                self.open(at, anchor, Open::Map(OpenMap::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(report),
            Event::Alias(anchor) => self.alias(anchor, at, report),
            Event::DocumentStart(_) if self.root.is_some() => Err((
                Location::root(self.file, at),
                ValueProblem::new("a second document starts here").hint("remove the \"---\""),
            )),
            _ => Ok(()),
        }
    }

    fn check(&self, at: (usize, usize), tagged: bool) -> Result<(), Stop> {
        if tagged {
            return Err((
                self.location(at),
                ValueProblem::new("tags are not supported")
                    .hint("remove the word that starts with \"!\""),
            ));
        }
        Ok(())
    }

    /// The location of the node that starts at `at`.
    fn location(&self, at: (usize, usize)) -> Location {
        match self.stack.last() {
            None => Location::root(self.file, at),
            Some(Frame {
                location,
                open: Open::List(items),
                ..
            }) => location.index(items.len(), at),
            Some(Frame {
                location,
                open: Open::Taken(count),
                ..
            }) => location.index(*count, at),
            Some(Frame {
                location,
                open: Open::Map(map),
                ..
            }) => match &map.key {
                Some(key) => location.key(&key.text, at),
                None => location.moved(at),
            },
        }
    }

    fn open(&mut self, at: (usize, usize), anchor: usize, open: Open) -> Result<(), Stop> {
        let location = self.location(at);
        if let Some(Frame {
            open: Open::Map(OpenMap { key: None, .. }),
            ..
        }) = self.stack.last()
        {
            let problem = ValueProblem::new("a key must be a single word")
                .hint("quote a value that holds { } or [ ]");
            return Err((location, problem));
        }
        if self.stack.len() == MAX_DEPTH {
            return Err((location, too_deep()));
        }
        self.stack.push(Frame {
            location,
            anchor,
            open,
        });
        Ok(())
    }

    /// Puts a copy of what has the anchor in the alias's place.
    fn alias(
        &mut self,
        anchor: usize,
        at: (usize, usize),
        report: &mut Report,
    ) -> Result<(), Stop> {
        let location = self.location(at);
        if let Some(Frame {
            open: Open::Map(OpenMap { key: None, .. }),
            ..
        }) = self.stack.last()
        {
            return Err((
                location,
                ValueProblem::new("an alias cannot be a key").hint("write the key out"),
            ));
        }
        let node = self.anchors.copy(anchor, location)?;
        if self.stack.len() + node.depth() > MAX_DEPTH {
            return Err((node.location, too_deep()));
        }
        self.add(node, report);
        Ok(())
    }

    fn close(&mut self, report: &mut Report) -> Result<(), Stop> {
        if let Some(Frame {
            location,
            anchor,
            open,
        }) = self.stack.pop()
        {
            let value = match open {
                Open::List(items) => YamlValue::List(items),
                Open::Taken(_) => YamlValue::List(Vec::new()),
                Open::Map(map) => YamlValue::Map(map.close(&location, report)),
            };
            let node = YamlNode { location, value };
            self.anchors.keep(anchor, &node)?;
            self.add(node, report);
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: String,
        plain: bool,
        anchor: usize,
        at: (usize, usize),
        report: &mut Report,
    ) -> Result<(), Stop> {
        let location = self.location(at);
        if let Some(Frame {
            location: parent,
            open: Open::Map(map @ OpenMap { key: None, .. }),
            ..
        }) = self.stack.last_mut()
        {
            let location = parent.key(&text, at);
            map.key = Some(OpenKey {
                merges: plain && text == MERGE,
                text,
                location,
            });
            return Ok(());
        }
        let node = YamlNode {
            location,
            value: YamlValue::Scalar { text, plain },
        };
        self.anchors.keep(anchor, &node)?;
        self.add(node, report);
        Ok(())
    }

    fn add(&mut self, node: YamlNode, report: &mut Report) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame {
                open: Open::List(items),
                ..
            }) => items.push(node),
            Some(Frame {
                open: Open::Taken(count),
                ..
            }) => {
                *count += 1;
                if let Some(take) = &mut self.take {
                    take(node, report);
                }
            }
            Some(Frame {
                open: Open::Map(map),
                ..
            }) => map.add(node, report),
        }
    }

    /// Adds a hint for likely slips, of which the parser's own message says little: braces of ours
    /// inside braces of YAML's, and tabs.
    fn syntax_trouble(&self, line: usize, info: &str) -> ValueProblem {
        let problem = ValueProblem::new(format!("not YAML: {info}"));
        let near = self
            .text
            .lines()
            .skip(line.saturating_sub(2))
            .take(2)
            .collect::<Vec<_>>();
        if near
            .iter()
            .any(|line| line.contains("${") || line.contains("/{"))
        {
            return problem
                .hint("inside { } and [ ], quote a value that itself holds braces: \"${NAME}\", \"/users/{id}\"");
        }
        if near.iter().any(|line| line.contains('\t')) {
            return problem.hint("YAML is indented with spaces, not tabs");
        }
        problem
    }
}

impl OpenMap {
    fn add(&mut self, mut value: YamlNode, report: &mut Report) {
        let Some(OpenKey {
            text: key,
            location: key_location,
            merges,
        }) = self.key.take()
        else {
            return;
        };
        if let Some(line) = self.lines.get(&key) {
            let problem = ValueProblem::new(format!(
                "{} is here twice, first on line {line}",
                quote(&key)
            ));
            report.mistake(&key_location, problem.hint("keep one of the two"));
            return;
        }
        self.lines.insert(key.clone(), key_location.line());
        if merges {
            self.merged = Some(value);
            return;
        }
        if value.value.is_null() {
            // The parser puts what is not there at the next token.
            value.location = key_location.clone();
        }
        self.entries.push(NodeEntry {
            key,
            key_location,
            value,
        });
    }

    /// The entries, with those that it merges.
    fn close(self, location: &Location, report: &mut Report) -> Vec<NodeEntry> {
        let mut entries = self.entries;
        if let Some(merged) = self.merged {
            alias::merge(&mut entries, merged, location, report);
        }
        entries
    }
}

fn too_deep() -> ValueProblem {
    ValueProblem::new(format!("nested deeper than {MAX_DEPTH} levels"))
}
