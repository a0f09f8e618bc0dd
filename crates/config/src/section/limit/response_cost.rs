//! `cost` by the response: where its number is, and the cost if there is none.

use std::num::NonZeroU64;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::cost::json_path::{JsonPath, PathError};
use tollgate_limiter::limit::cost::{CostField, JsonTerm};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::WholeNumber;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch, only_one};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

/// Paths of one cost at most: each is looked for on its own in every body.
const MAX_PATHS: usize = 16;

record! {
    /// A part of the cost: tokens for each of what a field says.
    RawJsonTermOptions at location {
        /// The field, names joined by dots: `usage.output_tokens`.
        optional path: Located<JsonPath>,
        /// Several fields, of which the first that the body has counts.
        optional first_of: NonEmptyList<Located<JsonPath>>,
        /// Tokens for each of what the field says.
        default(1) weight: Located<WholeNumber<1, 1_000_000>>,
    }
}

/// A field, or a list of fields whose numbers are added.
pub struct RawJsonSum {
    pub location: Location,
    terms: Box<[JsonTerm]>,
}

impl RawJsonSum {
    /// How many values are looked for in each response.
    pub fn values(&self) -> usize {
        self.terms.iter().map(|term| term.first_of.len()).sum()
    }
}

/// The part of a response that says how many tokens its request took.
pub enum RawResponseField {
    Header(Located<HeaderName>),
    Json(RawJsonSum),
}

/// The cost of a successful response that does not tell it.
#[derive(Clone, Copy)]
pub enum AbsentCost {
    Reserve,
    Max,
    Tokens(NonZeroU64),
}

/// An item of the list.
struct RawJsonTerm(JsonTerm);

impl RawResponseField {
    /// The location of the key that decides.
    pub fn location(&self) -> &Location {
        match self {
            Self::Header(at) => &at.location,
            Self::Json(sum) => &sum.location,
        }
    }

    pub fn field(&self) -> CostField {
        match self {
            Self::Header(at) => CostField::Header(at.value.clone()),
            Self::Json(sum) => CostField::Json(sum.terms.clone()),
        }
    }
}

impl Decode for RawJsonSum {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let location = node.location.clone();
        let terms;
        let mut written = 1;
        if let YamlValue::List(items) = &node.value {
            written = items.len();
            terms = NonEmptyList::<RawJsonTerm>::decode(node, report)?.0;
        } else {
            terms = vec![RawJsonTerm::decode(node, report)?];
        }
        if terms
            .iter()
            .map(|RawJsonTerm(term)| term.first_of.len())
            .sum::<usize>()
            > MAX_PATHS
        {
            let problem = ValueProblem::new(format!("there are more than {MAX_PATHS} paths"));
            report.mistake(&location, problem.hint("name fewer fields"));
            return None;
        }
        if terms.len() < written {
            // A mistake in one of them was reported.
            return None;
        }
        Some(Self {
            location,
            terms: terms.into_iter().map(|RawJsonTerm(term)| term).collect(),
        })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        let term = RawJsonTerm::schema(definitions);
        json!({ "anyOf": [term, NonEmptyList::<RawJsonTerm>::schema(definitions)] })
    }
}

impl Decode for RawJsonTerm {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawJsonTermOptions::decode(node, report)?
                .choose(report)
                .map(Self),
            YamlValue::Scalar { .. } => {
                Located::<JsonPath>::decode(node, report).map(|at| Self(at.value.into()))
            }
            _ => {
                let hint = "write a path such as usage.total_tokens, {path: …, weight: 4} or {first_of: […]}";
                mismatch(node, JsonPath::WHAT, Some(hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [JsonPath::schema(), RawJsonTermOptions::schema(definitions)] })
    }
}

impl RawJsonTermOptions {
    fn choose(self, report: &mut Report) -> Option<JsonTerm> {
        let Self {
            location,
            path,
            first_of,
            weight,
        } = self;
        let choices = [path.take(|at| Some(vec![at.value])), first_of.values()];
        let first_of = only_one(choices).unwrap_or_else(|_| {
            let problem =
                ValueProblem::new("a part of the cost has exactly one of path and first_of");
            report.mistake(
                &location,
                problem.hint("write {path: usage.output_tokens, weight: 4} or {first_of: [a, b]}"),
            );
            None
        });
        Some(JsonTerm {
            first_of: first_of?,
            weight: NonZeroU64::new(weight.value()?.0)?,
        })
    }
}

impl Scalar for JsonPath {
    const WHAT: &'static str = "a field's path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        Self::parse(text).map_err(|error| {
            let problem = ValueProblem::new(format!("{} is not a field's path: {error}", quote(text)));
            problem.hint(match error {
                PathError::Root => match text.strip_prefix("$.").filter(|rest| Self::parse(rest).is_ok()) {
                    Some(rest) => format!("write {rest}: names begin at the outermost object"),
                    None => "write names from the outermost object on, such as usage.total_tokens".to_owned(),
                },
                PathError::Sum => sum_hint(text),
                PathError::Wildcard => "name each field, and list them; \\* is a \"*\" within a name".to_owned(),
                PathError::Array => "name fields of objects only; \\[ is a \"[\" within a name".to_owned(),
                PathError::EmptyName | PathError::TooDeep | PathError::Escape => {
                    "write names joined by dots, such as usage.total_tokens, and \\. for a dot within a name".to_owned()
                }
            })
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

/// How to write a sum, or a name with a space.
fn sum_hint(text: &str) -> String {
    let terms: Vec<&str> = text.split('+').map(str::trim).collect();
    if terms.len() > 1 && terms.iter().all(|term| JsonPath::parse(term).is_ok()) {
        return format!(
            "write a list: [{}], with {{path: …, weight: 4}} for one that costs more",
            terms.join(", ")
        );
    }
    "write a list to add fields, and a backslash before a space or \"+\" within a name".to_owned()
}

impl Scalar for AbsentCost {
    const WHAT: &'static str = "reserve, max or a number of tokens";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text {
            "reserve" => Ok(Self::Reserve),
            "max" => Ok(Self::Max),
            number => match WholeNumber::<1, MAX_BURST>::read(number) {
                Ok(tokens) => Ok(NonZeroU64::new(tokens.0).map_or(Self::Reserve, Self::Tokens)),
                Err(_) => {
                    let problem =
                        ValueProblem::new(format!("{} is not {}", quote(text), Self::WHAT));
                    Err(problem.hint(format!("write reserve, max or 1 to {MAX_BURST}")))
                }
            },
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": MAX_BURST },
            { "type": "string", "pattern": or_variable("reserve|max|[0-9]+") },
        ] })
    }
}
