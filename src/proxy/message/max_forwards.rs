//! `Max-Forwards`: how many gateways an OPTIONS or TRACE may still pass (RFC 9110 §7.6.2).

use http::header::MAX_FORWARDS;
use http::{HeaderValue, Method, Request};

/// Counts this gateway. False: the request goes no further, and is answered here. Other methods,
/// and numbers that are none, are left alone.
pub fn count_hop<B>(request: &mut Request<B>) -> bool {
    if !matches!(*request.method(), Method::OPTIONS | Method::TRACE) {
        return true;
    }
    let fields = request.headers_mut();
    let number = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
    let Some(left) = fields.get_all(MAX_FORWARDS).iter().filter_map(number).min() else {
        return true;
    };
    if left > 0 {
        fields.insert(MAX_FORWARDS, (left - 1).into());
    }
    left > 0
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
        let fields = |request: Request<()>| {
            let values = request.headers().get_all(MAX_FORWARDS).iter();
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect()
        };
        count_hop(&mut request).then(|| fields(request))
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
