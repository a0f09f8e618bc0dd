//! A node of the fleet as JSON: what it says of itself, and what the others know of it.

use serde::{Deserialize, Serialize};

use tollgate_spec::plain_text::is_plain_line;

/// The report of a node about itself, sent with each of its heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeReport {
    /// `node_name` in its file.
    pub name: String,
    pub version: String,
    /// When its process began, in seconds since 1970.
    pub started_at: u64,
    /// When its configuration last changed, in seconds since 1970.
    pub configured_at: u64,
    /// Whether what it last read of its file was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub file_refused: bool,
    /// The revision of the policies that it runs, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The newest revision, if it does not fit this node's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_revision: Option<u64>,
    /// Whether the store decides for this node; otherwise limits follow `on_outage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_up: Option<bool>,
    /// Why the other nodes of the store do not hear of this one, if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_error: Option<String>,
    pub endpoints: u32,
    pub endpoints_in_service: u32,
    /// Upstreams with an endpoint that is out of service, the first by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubled_upstreams: Vec<String>,
}

impl NodeReport {
    /// Reads a report of another node. `None`: nothing that can be shown. Others than nodes may
    /// write to Redis, too.
    pub fn read(statement: &[u8]) -> Option<Self> {
        let report: Self = serde_json::from_slice(statement).ok()?;
        let upstreams = report.troubled_upstreams.iter();
        let mut texts = upstreams.chain(&report.heartbeat_error);
        let is_plain = is_plain_line(&report.name)
            && is_plain_line(&report.version)
            && texts.all(|text| is_plain_line(text));
        if is_plain { Some(report) } else { None }
    }
}

/// A node of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// The number of the node, from 0, in the order of identifiers that nodes chose by chance. None
    /// without a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Whether it is the one that answers.
    pub answering: bool,
    /// Seconds since it was last heard of.
    pub heard_of: f64,
    /// Nothing, of a node that says nothing of itself: of an older version, or a program with the
    /// limiter inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<NodeReport>,
}

/// The nodes of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    /// Why only the one that answers is in the list, where there may be others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_does_not_show_all_it_has_is_none() {
        for (name, upstream, is_shown) in [
            ("edge-1", "web", true),
            ("edge\u{1b}[2J", "web", false),
            ("edge-1", "\u{202e}bew", false),
        ] {
            let report = NodeReport {
                name: name.to_owned(),
                troubled_upstreams: vec![upstream.to_owned()],
                ..NodeReport::default()
            };
            let read = NodeReport::read(&serde_json::to_vec(&report).unwrap());
            assert_eq!(read, is_shown.then_some(report));
        }
        assert_eq!(NodeReport::read(b"{}"), None);
    }
}
