//! The nodes of the fleet as Redis knows them, and what each says of itself.

use std::time::Duration;

use fred::types::Key;
use fred::util::redis_keyslot;

use crate::store::StoreError;
use crate::store::inspect::FleetNode;
use crate::store::redis::inspect::RedisInspector;
use crate::store::redis::permit_key::{self, NODES_KEY};
use crate::store::redis::script;

/// Bytes that a node may say of itself. More is neither sent nor believed: all of it goes to Redis
/// with each beat.
pub(super) const LONGEST_STATEMENT: usize = 4_096;

/// The keys of the set of nodes and, where all can be changed at once, of what they say, and since
/// when there has always been one.
pub(super) fn keys(prefix: &str) -> Vec<Key> {
    let nodes = format!("{prefix}{NODES_KEY}");
    // Named by the first as its hash tag, so that a cluster has all in one slot, and behind the
    // prefix, since a server may let nodes use no other keys.
    let statements = format!("{prefix}{{{nodes}}}");
    let since = permit_key::since(prefix);
    let mut keys = vec![Key::from(nodes)];
    // A prefix with half a hash tag parts them.
    if redis_keyslot(statements.as_bytes()) == redis_keyslot(keys[0].as_bytes()) {
        keys.extend([Key::from(statements), since]);
    }
    keys
}

impl RedisInspector {
    pub(super) async fn fleet_nodes(&self) -> Result<Vec<FleetNode>, StoreError> {
        let mut keys = keys(&self.prefix);
        keys.truncate(2);
        let reply: Vec<Vec<u8>> = self
            .run(&script::NODES, &keys[0], |_| (keys.clone(), Vec::new()))
            .await?;
        read_nodes(&reply)
    }
}

/// The script's reply: see its head.
pub(super) fn read_nodes(reply: &[Vec<u8>]) -> Result<Vec<FleetNode>, StoreError> {
    let nodes: Option<_> = reply.chunks(3).map(read_node).collect();
    nodes.ok_or(StoreError::Protocol)
}

fn read_node(words: &[Vec<u8>]) -> Option<FleetNode> {
    let [id, millis, statement] = words else {
        return None;
    };
    let millis = str::from_utf8(millis).ok()?.parse().ok()?;
    let id = String::from_utf8(id.clone()).ok()?;
    let statement = if statement.len() > LONGEST_STATEMENT {
        Vec::new()
    } else {
        statement.clone()
    };
    Some(FleetNode {
        id,
        heard_of: Duration::from_millis(millis),
        statement,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str) -> Vec<String> {
        keys(prefix)
            .iter()
            .map(|key| key.as_str_lossy().into_owned())
            .collect()
    }

    #[test]
    fn more_than_a_node_may_say_of_itself_is_not_believed() {
        fn node_with_statement(length: usize) -> FleetNode {
            read_node(&[b"node".to_vec(), b"1500".to_vec(), vec![b'x'; length]]).unwrap()
        }
        assert_eq!(
            node_with_statement(LONGEST_STATEMENT).statement.len(),
            LONGEST_STATEMENT
        );
        assert_eq!(
            (
                node_with_statement(LONGEST_STATEMENT + 1).statement.len(),
                node_with_statement(1).heard_of
            ),
            (0, Duration::from_millis(1500))
        );
    }

    #[test]
    fn all_keys_are_behind_the_prefix_and_in_one_slot() {
        assert_eq!(
            names("tollgate:"),
            [
                "tollgate:!nodes",
                "tollgate:{tollgate:!nodes}",
                "tollgate:{tollgate:!nodes}:since"
            ]
        );
        assert_eq!(
            names("{shop}:"),
            [
                "{shop}:!nodes",
                "{shop}:{{shop}:!nodes}",
                "{shop}:{{shop}:!nodes}:since"
            ]
        );
        assert_eq!(names(""), ["!nodes", "{!nodes}", "{!nodes}:since"]);
        assert_eq!(names("a{b:"), ["a{b:!nodes"]);
    }
}
