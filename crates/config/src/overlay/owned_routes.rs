//! The application of each route of the file. An application's resources may name only routes of
//! that application, so that nobody changes the limits of another one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::overlay::application::CheckedApplication;
use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::policies::document::{RawApplication, RawResource};
use crate::section::route::definition::CheckedRoutes;
use crate::yaml::decode::Located;

/// Routes that a hint writes out at most.
const MOST_SHOWN: usize = 8;

/// The routes of the file, and the application of each.
pub struct OwnedRoutes<'a> {
    file: &'a CheckedRoutes,
    /// By route, with where that is said.
    owners: HashMap<&'a str, (&'a str, &'a Location)>,
}

impl<'a> OwnedRoutes<'a> {
    /// Reads the lists of all applications, and reports routes that are gone or that two of them
    /// have.
    pub fn read(
        applications: &'a [Arc<CheckedApplication>],
        file: &'a CheckedRoutes,
        report: &mut Report,
    ) -> Self {
        let mut owners: HashMap<&str, (&str, &Location)> = HashMap::new();
        for application in applications {
            let name = &*application.name;
            for (route, location) in application.routes() {
                let Some((owner, first)) = owners.get(route) else {
                    if file.place(route).is_none() {
                        let known = file.names();
                        let otherwise = "name a route of the file, or take it away";
                        report.misnamed(location, gone(route), route, known, otherwise);
                    }
                    owners.insert(route, (name, location));
                    continue;
                };
                let problem = if *owner == name {
                    ValueProblem::new(format!("{} is in the list twice", quote(route)))
                        .hint("keep one of the two")
                } else {
                    let route = quote(route);
                    let owner = quote(owner);
                    let application = quote(name);
                    let place = first.line_beside(location);
                    ValueProblem::new(format!(
                        "route {route} is of application {owner} ({place}), and of {application} too"
                    ))
                    .hint("take it out of the \"routes\" of one of them")
                };
                report.mistake(location, problem);
            }
        }
        Self { file, owners }
    }

    /// The route that a resource of `application` names, by its place in the file. `None`: a
    /// mistake was reported.
    pub fn find(
        &self,
        application: &CheckedApplication,
        raw: &RawApplication,
        resource: &RawResource,
        report: &mut Report,
    ) -> Option<usize> {
        let Located {
            location,
            value: DefinedName(name),
        } = resource.route.valid()?;
        let found = self.file.place(name);
        let owner = self.owners.get(&**name).map(|(owner, _)| *owner);
        if raw.routes.is_invalid() || owner == Some(&*application.name) {
            return found;
        }
        let mut own: Vec<&str> = application.routes().map(|(route, _)| route).collect();
        if own.contains(&&**name) {
            // Another application that has the route as well is reported where it lists it.
            return found;
        }
        if found.is_none() {
            let otherwise = "name a route of the application, or take the resource away";
            report.misnamed(location, gone(name), name, own.into_iter(), otherwise);
            return None;
        }
        let problem = match owner {
            Some(_) => {
                ValueProblem::new(format!("route {} is of another application", quote(name))).hint(
                    format!(
                        "name a route of application {}, or take the resource away",
                        quote(&application.name)
                    ),
                )
            }
            None => {
                own.push(name);
                let all = if own.len() > MOST_SHOWN {
                    format!("…, {name}")
                } else {
                    own.join(", ")
                };
                ValueProblem::new(format!(
                    "application {} does not have route {}",
                    quote(&application.name),
                    quote(name)
                ))
                .hint(format!(
                    "write routes: [{all}] in the application; in a database only an admin may"
                ))
            }
        };
        report.mistake(location, problem);
        None
    }
}

fn gone(route: &str) -> ValueProblem {
    ValueProblem::new(format!("the file has no route {}", quote(route)))
}
