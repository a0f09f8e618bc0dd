//! A cost that the response tells: where it stands there, and what bounds it.
//!
//! Guarantees that a cost which is shown reads like the file it came from.

use std::fmt;
use std::num::NonZeroU64;

use http::HeaderName;

use crate::limit::cost::json_path::JsonPath;

/// A cost that is known after the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseCost {
    pub field: CostField,
    /// Tokens taken before; the cost of the request if the response does not tell.
    pub reserve: NonZeroU64,
    /// Tokens that it costs at most. May be more than a bucket holds.
    pub max: NonZeroU64,
    /// Tokens that a successful response (2xx) costs at least if it does not tell all of its cost,
    /// or breaks off before. `None`: what is reserved stands.
    pub absent: Option<NonZeroU64>,
}

/// Where a response tells its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostField {
    Header(HeaderName),
    /// In its body: JSON, several JSON texts on lines, or JSON in the data of an event stream. The
    /// cost is the sum of these terms.
    Json(Box<[JsonTerm]>),
}

/// A part of a cost: `weight` tokens for each of what a number says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonTerm {
    /// The first of these that the body has is the number.
    pub first_of: Vec<JsonPath>,
    pub weight: NonZeroU64,
}

impl From<JsonPath> for JsonTerm {
    fn from(path: JsonPath) -> Self {
        Self {
            first_of: vec![path],
            weight: NonZeroU64::MIN,
        }
    }
}

/// The number at this path, and no other.
impl From<JsonPath> for CostField {
    fn from(path: JsonPath) -> Self {
        Self::Json(Box::new([path.into()]))
    }
}

/// `response_header x-used`, or `response_json usage.input_tokens + 4 * usage.output_tokens`.
impl fmt::Display for CostField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "response_header {name}"),
            Self::Json(terms) => {
                let terms: Vec<String> = terms.iter().map(ToString::to_string).collect();
                write!(f, "response_json {}", terms.join(" + "))
            }
        }
    }
}

impl fmt::Display for JsonTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.first_of.iter().map(ToString::to_string).collect();
        let paths = match &paths[..] {
            [one] => one.clone(),
            several => format!("({})", several.join(" or ")),
        };
        match self.weight {
            NonZeroU64::MIN => f.write_str(&paths),
            weight => write!(f, "{weight} * {paths}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_shown_with_its_weights_and_alternatives() {
        fn path(text: &str) -> JsonPath {
            JsonPath::parse(text).unwrap()
        }
        let weight = NonZeroU64::new(4).unwrap();
        let output = JsonTerm {
            first_of: vec![path("usage.out"), path("response.usage.out")],
            weight,
        };
        let sum = CostField::Json([JsonTerm::from(path("usage.in")), output].into());
        assert_eq!(
            sum.to_string(),
            "response_json usage.in + 4 * (usage.out or response.usage.out)"
        );
        assert_eq!(
            CostField::from(path("used")).to_string(),
            "response_json used"
        );
        assert_eq!(
            CostField::Header(HeaderName::from_static("x-used")).to_string(),
            "response_header x-used"
        );
    }
}
