//! Inputs in pieces: a peer's bytes may arrive in any.

/// Splits `data` in two, at a place that its first byte says. The rest is what a peer sends.
pub fn split(data: &[u8]) -> (&[u8], usize) {
    let Some((place, rest)) = data.split_first() else {
        return (data, 0);
    };
    (rest, rest.len() * usize::from(*place) / 256)
}
