//! Replies of a Redis server to scripts: read as the scripts give them, or not at all.

use tollgate_limiter::store::redis::AnyReply;

/// A reply is a grant only if it has the numbers of one, and then grants no more than was asked
/// for. None ends the process, whatever reads it.
pub fn only_a_grant_is_read_as_one(data: &[u8]) {
    let Some((&[buckets, asked], described)) = data.split_first_chunk() else {
        return;
    };
    let (buckets, asked) = (usize::from(buckets % 5), u32::from(asked));
    let reply = AnyReply::from_bytes(described);
    let integers = reply.integers();
    if let Some(granted) = reply.granted(buckets, asked) {
        let integers = integers.unwrap_or_else(|| panic!("a grant of no integers"));
        assert_eq!(integers.len(), 2 + 3 * buckets);
        assert_eq!(integers[0], i64::from(granted));
        assert!(granted <= asked, "{granted} of {asked}");
        assert!(integers[1] >= 0, "the time is {}", integers[1]);
    }
    reply.read_by_all();
}
