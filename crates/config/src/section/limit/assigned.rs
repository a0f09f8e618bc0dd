//! Plans by assignment: what an application's plans are for one limit, with a table of clients that
//! its limits share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_limiter::limit::key::{CallerIdentity, IdentityPart, Key, KeyPart};
use tollgate_limiter::limit::plan::{AssignedPlans, PlanSource, Plans};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::limit::key::RawKeyPart;
use crate::section::limit::plan::{self, PlanContext, RawPlan, RawPlans};
use crate::yaml::decode::Setting;

/// The plans of an application for one of its limits.
#[derive(Clone, Copy)]
pub struct PlannedLimit<'a> {
    pub plans: &'a StrategyPlans,
    pub tables: &'a ClientTables<'a>,
}

/// The plans of one strategy.
pub struct StrategyPlans {
    /// Where the strategy is.
    pub location: Location,
    /// The part of a request that names the client. `None`: the first part of the limit's key.
    pub by: Option<RawKeyPart>,
    pub plans: Vec<StrategyPlan>,
}

/// The settings of a plan for one limit.
pub struct StrategyPlan {
    pub name: Arc<str>,
    /// `None`: a mistake in it was reported.
    pub raw: Option<RawPlan>,
}

/// The clients of an application that have a plan.
#[derive(Default)]
pub struct ApplicationClients {
    pub name: Arc<str>,
    pub clients: Vec<AssignedClient>,
}

/// A client and its plan.
pub struct AssignedClient {
    pub client: String,
    pub location: Location,
    pub plan: Arc<str>,
}

/// Tables of an application's clients at most: each has all of them.
const MOST_SPELLINGS: usize = 8;

/// An application's clients, and the tables of them that were made so far.
pub struct ClientTables<'a> {
    application: &'a ApplicationClients,
    tables: RefCell<HashMap<ClientSpelling, ClientTable>>,
}

/// The plan's name of each client, by the value of a key part.
type ClientTable = Arc<HashMap<Box<[u8]>, Arc<str>>>;

/// The way in which a key part spells a client: parts that spell alike share a table. A secret is
/// looked up as it is, and hashed where it leaves the process alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ClientSpelling {
    Text,
    /// The client as an authenticator has it, or as a client of the application is called.
    Identity,
    LowerCase,
    /// An address by the prefixes of IPv4 and IPv6.
    Address(u8, u8),
}

/// The plans of a limit: those that it has itself, or those of its application. `None`: a mistake
/// was reported.
pub fn plans(
    own: &Setting<RawPlans>,
    planned: Option<PlannedLimit<'_>>,
    limit: Option<&PlanContext<'_>>,
    report: &mut Report,
) -> Option<Option<Plans>> {
    let Some(planned) = planned else {
        return own.build(|raw| plan::build(raw, limit?, report));
    };
    if let (Setting::Valid(raw), Some(first)) = (own, planned.plans.plans.first()) {
        let problem = ValueProblem::new(format!(
            "plan {} has a rate for this limit, too",
            quote(&first.name)
        ));
        report.mistake(
            &raw.location,
            problem.hint("take \"plans\" away, or the strategy out of the plans"),
        );
        return None;
    }
    planned
        .tables
        .assigned(planned.plans, limit?, report)
        .map(Some)
}

impl<'a> ClientTables<'a> {
    pub fn new(application: &'a ApplicationClients) -> Self {
        Self {
            application,
            tables: RefCell::default(),
        }
    }

    fn assigned(
        &self,
        assigned: &StrategyPlans,
        limit: &PlanContext<'_>,
        report: &mut Report,
    ) -> Option<Plans> {
        let by = limit.by(assigned.by.as_ref().and_then(|raw| raw.0.clone()));
        let mut sound = true;
        let mut plans = HashMap::new();
        for one in &assigned.plans {
            let built = one
                .raw
                .as_ref()
                .and_then(|raw| plan::plan(raw, limit, report));
            sound &= built.is_some();
            plans.extend(built.map(|built| (one.name.clone(), built)));
        }
        let by = by.filter(|_| sound)?;
        let source = if by == KeyPart::Identity(IdentityPart::Plan) {
            // Such a request names its plan itself, alone or as one of the application.
            let mut table = HashMap::new();
            for (name, plan) in plans {
                let own = CallerIdentity::of_application_alone(&self.application.name, &name);
                table.insert(own.into_bytes().into(), plan.clone());
                table.insert(name.as_bytes().into(), plan);
            }
            PlanSource::Table(table)
        } else {
            PlanSource::Assigned(AssignedPlans {
                clients: self.table(assigned, &by, report)?,
                plans,
            })
        };
        Some(Plans { by, source })
    }

    /// `None`: the application has too many, which was reported.
    fn table(
        &self,
        assigned: &StrategyPlans,
        by: &KeyPart,
        report: &mut Report,
    ) -> Option<ClientTable> {
        let spelling = ClientSpelling::for_part(by);
        let mut tables = self.tables.borrow_mut();
        if let Some(table) = tables.get(&spelling) {
            return Some(table.clone());
        }
        if tables.len() >= MOST_SPELLINGS {
            let name = quote(&self.application.name);
            let problem = ValueProblem::new(format!(
                "with this one, the limits of application {name} that have plans tell clients in more than \
                 {MOST_SPELLINGS} ways"
            ));
            let hint = "give limits with plans the same prefixes of addresses, or take the strategy out of the plans";
            report.mistake(&assigned.location, problem.hint(hint));
            return None;
        }
        let table = spelling.table(self.application, report);
        tables.insert(spelling, table.clone());
        Some(table)
    }
}

impl ClientSpelling {
    fn for_part(by: &KeyPart) -> Self {
        match by {
            KeyPart::ClientIp {
                ipv4_prefix,
                ipv6_prefix,
            } => Self::Address(*ipv4_prefix, *ipv6_prefix),
            KeyPart::Host => Self::LowerCase,
            KeyPart::Identity(_) => Self::Identity,
            KeyPart::ClientCertificate(_)
            | KeyPart::Header(_)
            | KeyPart::Cookie(_)
            | KeyPart::Query(_)
            | KeyPart::PathParam(_)
            | KeyPart::Body(_)
            | KeyPart::Method
            | KeyPart::Route
            | KeyPart::Constant(_)
            | KeyPart::Secret(_)
            | KeyPart::Custom(_) => Self::Text,
        }
    }

    /// The clients as a part spells them. A client that it cannot spell is one of other limits.
    fn table(self, application: &ApplicationClients, report: &mut Report) -> ClientTable {
        let mut table: HashMap<Box<[u8]>, Arc<str>> =
            HashMap::with_capacity(application.clients.len());
        for assigned in &application.clients {
            let Some(value) = self.value(&assigned.client) else {
                continue;
            };
            let mut values = vec![value];
            if self == Self::Identity {
                let own = CallerIdentity::of_application_alone(&application.name, &assigned.client);
                values.push(own.into_bytes().into());
            }
            for value in values {
                match table.insert(value, assigned.plan.clone()) {
                    Some(other) if other != assigned.plan => {
                        let problem = ValueProblem::new(format!(
                            "to a limit of this application, {} is a client with plan {} already",
                            quote(&assigned.client),
                            quote(&other)
                        ));
                        report.mistake(
                            &assigned.location,
                            problem.hint("give both the same plan, or keep one of them"),
                        );
                    }
                    Some(_) | None => {}
                }
            }
        }
        Arc::new(table)
    }

    fn value(self, client: &str) -> Option<Box<[u8]>> {
        match self {
            Self::Text | Self::Identity => Some(client.as_bytes().into()),
            Self::LowerCase => Some(client.to_ascii_lowercase().into_bytes().into()),
            Self::Address(ipv4, ipv6) => {
                let address: IpAddr = client.parse().ok()?;
                Some(Key::from_ip(address, ipv4, ipv6).as_bytes().into())
            }
        }
    }
}
