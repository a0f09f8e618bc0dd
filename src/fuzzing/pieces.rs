//! Inputs in pieces, as a peer's bytes may arrive.

/// The bytes that a peer sends, and the place that splits them in two: the first byte of `data`
/// gives the place.
pub fn split(data: &[u8]) -> (&[u8], usize) {
    let Some((place, rest)) = data.split_first() else {
        return (data, 0);
    };
    (rest, rest.len() * usize::from(*place) / 256)
}
