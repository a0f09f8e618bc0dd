//! The preferences that clients state in `Accept` and `Accept-Encoding` (RFC 9110 §12.4.2): names
//! with weights. And the `Vary` of an answer that depends on them.

use http::header::{ACCEPT_ENCODING, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The weight of a name without one, in thousandths.
const FULL: u16 = 1000;

/// The names that the values of a field state, in its order: each with its weight in thousandths.
/// Items that cannot be read are left out.
pub fn stated<'h>(
    values: impl IntoIterator<Item = &'h HeaderValue>,
) -> impl Iterator<Item = (&'h str, u16)> {
    let values = values.into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(item)
}

/// Adds this field of the request to `Vary`, unless the answer names it there: caches learn that
/// the answer depends on the field (RFC 9110 §12.5.5).
pub fn vary_on(headers: &mut HeaderMap, field: &HeaderName) {
    for (name, _) in stated(headers.get_all(VARY)) {
        if name == "*" || name.eq_ignore_ascii_case(field.as_str()) {
            return;
        }
    }
    headers.append(VARY, field.clone().into());
}

/// The weight that a client gives to this content coding (RFC 9110 §12.5.3), in thousandths. 0: the
/// client does not take the coding.
pub fn weight_of_coding(headers: &HeaderMap, coding: &str) -> u16 {
    let mut any = 0;
    for (name, weight) in stated(headers.get_all(ACCEPT_ENCODING)) {
        // `x-gzip` is another name of gzip (RFC 9110 §8.4.1.3).
        if name.eq_ignore_ascii_case(coding)
            || (coding == "gzip" && name.eq_ignore_ascii_case("x-gzip"))
        {
            return weight;
        }
        if name == "*" {
            any = weight;
        }
    }
    any
}

fn item(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some((name, weight.map_or(Some(FULL), thousandths)?))
}

/// `qvalue`: 0 to 1, with three digits behind the point at most.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    if digits.len() > 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction = format!("{digits:0<3}").parse::<u16>().ok()?;
    match whole {
        "0" => Some(fraction),
        "1" if fraction == 0 => Some(FULL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coding_weighs_as_much_as_the_client_says() {
        for (stated, gzip, br) in [
            ("gzip, br;q=0.5", 1000, 500),
            ("GZIP;q=0.001 , *", 1, 1000),
            ("*;q=0.3, gzip;Q=0", 0, 300),
            ("x-gzip; q=0.25", 250, 0),
            ("br;q=1.000, gzip;q=1.001, gzip;q=0.7", 700, 1000),
            ("br;q=yes, gzip;q=0.1234, ;q=1,", 0, 0),
            ("identity", 0, 0),
            ("", 0, 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(stated));
            let weights = ["gzip", "br"].map(|coding| weight_of_coding(&headers, coding));
            assert_eq!(weights, [gzip, br], "{stated}");
        }
    }
}
