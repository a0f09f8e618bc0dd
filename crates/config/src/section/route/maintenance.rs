//! `maintenance` of a route: when it is on, whom it lets through, and its answer to the others.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::status_set::StatusSet;

use crate::report::{Report, ValueProblem};
use crate::scalar::address::{Cidr, IncludedPath};
use crate::scalar::number::{BoundedDuration, DAY};
use crate::scalar::path::FilePath;
use crate::scalar::text::PlainText;
use crate::scalar::time::PointInTime;
use crate::section::error_pages::{content_type, page_text};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, SchemaDefinitions};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use tollgate_limiter::clock;
use tollgate_spec::route::error_pages::{ErrorPage, ErrorPages};
use tollgate_spec::route::maintenance::MaintenanceSpec;

record! {
    /// Maintenance: 503 for all clients but some.
    RawMaintenanceSettings {
        /// The file during whose existence maintenance is on. Default: it is always on.
        optional when_file: Located<FilePath>,
        /// Clients in these networks are served all the same.
        optional allow: NonEmptyList<Located<Cidr>>,
        /// When it is expected to end, such as 2026-11-23T04:00:00Z. Clients are told to come back
        /// then.
        optional until: Located<PointInTime>,
        /// After which time clients may come back, if until does not say so or has passed.
        default("1m") retry_after: Located<BoundedDuration<DAY, 1_000>>,
        /// Pages for the answer, by the type of content that a client asks for. Default: the
        /// error_pages for 503.
        optional pages: NonEmptyList<RawMaintenancePage>,
    }
}

record! {
    /// A page of maintenance: a file or a body.
    RawMaintenancePage at location {
        /// The type of its content, such as text/html. Clients that ask for it get the page.
        required r#type: Located<HeaderValue>,
        /// The file that has the page. A relative path begins at the folder of this file.
        optional file: Located<IncludedPath>,
        /// The page itself.
        optional body: Located<PlainText>,
        /// Whether clients that ask for no type by name get it too.
        default(false) fallback: Located<bool>,
    }
}

/// `true`, `false`, or how.
pub enum RawMaintenance {
    Off,
    On(Box<RawMaintenanceSettings>),
}

impl RawMaintenance {
    /// The maintenance, if there is one. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<Option<Arc<MaintenanceSpec>>> {
        let Self::On(raw) = self else {
            return Some(None);
        };
        let when_file = raw.when_file.build(|at| Some(at.value.0.clone()));
        let allow = raw
            .allow
            .build(|list| Some(list.0.iter().map(|at| at.network(report)).collect()));
        let until = raw.until.build(|at| {
            if at.value.0 <= clock::wall() {
                let problem = ValueProblem::new("this time has passed");
                report.warning(
                    &at.location,
                    problem.hint("clients are told retry_after: say when it will be over"),
                );
            }
            Some(at.value.0)
        });
        let pages = raw.pages.build(|raws| {
            let mut pages = Vec::with_capacity(raws.0.len());
            for raw in &raws.0 {
                pages.extend(raw.build(report));
            }
            if pages.len() < raws.0.len() {
                return None;
            }
            Some(Arc::new(ErrorPages(pages)))
        });
        Some(Some(Arc::new(MaintenanceSpec {
            when_file: when_file?,
            allow: allow?.unwrap_or_default(),
            until: until?,
            retry_after: raw.retry_after.value()?.0,
            pages: pages?,
        })))
    }
}

impl RawMaintenancePage {
    fn build(&self, report: &mut Report) -> Option<ErrorPage> {
        let content_type = self.r#type.valid().and_then(|at| content_type(at, report));
        let text = page_text(&self.location, &self.file, &self.body, report);
        let statuses = StatusSet::new([StatusCode::SERVICE_UNAVAILABLE.as_u16().into()]).ok();
        let fallback = self.fallback.value()?;
        Some(ErrorPage {
            statuses: statuses?,
            content_type: content_type?,
            fallback,
            of_upstream: false,
            text: text?,
        })
    }
}

impl Decode for RawMaintenance {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let settings = match &node.value {
            YamlValue::Map(_) => RawMaintenanceSettings::decode(node, report)?,
            _ if !Located::<bool>::decode(node, report)?.value => return Some(Self::Off),
            // All settings at their defaults.
            _ => {
                let empty = YamlNode {
                    location: node.location.clone(),
                    value: YamlValue::Map(Vec::new()),
                };
                RawMaintenanceSettings::decode(&empty, report)?
            }
        };
        Some(Self::On(Box::new(settings)))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<bool>::schema(definitions), RawMaintenanceSettings::schema(definitions)] })
    }
}
