//! `path` of a match: a pattern, or a regular expression.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::units::show_size;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use tollgate_spec::route::expression::{
    InvalidExpression, MOST_BYTES, MOST_COMPILED, PathExpression,
};
use tollgate_spec::route::{PathMatch, PathPattern};

record! {
    /// Paths by a regular expression.
    RawRegexPath {
        /// An expression such as "^/v[0-9]+/users/(?<id>[^/]+)$". Its named groups are path
        /// parameters.
        required regex: Located<PathExpression>,
    }
}

/// The paths that a route takes.
pub struct RawPathMatch {
    pub location: Location,
    pub value: PathMatch,
}

impl Decode for RawPathMatch {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let location = node.location.clone();
        let value = match &node.value {
            YamlValue::Map(_) => {
                let Located { location: _, value } =
                    RawRegexPath::decode(node, report)?.regex.take(Some)??;
                PathMatch::Expression(value)
            }
            YamlValue::Scalar { .. } if !node.value.is_null() => {
                let at: Located<PathPattern> = Located::decode(node, report)?;
                PathMatch::Pattern(at.value)
            }
            _ => {
                mismatch(
                    node,
                    "a path",
                    Some("write /users/{id}, or {regex: \"^/v[0-9]+/\"}"),
                    report,
                );
                return None;
            }
        };
        Some(Self { location, value })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [PathPattern::schema(), RawRegexPath::schema(definitions)] })
    }
}

impl Scalar for PathExpression {
    const WHAT: &'static str = "a regular expression";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let expression = Self::compile(text).map_err(|why| match why {
            InvalidExpression::TooLong(bytes) => {
                ValueProblem::new(format!("an expression of {bytes} bytes is over the bound, {MOST_BYTES}"))
                    .hint("divide it among several routes")
            }
            InvalidExpression::TooLarge => {
                let most = show_size(MOST_COMPILED as u64);
                ValueProblem::new(format!("{} is over {most} once it is compiled", quote(text)))
                    .hint("repeat less, such as + in place of {1000}")
            }
            InvalidExpression::Syntax(reason) => {
                ValueProblem::new(format!("{} is not a regular expression: {reason}", quote(text)))
                    .hint("the syntax is that of docs.rs/regex; there are no look-arounds and no back-references")
            }
        })?;
        if let Some(name) = expression.params().find(|name| !is_param_name(name)) {
            let problem =
                ValueProblem::new(format!("{} is not the name of a parameter", quote(name)));
            return Err(problem.hint("letters, digits and underscores: (?<id>[^/]+)"));
        }
        Ok(expression)
    }

    fn schema() -> Json {
        json!({ "type": "string", "maxLength": MOST_BYTES })
    }
}

fn is_param_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
