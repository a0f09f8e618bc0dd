//! Addresses as text, without the machinery of `fmt`: they are written for every request, several
//! times.
//!
//! Guarantees the same text as `Display`.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use smallvec::{Array, SmallVec};

/// Appends `address` to `text`.
pub fn push_address<A: Array<Item = u8>>(text: &mut SmallVec<A>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push_ipv4(text, v4),
        // Writing to memory cannot fail.
        IpAddr::V6(v6) => drop(write!(text, "{v6}")),
    }
}

/// Every octet as text, a dot behind it.
const OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [
            b'0' + (octet / 100) as u8,
            b'0' + (octet / 10 % 10) as u8,
            b'0' + (octet % 10) as u8,
        ];
        let skipped = if octet >= 100 {
            0
        } else {
            1 + (octet < 10) as usize
        };
        let mut at = skipped;
        while at < 3 {
            octets[octet][at - skipped] = digits[at];
            at += 1;
        }
        octet += 1;
    }
    octets
};

fn push_ipv4<A: Array<Item = u8>>(text: &mut SmallVec<A>, address: Ipv4Addr) {
    let mut dotted = [0; 16];
    let mut length = 0;
    for octet in address.octets() {
        dotted[length..length + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        length += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    }
    text.extend_from_slice(&dotted[..length - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(address: IpAddr) -> String {
        let mut text: SmallVec<[u8; 64]> = SmallVec::new();
        push_address(&mut text, address);
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn writes_every_octet_as_display_does() {
        for octet in 0..=u8::MAX {
            for address in [
                Ipv4Addr::new(octet, 255, 0, octet),
                Ipv4Addr::new(10, octet, octet, 99),
            ] {
                assert_eq!(written(address.into()), address.to_string());
            }
        }
    }

    #[test]
    fn writes_ipv6_as_display_does() {
        for address in ["::", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1:0:0:2"] {
            assert_eq!(written(address.parse().unwrap()), address);
        }
    }
}
