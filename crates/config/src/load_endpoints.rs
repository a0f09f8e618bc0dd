//! The way in of a file of endpoints: to those that it lists, or to all that is wrong with it.

use std::path::Path;
use std::sync::Arc;

use super::report::{Location, Mistakes, Report, ValueProblem};
use super::section::upstream::endpoint::{RawEndpoint, checked_endpoints};
use super::yaml::decode::Decode;
use super::{source, yaml};
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_proxy::upstream::endpoints::EndpointSpec;

/// Reads and checks the file at `path`, which has the endpoints of `upstream`. It has no variables.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_endpoints(path: &Path, upstream: &UpstreamSpec) -> Result<Vec<EndpointSpec>, Mistakes> {
    let name = path.display().to_string();
    let text = source::read_file(&name, path)?;
    let mut report = Report::new(&name);
    let listed = endpoints(&Arc::from(name), &text, upstream, &mut report);
    report.close(listed).map(|(listed, _)| listed)
}

fn endpoints(
    file: &Arc<str>,
    text: &str,
    upstream: &UpstreamSpec,
    report: &mut Report,
) -> Option<Vec<EndpointSpec>> {
    let start = Location::root(file, (1, 1));
    source::check_size(text, &start, report)?;
    if text.trim().is_empty() {
        // An empty file is likely one that is being written, and not meant to take all endpoints
        // away.
        report.mistake(
            &start,
            ValueProblem::new("the file is empty").hint("write [] for no endpoints"),
        );
        return None;
    }
    let root = yaml::parse::tree(file, text, report)?;
    checked_endpoints(
        &root.location,
        &Vec::<RawEndpoint>::decode(&root, report)?,
        upstream,
        report,
    )
}
