//! Text → tree. No other file names the YAML crate.
//!
//! Works on the parser's events, without recursion, so neither depth nor size of the input can exhaust the stack.
//! Refuses what makes a file larger than it looks (anchors and aliases) and keeps every scalar as it was written: the
//! type that is read decides what `off` or `1_000` means.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{NodeEntry, YamlNode, YamlValue};
use crate::config::report::{Location, Report, ValueProblem, quote};

/// Nested mappings and lists. The deepest the format asks for is six.
const MAX_DEPTH: usize = 32;

/// The tree of the file's only document. `None`: a mistake was reported.
pub fn tree(text: &str, report: &mut Report) -> Option<YamlNode> {
    let mut tree = Tree { text, stack: Vec::new(), root: None };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((event, span)) => tree.push(event, span, report),
            Err(error) => Err((
                Location::root(error.marker().line().max(1), error.marker().col() + 1),
                tree.syntax_trouble(error.marker().line(), error.info()),
            )),
        };
        if let Err((location, problem)) = step {
            report.mistake(&location, problem);
            return None;
        }
    }
    if tree.root.as_ref().is_none_or(|root| root.value.is_null()) {
        let problem = ValueProblem::new("the file is empty").hint("it needs at least \"listeners\" and \"routes\"");
        report.mistake(&Location::root(1, 1), problem);
        return None;
    }
    tree.root
}

struct Tree<'a> {
    text: &'a str,
    stack: Vec<Frame>,
    root: Option<YamlNode>,
}

/// A collection whose end has not been seen.
struct Frame {
    location: Location,
    open: Open,
}

enum Open {
    List(Vec<YamlNode>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<NodeEntry>,
    /// Keys seen and their lines.
    lines: HashMap<String, usize>,
    /// A key whose value comes next.
    key: Option<(String, Location)>,
}

/// Ends the reading.
type Stop = (Location, ValueProblem);

impl Tree<'_> {
    fn push(&mut self, event: Event<'_>, span: Span, report: &mut Report) -> Result<(), Stop> {
        let at = (span.start.line().max(1), span.start.col() + 1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.check(at, anchor, tag.is_some())?;
                self.scalar(text.into_owned(), style == ScalarStyle::Plain, at, report)
            }
            Event::SequenceStart(anchor, tag) => {
                self.check(at, anchor, tag.is_some())?;
                self.open(at, Open::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check(at, anchor, tag.is_some())?;
                self.open(at, Open::Map(OpenMap::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.close(report);
                Ok(())
            }
            Event::Alias(_) => Err((self.location(at), no_anchors())),
            Event::DocumentStart(_) if self.root.is_some() => Err((
                Location::root(at.0, at.1),
                ValueProblem::new("a second document starts here").hint("remove the \"---\""),
            )),
            _ => Ok(()),
        }
    }

    fn check(&self, at: (usize, usize), anchor: usize, tagged: bool) -> Result<(), Stop> {
        if anchor > 0 {
            return Err((self.location(at), no_anchors()));
        }
        if tagged {
            return Err((
                self.location(at),
                ValueProblem::new("tags are not supported").hint("remove the word that starts with \"!\""),
            ));
        }
        Ok(())
    }

    /// The location of the node that starts at `at`.
    fn location(&self, at: (usize, usize)) -> Location {
        match self.stack.last() {
            None => Location::root(at.0, at.1),
            Some(Frame { location, open: Open::List(items) }) => location.index(items.len(), at),
            Some(Frame { location, open: Open::Map(map) }) => match &map.key {
                Some((key, _)) => location.key(key, at),
                None => location.moved(at),
            },
        }
    }

    fn open(&mut self, at: (usize, usize), open: Open) -> Result<(), Stop> {
        let location = self.location(at);
        if let Some(Frame { open: Open::Map(OpenMap { key: None, .. }), .. }) = self.stack.last() {
            let problem = ValueProblem::new("a key must be a single word").hint("quote a value that holds { } or [ ]");
            return Err((location, problem));
        }
        if self.stack.len() == MAX_DEPTH {
            return Err((location, ValueProblem::new(format!("nested deeper than {MAX_DEPTH} levels"))));
        }
        self.stack.push(Frame { location, open });
        Ok(())
    }

    fn close(&mut self, report: &mut Report) {
        if let Some(Frame { location, open }) = self.stack.pop() {
            let value = match open {
                Open::List(items) => YamlValue::List(items),
                Open::Map(map) => YamlValue::Map(map.entries),
            };
            self.add(YamlNode { location, value }, report);
        }
    }

    fn scalar(&mut self, text: String, plain: bool, at: (usize, usize), report: &mut Report) -> Result<(), Stop> {
        let location = self.location(at);
        if let Some(Frame { location: parent, open: Open::Map(map @ OpenMap { key: None, .. }) }) =
            self.stack.last_mut()
        {
            let location = parent.key(&text, at);
            map.key = Some((text, location));
            return Ok(());
        }
        self.add(YamlNode { location, value: YamlValue::Scalar { text, plain } }, report);
        Ok(())
    }

    fn add(&mut self, node: YamlNode, report: &mut Report) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame { open: Open::List(items), .. }) => items.push(node),
            Some(Frame { open: Open::Map(map), .. }) => map.add(node, report),
        }
    }

    /// Adds a hint for likely slips, of which the parser's own message says little: braces of ours inside braces of
    /// YAML's, and tabs.
    fn syntax_trouble(&self, line: usize, info: &str) -> ValueProblem {
        let problem = ValueProblem::new(format!("not YAML: {info}"));
        let near = self.text.lines().skip(line.saturating_sub(2)).take(2).collect::<Vec<_>>();
        if near.iter().any(|line| line.contains("${") || line.contains("/{")) {
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
        let Some((key, key_location)) = self.key.take() else { return };
        if let Some(line) = self.lines.get(&key) {
            let problem = ValueProblem::new(format!("{} is here twice, first on line {line}", quote(&key)));
            report.mistake(&key_location, problem.hint("keep one of the two"));
            return;
        }
        self.lines.insert(key.clone(), key_location.line);
        if value.value.is_null() {
            // The parser puts what is not there at the next token.
            value.location = key_location.clone();
        }
        self.entries.push(NodeEntry { key, key_location, value });
    }
}

fn no_anchors() -> ValueProblem {
    ValueProblem::new("anchors and aliases are not supported").hint("write the value out in each place")
}
