//! Values that HTTP itself constrains: methods, field names and values, status codes.

use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::REGISTERED_METHODS;

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;

/// The registered method that `text` names in any case. Methods are case-sensitive (RFC 9110 §9.1),
/// so this is for people who write them, never for requests; a method that is not registered may
/// well be meant as it is written.
pub fn registered_method(text: &str) -> Option<&'static str> {
    REGISTERED_METHODS
        .into_iter()
        .find(|method| method.eq_ignore_ascii_case(text))
}

/// Bytes of a method at most: no registered one has as many.
const LONGEST_METHOD: usize = 32;

impl Scalar for Method {
    const WHAT: &'static str = "a method";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = ValueProblem::new(format!("{} is not a method", quote(text)));
        let text = registered_method(text).unwrap_or(text);
        if text.len() > LONGEST_METHOD {
            return Err(problem.hint(format!("a method has {LONGEST_METHOD} bytes at most")));
        }
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = format!(
                "methods are upper case: {}",
                quote(&text.to_ascii_uppercase())
            );
            return Err(problem.suggest(text, REGISTERED_METHODS.into_iter(), upper));
        }
        Self::from_bytes(text.as_bytes()).map_err(|_| problem.hint("write GET, POST, PUT, …"))
    }

    fn schema() -> Json {
        // Patterns of a schema cannot ignore case (ECMA-262 without flags).
        let mut known = String::new();
        for letter in "get|head|post|put|delete|connect|options|trace|patch".chars() {
            match letter {
                '|' => known.push(letter),
                letter => known.push_str(&format!("[{letter}{}]", letter.to_ascii_uppercase())),
            }
        }
        json!({ "type": "string", "pattern": or_variable(&format!("[^a-z\\s]+|{known}")) })
    }
}

impl Scalar for HeaderName {
    const WHAT: &'static str = "the name of a header field";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        Self::from_bytes(text.as_bytes()).map_err(|_| {
            ValueProblem::new(format!("{} is not the name of a header field", quote(text)))
                .hint("letters, digits and dashes, such as x-tenant")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for HeaderValue {
    const WHAT: &'static str = "the value of a header field";

    /// Not quoted in the mistake: values of header fields are often secrets.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        const HINT: &str = "visible characters and spaces on one line";
        if text.trim_ascii() != text {
            let what = "the value of a header field starts or ends with a space";
            return Err(ValueProblem::new(what).hint(HINT));
        }
        Self::from_str(text).map_err(|_| {
            let what = "the value of a header field has a character that cannot be sent";
            ValueProblem::new(what).hint(HINT)
        })
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for StatusCode {
    const WHAT: &'static str = "a status code";

    /// A 1xx is never a whole answer (RFC 9110 §15.2).
    fn read(text: &str) -> Result<Self, ValueProblem> {
        let code = text.parse().ok().and_then(|code| Self::from_u16(code).ok());
        code.filter(|code| (200..=599).contains(&code.as_u16()))
            .ok_or_else(|| {
                ValueProblem::new(format!("{} is not a status code of an answer", quote(text)))
                    .hint("write 200 to 599")
            })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 200, "maximum": 599 },
            { "type": "string", "pattern": or_variable("[2-5][0-9]{2}") },
        ] })
    }
}
