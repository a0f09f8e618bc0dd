//! The rules for a change of protocol (RFC 9110 §7.8), whatever versions ask for it and grant it.
//!
//! Guarantees that a client's connection changes only to what the client has offered.

use std::collections::HashSet;

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::{HeaderMap, HeaderValue, Version};

/// The protocols of all `Upgrade` fields. `None`: there are none, and there is no upgrade.
pub fn protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lists = headers
        .get_all(UPGRADE)
        .iter()
        .filter(|list| names(list).next().is_some());
    let first = lists.next()?;
    let Some(second) = lists.next() else {
        return Some(first.clone());
    };
    let mut all = vec![first.as_bytes(), second.as_bytes()];
    all.extend(lists.map(HeaderValue::as_bytes));
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

/// The protocols that a 101 switches to. `None`: no protocol that both sides would understand
/// alike.
///
/// HTTP/1.0 has no 101 (RFC 9110 §15.2), and an `Upgrade` without its `Connection` is for nobody
/// (§7.8). Clients check any of several `Sec-WebSocket-Accept`, so these must agree.
pub fn switched_to(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut options = headers.get_all(CONNECTION).iter().flat_map(names);
    let has_upgrade_option = options.any(|name| name.eq_ignore_ascii_case(b"upgrade"));
    let mut proofs = headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
    let first = proofs.next();
    let agree = proofs.all(|proof| Some(proof) == first);
    if version > Version::HTTP_10 && has_upgrade_option && agree {
        protocols(headers)
    } else {
        None
    }
}

/// Whether a client that `offered` these protocols has offered all of `chosen`. An offer without a
/// version is for every version.
pub fn is_offered(chosen: &HeaderValue, offered: &HeaderValue) -> bool {
    // A set, since each side chooses how long its list is.
    let offers: HashSet<Vec<u8>> = names(offered).map(<[u8]>::to_ascii_lowercase).collect();
    names(chosen).all(|chosen| {
        let chosen = chosen.to_ascii_lowercase();
        let unversioned = chosen.split(|&byte| byte == b'/').next();
        offers.contains(&chosen) || unversioned.is_some_and(|name| offers.contains(name))
    })
}

fn names(list: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    list.as_bytes()
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    #[test]
    fn several_fields_are_one_list_and_empty_ones_are_none() {
        let cases: [(&[&str], Option<&str>); 6] = [
            (&[], None),
            (&[""], None),
            (&[" , ", ""], None),
            (&["websocket"], Some("websocket")),
            (&["", "websocket"], Some("websocket")),
            (&["a/1, b", "c"], Some("a/1, b, c")),
        ];
        for (fields, expected) in cases {
            let headers = fields.iter().map(|field| (UPGRADE, list(field))).collect();
            assert_eq!(protocols(&headers), expected.map(list), "{fields:?}");
        }
    }

    #[test]
    fn a_protocol_must_have_been_offered() {
        for (chosen, offered) in [
            ("websocket", "websocket"),
            ("WebSocket", "websocket"),
            ("b/2", "a, b/2"),
            ("b/2", "b"),
            ("b, a", "a, b"),
        ] {
            assert!(
                is_offered(&list(chosen), &list(offered)),
                "{chosen} {offered}"
            );
        }
        for (chosen, offered) in [
            ("foo", "websocket"),
            ("b/1", "b/2"),
            ("b", "b/2"),
            ("a, foo", "a, b"),
            ("a", ""),
        ] {
            assert!(
                !is_offered(&list(chosen), &list(offered)),
                "{chosen} {offered}"
            );
        }
    }
}
