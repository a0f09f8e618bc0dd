//! Reads the start of a trailer section: whether its first field is a pseudo-field. The library
//! drops it, and RFC 9113 §8.1 calls it malformed. The library itself refuses one behind another
//! field.
//!
//! Guarantees that no trailer is taken for a pseudo-field. A pseudo-field that refers to an entry
//! of the dynamic table is not known for one: the table is the library's.

/// Flags of HEADERS (RFC 9113 §6.2).
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The last entry of the static table that is a pseudo-field: `:status: 500` (RFC 7541 §A).
const LAST_PSEUDO: u8 = 14;

/// The start of a trailer section that is being read.
#[derive(Debug)]
pub struct TrailerStart {
    pub stream: u32,
    /// Bytes before the section: the length of the padding, and a priority.
    before: usize,
    part: Part,
}

/// The meaning of the next byte (RFC 7541 §6).
#[derive(Debug)]
enum Part {
    /// The first of a representation.
    Representation,
    /// A further one of the number to which the table's size changes.
    TableSize,
    NameLength,
    /// The first of the name. It is compressed.
    Name(bool),
}

impl TrailerStart {
    /// The start of a section on `stream`, in a frame with these `flags`.
    pub fn new(stream: u32, flags: u8) -> Self {
        let padding = usize::from(flags & PADDED != 0);
        let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
        Self {
            stream,
            before: padding + priority,
            part: Part::Representation,
        }
    }

    /// Reads on. Returns whether the first field is a pseudo-field, once that is known.
    pub fn read(&mut self, payload: &[u8]) -> Option<bool> {
        let skipped = self.before.min(payload.len());
        self.before -= skipped;
        for byte in &payload[skipped..] {
            self.part = match (&self.part, *byte) {
                (Part::Representation, 0x20..=0x3e) => Part::Representation,
                (Part::Representation, 0x3f) => Part::TableSize,
                (Part::TableSize, 0x80..) => Part::TableSize,
                (Part::TableSize, _) => Part::Representation,
                (Part::Representation, 0x00 | 0x10 | 0x40) => Part::NameLength,
                (Part::Representation, byte) => return Some(is_pseudo(named(byte))),
                (Part::NameLength, length) => Part::Name(length & 0x80 != 0),
                // A colon in the Huffman code is 1011100 (RFC 7541 §B).
                (Part::Name(true), byte) => return Some(byte >> 1 == 0b101_1100),
                (Part::Name(false), byte) => return Some(byte == b':'),
            };
        }
        None
    }
}

/// The entry of the table that a representation names, if it is one of the first.
fn named(representation: u8) -> u8 {
    match representation {
        0x80.. => representation & 0x7f,
        0x40.. => representation & 0x3f,
        _ => representation & 0x0f,
    }
}

fn is_pseudo(entry: u8) -> bool {
    (1..=LAST_PSEUDO).contains(&entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a section that comes in one piece, and byte by byte.
    fn read(flags: u8, payload: &[u8]) -> Option<bool> {
        let whole = TrailerStart::new(1, flags).read(payload);
        let mut start = TrailerStart::new(1, flags);
        let pieces = payload.iter().find_map(|byte| start.read(&[*byte]));
        assert_eq!(whole, pieces);
        whole
    }

    #[test]
    fn a_pseudo_field_is_known_in_every_representation() {
        for section in [
            &[0x84][..],
            &[0x8e],
            &[0x44, 1, b'/'],
            &[0x04, 1, b'/'],
            &[0x18, 3, b'2'],
            &[0x00, 5, b':', b'p'],
            &[0x10, 5, b':', b'p'],
            &[0x40, 0x84, 0xb9, 0x5b],
            &[0x20, 0x3f, 0x80, 0x01, 0x84],
        ] {
            assert_eq!(read(0, section), Some(true), "{section:?}");
        }
        assert_eq!(read(PADDED, &[2, 0x84, 0, 0]), Some(true));
        assert_eq!(
            read(PADDED | PRIORITY, &[0, 0, 0, 0, 0, 1, 0x84]),
            Some(true)
        );
    }

    #[test]
    fn no_other_field_is_taken_for_one() {
        for section in [
            &[0x8f][..],
            &[0xbe],
            &[0x7e, 1, b'a'],
            &[0x0f, 0x00, 1, b'a'],
            &[0x00, 1, b'x', 1, b':'],
            &[0x40, 0x81, 0xf3],
        ] {
            assert_eq!(read(0, section), Some(false), "{section:?}");
        }
        assert_eq!(read(0, &[]), None);
        assert_eq!(read(PRIORITY, &[0x84, 0x84]), None);
    }
}
