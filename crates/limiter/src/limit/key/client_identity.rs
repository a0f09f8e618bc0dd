//! The identity that an authenticator found behind a request, as keys see it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The one who has authenticated a request. An authenticator fills it in; the layer takes it from
/// the request's extensions.
///
/// ```
/// use tollgate_limiter::limit::key::CallerIdentity;
/// use tollgate_limiter::{Limit, identity};
///
/// let limit = Limit::per_hour("per-user", 1_000).key(identity());
/// # limit.build().unwrap();
/// assert_eq!(CallerIdentity::new("users", "ada").qualified(), "users/ada");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The authenticator or `@` and the application, a slash and the id. Empty: nobody.
    qualified: String,
    /// Where the id begins. That of an application's client is the whole.
    id_at: usize,
    pub plan: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The claims of a token that are texts or whole numbers, as text. Others cannot be counted by.
    pub claims: BTreeMap<String, String>,
}

/// The part of an identity that a key counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityPart {
    /// The authenticator and the id: two authenticators may know an id each, of different clients.
    Qualified,
    Plan,
    Label(Arc<str>),
    Claim(Arc<str>),
}

impl CallerIdentity {
    /// The client called `id` by an `authenticator`, whose name has no slash.
    pub fn new(authenticator: &str, id: &str) -> Self {
        let mut qualified = String::with_capacity(authenticator.len() + 1 + id.len());
        // Writing to a String cannot fail.
        let _ = write!(qualified, "{authenticator}/{id}");
        Self {
            qualified,
            id_at: authenticator.len() + 1,
            ..Self::default()
        }
    }

    /// The client called `id` of an `application`. Its name is never without that: applications
    /// speak neither for each other nor for an authenticator.
    pub fn of_application(application: &str, id: &str) -> Self {
        Self {
            qualified: Self::of_application_alone(application, id),
            ..Self::default()
        }
    }

    /// A plan or a label that an `application` gives its clients. No authenticator begins with an
    /// `@`.
    pub fn of_application_alone(application: &str, text: &str) -> String {
        format!("@{application}/{text}")
    }

    /// Names the client as an operator writes it: `authenticator/id`, or `@application/id`.
    pub fn name_as(&mut self, qualified: &str) {
        let is_of_application = qualified.starts_with('@');
        self.id_at = qualified
            .find('/')
            .filter(|_| !is_of_application)
            .map_or(0, |slash| slash + 1);
        qualified.clone_into(&mut self.qualified);
    }

    pub fn id(&self) -> &str {
        self.qualified.get(self.id_at..).unwrap_or_default()
    }

    /// The name of the authenticator that found it, or `@` and the application that it is a client
    /// of.
    pub fn authenticator(&self) -> &str {
        self.qualified
            .split_once('/')
            .map_or("", |(authenticator, _)| authenticator)
    }

    /// The authenticator, a slash and the id.
    pub fn qualified(&self) -> &str {
        &self.qualified
    }
}

impl IdentityPart {
    /// The word for operators.
    pub fn name(&self) -> String {
        match self {
            Self::Qualified => "identity.id".to_owned(),
            Self::Plan => "identity.plan".to_owned(),
            Self::Label(name) => format!("identity.label.{name}"),
            Self::Claim(name) => format!("claim.{name}"),
        }
    }

    /// This part of `identity`. `None`: it has none.
    pub(super) fn value<'a>(&self, identity: &'a CallerIdentity) -> Option<&'a str> {
        let text = match self {
            Self::Qualified => Some(identity.qualified()),
            Self::Plan => identity.plan.as_deref(),
            Self::Label(name) => identity.labels.get(&**name).map(String::as_str),
            Self::Claim(name) => identity.claims.get(&**name).map(String::as_str),
        };
        text.filter(|text| !text.is_empty())
    }

    /// The name that an issuer or an operator gave it, of labels and claims.
    pub(super) fn given_name(&self) -> Option<&str> {
        match self {
            Self::Label(name) | Self::Claim(name) => Some(name),
            Self::Qualified | Self::Plan => None,
        }
    }
}
