//! Anchors and aliases, and the mappings that `<<` merges into others.
//!
//! Guarantees that aliases cannot make a file much larger than it looks: a few lines of aliases of
//! aliases would otherwise fill all memory.

use std::collections::{HashMap, HashSet};

use tollgate_limiter::limit::units::show_size;

use super::node::{NodeEntry, YamlNode, YamlValue};
use crate::report::{Location, Report, ValueProblem};

/// The key that merges mappings.
pub const MERGE: &str = "<<";

/// Bytes of the values of a file that have an anchor, and of those that aliases stand for,
/// altogether. A large file has some thousand values.
const MOST_COPIED: usize = 16 << 20;

/// Ends the reading of a file.
pub type Stop = (Location, ValueProblem);

/// The values that have an anchor, by its number.
#[derive(Default)]
pub struct Anchors {
    values: HashMap<usize, AnchoredValue>,
    /// Bytes copied so far.
    copied: usize,
}

struct AnchoredValue {
    node: YamlNode,
    size: usize,
}

impl Anchors {
    /// Keeps a copy of `node`, unless the number of its anchor is 0.
    pub fn keep(&mut self, anchor: usize, node: &YamlNode) -> Result<(), Stop> {
        if anchor > 0 {
            let size = node.size();
            self.copied = charge(self.copied, size, &node.location)?;
            self.values.insert(
                anchor,
                AnchoredValue {
                    node: node.clone(),
                    size,
                },
            );
        }
        Ok(())
    }

    /// A copy of the value, for an alias at `location`.
    pub fn copy(&mut self, anchor: usize, location: Location) -> Result<YamlNode, Stop> {
        let Some(AnchoredValue { node, size }) = self.values.get(&anchor) else {
            let problem =
                ValueProblem::new("this alias stands inside the value that it stands for");
            return Err((location, problem.hint("write the value out")));
        };
        self.copied = charge(self.copied, *size, &location)?;
        Ok(node.clone().moved_to(location))
    }
}

/// `copied` and `size` bytes more, for the value at `location`.
fn charge(copied: usize, size: usize, location: &Location) -> Result<usize, Stop> {
    let copied = copied.saturating_add(size);
    if copied <= MOST_COPIED {
        return Ok(copied);
    }
    let most = show_size(MOST_COPIED as u64);
    let problem = ValueProblem::new(format!(
        "anchors and aliases up to here stand for over {most} of values"
    ));
    Err((
        location.clone(),
        problem.hint("use anchors and aliases of fewer and smaller values"),
    ))
}

/// Adds to the mapping at `location` what `merged` has and `entries` do not. The first of several
/// mappings wins.
pub fn merge(
    entries: &mut Vec<NodeEntry>,
    merged: YamlNode,
    location: &Location,
    report: &mut Report,
) {
    let mut keys: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let sources = match merged.value {
        YamlValue::List(sources) => sources,
        value => vec![YamlNode {
            location: merged.location,
            value,
        }],
    };
    for source in sources {
        match source.value {
            YamlValue::Map(found) => {
                let new = found
                    .into_iter()
                    .filter(|entry| keys.insert(entry.key.clone()));
                entries.extend(new.map(|entry| entry.moved_below(location)));
            }
            value => {
                let problem = ValueProblem::new(format!(
                    "{MERGE} merges mappings, and this is {}",
                    value.kind()
                ));
                report.mistake(
                    &source.location,
                    problem.hint("write <<: *name, or <<: [*one, *another]"),
                );
            }
        }
    }
}
