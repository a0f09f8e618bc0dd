//! Replies of a Redis server to scripts: read as the scripts give them, or not at all.

use tollgate_limiter::store::redis::AnyReply;

/// A reply is a grant only if it has the numbers of one, and then grants no group more than it was
/// asked for. None ends the process, whatever reads it.
pub fn only_a_grant_is_read_as_one(data: &[u8]) {
    let Some((&[groups, buckets, asked], described)) = data.split_first_chunk() else {
        return;
    };
    let group = (usize::from(buckets % 5), u32::from(asked));
    let groups = vec![group; 1 + usize::from(groups % 3)];
    let reply = AnyReply::from_bytes(described);
    let integers = reply.integers();
    if let Some(granted) = reply.granted(&groups) {
        let integers = integers.unwrap_or_else(|| panic!("a grant of no integers"));
        let (buckets, asked) = group;
        assert_eq!(integers.len(), 2 + groups.len() * (1 + 3 * buckets));
        assert_eq!(integers[0], 1);
        assert!(integers[1] >= 0, "the time is {}", integers[1]);
        for (numbers, granted) in integers[2..].chunks_exact(1 + 3 * buckets).zip(granted) {
            let Some(granted) = granted else { continue };
            assert_eq!(numbers[0], i64::from(granted));
            assert!(granted <= asked, "{granted} of {asked}");
        }
    }
    reply.read_by_all();
}
