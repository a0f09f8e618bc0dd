//! Members of a request's body, as keys see them. `content_type` says which bodies can be read,
//! `form` and `json` read them, `name` tells which names an upstream may take for one, and `value`
//! has the one spelling of a value.
//!
//! Guarantees that a member has a value only where every upstream reads that value: a name that
//! stands twice, another spelling of the name, or bytes that readers understand in different ways
//! leave it without one.

mod content_type;
mod form;
mod json;
mod name;
mod value;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use http::Uri;

pub use content_type::BodyFormat;
pub use form::parameters;

/// A member of a form or of a JSON object.
///
/// ```
/// use tollgate_limiter::limit::key::{BodyMember, KeyPart};
/// use tollgate_limiter::{Limit, client_ip};
///
/// let username = BodyMember { name: "username".into(), ignore_case: true };
/// let limit = Limit::per_minute("logins", 5).key([client_ip(), KeyPart::Body(username)]);
/// # limit.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMember {
    /// The name of a form's field, or of a member of JSON; dots lead into objects: `user.name`.
    pub name: Arc<str>,
    /// Values that differ only in case or in accents are one.
    pub ignore_case: bool,
}

/// The members of a body that keys are made of. Whoever reads the body ahead of the limits puts
/// them into the request's extensions, where the layer takes them from.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Uri, header::CONTENT_TYPE};
/// use tollgate_limiter::limit::key::{BodyFormat, BodyValues};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
/// let format = BodyFormat::from_headers(&headers).unwrap();
/// let values = BodyValues::read(&["user.name".into()], format, &Uri::from_static("/login"), br#"{"user":{"name":"ada"}}"#);
/// assert_eq!(values.get("user.name"), Some("ada"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyValues(Vec<(Arc<str>, String)>);

impl BodyValues {
    /// The values of `members` in a whole body. `uri` is that of the request: many upstreams take a
    /// parameter of the query for a member of the body.
    pub fn read(members: &[Arc<str>], format: BodyFormat, uri: &Uri, content: &[u8]) -> Self {
        let mut values = match format {
            BodyFormat::Form => form::values(content, members),
            BodyFormat::Json => members
                .iter()
                .map(|member| json::value(content, member))
                .collect(),
        };
        if format == BodyFormat::Json && values.iter().any(Option::is_some) {
            remove(&mut values, &form::hidden_in_json(content, members));
        }
        if let Some(query) = uri.query()
            && values.iter().any(Option::is_some)
        {
            let names = members.iter().map(|member| match format {
                BodyFormat::Json => json::top_level(member),
                BodyFormat::Form => member,
            });
            remove(&mut values, &form::in_query(query.as_bytes(), names));
        }
        Self(
            members
                .iter()
                .zip(values)
                .filter_map(|(member, value)| {
                    Some((member.clone(), value::canonical(&value?)?.into_owned()))
                })
                .collect(),
        )
    }

    /// Adds a value that was described and not read.
    pub fn describe(&mut self, name: &str, value: &str) {
        let value = value::canonical(value).map(|value| (name.into(), value.into_owned()));
        self.0.extend(value);
    }

    /// The value of a member. `None`: the body lacks it, or readers may differ about it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| **known == *name)
            .map(|(_, value)| value.as_str())
    }
}

/// Removes the values about which readers may differ.
fn remove(values: &mut [Option<String>], are_ambiguous: &[bool]) {
    for (value, is_ambiguous) in values.iter_mut().zip(are_ambiguous) {
        if *is_ambiguous {
            *value = None;
        }
    }
}

impl BodyMember {
    /// The value of this member, in its one spelling.
    pub(super) fn value<'a>(&self, values: &'a BodyValues) -> Option<Cow<'a, [u8]>> {
        let value = values.get(&self.name)?;
        Some(if self.ignore_case {
            value::without_case(value).into_bytes().into()
        } else {
            value.as_bytes().into()
        })
    }
}
