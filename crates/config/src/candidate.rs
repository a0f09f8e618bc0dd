//! A strategy's candidate: the limit that is tried out, where it acts, and what it must stay
//! within.

use std::sync::Arc;
use std::time::Duration;

/// A candidate that acts on this node, or only counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub application: Arc<str>,
    pub strategy: Arc<str>,
    /// The limit that it is: one of its own, or the strategy's.
    pub limit: Arc<str>,
    pub stage: Stage,
    pub terms: CandidateTerms,
}

/// How a candidate is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateTerms {
    pub bounds: CandidateBounds,
    /// The time that the bounds are judged over.
    pub over: Duration,
    /// Requests that a judgement wants. Where there are fewer in that time, it goes further back.
    pub least: u64,
    /// The time within its bounds after which it becomes the limit.
    pub promote_after: Option<Duration>,
}

/// The bounds that a candidate must stay within. Shares are in hundredths of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateBounds {
    pub denials: Option<u16>,
    pub errors: Option<u16>,
    /// The latency that 99 % of the requests stay within.
    pub latency: Option<Duration>,
}

/// Nodes that a sentence names: reasons of revisions are short.
const SHOWN_NODES: usize = 3;

/// Where a candidate acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nowhere: it counts beside the limit.
    Shadow,
    /// On a share of the keys beside the limit, as it is written.
    Share(Arc<str>),
    /// In place of the limit, on the nodes with these names.
    Nodes(Vec<NodePattern>),
}

/// The name of a node, with `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePattern(Arc<str>);

impl NodePattern {
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// Whether the node called `name` is meant.
    pub fn takes(&self, name: &str) -> bool {
        let pieces: Vec<&str> = self.0.split('*').collect();
        let [first, between @ .., last] = &*pieces else {
            return *self.0 == *name;
        };
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        for piece in between {
            let Some((_, behind)) = rest.split_once(piece) else {
                return false;
            };
            rest = behind;
        }
        rest.ends_with(last)
    }
}

impl Stage {
    /// In a sentence.
    pub fn shown(&self) -> String {
        match self {
            Self::Shadow => "in shadow".to_owned(),
            Self::Share(share) => format!("on {share} of the keys"),
            Self::Nodes(nodes) => {
                let shown = nodes
                    .iter()
                    .take(SHOWN_NODES)
                    .map(|node| &*node.0)
                    .collect::<Vec<_>>()
                    .join(", ");
                match nodes.len().saturating_sub(SHOWN_NODES) {
                    0 => format!("on nodes {shown}"),
                    more => format!("on nodes {shown} and {more} more"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_nodes(count: usize) -> Stage {
        let names = (0..count).map(|node| NodePattern::new(&format!("edge-{node}")));
        Stage::Nodes(names.collect())
    }

    #[test]
    fn a_sentence_names_few_nodes() {
        assert_eq!(on_nodes(3).shown(), "on nodes edge-0, edge-1, edge-2");
        assert_eq!(
            on_nodes(500).shown(),
            "on nodes edge-0, edge-1, edge-2 and 497 more"
        );
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("edge-1", "edge-1"),
            ("*", "a"),
            ("canary-*", "canary-"),
            ("*-1", "a-1"),
            ("a*b*c", "axbxbc"),
            ("a**c", "ac"),
        ] {
            assert!(
                NodePattern::new(pattern).takes(name),
                "{pattern} takes {name}"
            );
        }
        for (pattern, name) in [
            ("edge-1", "edge-10"),
            ("canary-*", "a-canary-1"),
            ("*-1", "a-10"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "a"),
        ] {
            assert!(
                !NodePattern::new(pattern).takes(name),
                "{pattern} takes {name}"
            );
        }
    }
}
