//! An endpoint as data.

use std::str::FromStr;

use http::HeaderValue;

use crate::upstream::url::{EndpointUrl, InvalidEndpointUrl};

/// An endpoint, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    pub url: EndpointUrl,
    /// The endpoint's share of the requests, beside those of others.
    pub weight: u64,
    /// The endpoint gets requests while none with a lower number is in service. 0: from the start.
    pub priority: u16,
    /// The host that requests are for. `None`: the URL's.
    pub host: Option<HeaderValue>,
}

impl FromStr for EndpointSpec {
    type Err = InvalidEndpointUrl;

    /// A URL, of an endpoint like any other.
    fn from_str(text: &str) -> Result<Self, InvalidEndpointUrl> {
        Ok(Self {
            url: text.parse()?,
            weight: 1,
            priority: 0,
            host: None,
        })
    }
}
