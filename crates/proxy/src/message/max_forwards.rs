//! `Max-Forwards`: how many gateways an OPTIONS or TRACE may still pass (RFC 9110 §7.6.2).

use http::header::MAX_FORWARDS;
use http::{HeaderValue, Method, Request};

/// Counts this gateway. False: the request goes no further, and is answered here. Other methods,
/// and values that are no numbers, are left alone.
pub fn count_hop<B>(request: &mut Request<B>) -> bool {
    if !matches!(*request.method(), Method::OPTIONS | Method::TRACE) {
        return true;
    }
    let fields = request.headers_mut();
    let values = fields.get_all(MAX_FORWARDS).iter();
    let Some(left) = values.filter_map(parse_number).min() else {
        return true;
    };
    if left > 0 {
        fields.insert(MAX_FORWARDS, (left - 1).into());
    }
    left > 0
}

fn parse_number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `Max-Forwards` that is sent on. `None`: the request is answered here.
    fn sent(method: &str, values: &[&str]) -> Option<Vec<String>> {
        let mut request = Request::builder().method(method).body(()).unwrap();
        for value in values {
            request
                .headers_mut()
                .append(MAX_FORWARDS, value.parse().unwrap());
        }
        if !count_hop(&mut request) {
            return None;
        }
        let mut sent = Vec::new();
        for value in request.headers().get_all(MAX_FORWARDS) {
            sent.push(value.to_str().unwrap().to_owned());
        }
        Some(sent)
    }

    #[test]
    fn each_gateway_takes_one_off() {
        for method in ["OPTIONS", "TRACE"] {
            assert_eq!(sent(method, &["0"]), None);
            assert_eq!(sent(method, &["7", "0"]), None);
            assert_eq!(sent(method, &["1"]).unwrap(), ["0"]);
            assert_eq!(sent(method, &["7", "5"]).unwrap(), ["4"]);
            assert_eq!(sent(method, &[]).unwrap(), [""; 0]);
            assert_eq!(sent(method, &["x"]).unwrap(), ["x"]);
        }
        assert_eq!(sent("GET", &["0"]).unwrap(), ["0"]);
    }
}
