//! Asks DNS for endpoints, for one lookup at a time: the system's settings are read anew for each,
//! and nothing is cached but the list itself.
//!
//! Guarantees an outcome within [`LONGEST`], and that only an answer which says so counts as empty.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::time::timeout;

use super::questions::{self, QuestionPlaces};
use super::records::{self, IpFamily, ServiceRecord};
use crate::upstream::spec::discovery::{DnsQuestion, DnsSpec};
use crate::upstream::spec::endpoint::EndpointSpec;

/// The longest that a lookup takes, with all names and servers that it tries.
const LONGEST: Duration = Duration::from_secs(20);

/// The longest wait for one answer of a server that the operator names, each time that it is asked.
const ANSWER: Duration = Duration::from_secs(2);

/// Search domains that are tried at most, as in glibc.
const MOST_SEARCHED: usize = 32;

/// Names of servers that are looked up at a time.
const AT_ONCE: usize = 16;

/// The lookups of all upstreams.
static QUESTIONS: QuestionPlaces = QuestionPlaces::new(questions::MOST);

const UNANSWERED: &str = "no answer, and other names wait to be asked for";

const UNCLEAR: &str = "the answer has no records, and does not say that there are none";

/// The outcome of a lookup.
pub enum DnsOutcome {
    Found(FoundEndpoints),
    /// There is no such name, or it has no such records.
    Nothing {
        ttl: Option<Duration>,
    },
    /// Nobody could tell.
    Failed(Arc<str>),
}

/// Endpoints by DNS, of one at least.
pub struct FoundEndpoints {
    pub endpoints: Vec<EndpointSpec>,
    pub ttl: Duration,
    /// The kind of addresses that could not be looked up, and why.
    pub unknown: Option<(IpFamily, Arc<str>)>,
}

/// Where names are looked up, and how.
struct NameSource {
    resolver: TokioResolver,
    search: Vec<Name>,
    /// Names with fewer dots are searched for first.
    ndots: usize,
    /// A name that cannot be looked up ends the search.
    is_known: bool,
}

/// The records of one name, of one type.
enum NameRecords {
    Found {
        data: Vec<RData>,
        ttl: Duration,
    },
    Nothing {
        ttl: Option<Duration>,
    },
    /// Neither records nor that there are none (RFC 2308 §2.2): the answer of a server that does
    /// not know the name, of a chain of aliases that leads nowhere, or of a small server about the
    /// other kind of addresses.
    Unclear,
    Failed(Arc<str>),
}

/// The addresses of one name.
enum NameAddresses {
    Found {
        addresses: BTreeSet<IpAddr>,
        ttl: Duration,
        unknown: Option<(IpFamily, Arc<str>)>,
    },
    Nothing {
        ttl: Option<Duration>,
    },
    Failed(Arc<str>),
}

/// Looks up the endpoints of `spec`. `is_known`: there is a list, which another name's addresses
/// must not replace while the name's own cannot be looked up.
pub async fn look_up(spec: &DnsSpec, is_known: bool) -> DnsOutcome {
    let source = match NameSource::new(spec) {
        Ok(source) => NameSource { is_known, ..source },
        Err(error) => return DnsOutcome::Failed(error.to_string().into()),
    };
    let found = async {
        match &spec.question {
            DnsQuestion::Addresses { name, port } => source.addresses_of(name, *port, spec).await,
            DnsQuestion::Services { name } => source.services_of(name, spec).await,
        }
    };
    timeout(LONGEST, found)
        .await
        .unwrap_or_else(|_| DnsOutcome::Failed("it took too long".into()))
}

impl NameSource {
    fn new(spec: &DnsSpec) -> Result<Self, NetError> {
        let (config, mut options) = if spec.resolvers.is_empty() {
            read_system_conf()?
        } else {
            let mut options = ResolverOpts::default();
            options.timeout = ANSWER;
            options.use_hosts_file = ResolveHosts::Never;
            (
                ResolverConfig::from_name_servers(spec.resolvers.iter().map(server).collect()),
                options,
            )
        };
        options.cache_size = 0;
        let search = config
            .search()
            .iter()
            .take(MOST_SEARCHED)
            .cloned()
            .collect();
        let ndots = options.ndots;
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Self {
            resolver: builder.with_options(options).build()?,
            search,
            ndots,
            is_known: false,
        })
    }

    async fn addresses_of(&self, name: &str, port: u16, spec: &DnsSpec) -> DnsOutcome {
        let mut nothing = None;
        let mut failed = None;
        for candidate in self.candidates(name) {
            match self.addresses(&candidate).await {
                NameAddresses::Found {
                    addresses,
                    ttl,
                    unknown,
                } => {
                    let endpoints = records::for_addresses(&addresses, name, port, spec.scheme);
                    return found(endpoints, ttl, unknown);
                }
                NameAddresses::Nothing { ttl } => nothing = ttl.or(nothing),
                NameAddresses::Failed(error) if self.is_known => return DnsOutcome::Failed(error),
                NameAddresses::Failed(error) => failed = Some(error),
            }
        }
        failed.map_or(DnsOutcome::Nothing { ttl: nothing }, DnsOutcome::Failed)
    }

    async fn services_of(&self, name: &str, spec: &DnsSpec) -> DnsOutcome {
        let mut nothing = None;
        let mut failed = None;
        for candidate in self.candidates(name) {
            match self.records(&candidate, RecordType::SRV).await {
                NameRecords::Found { data, ttl } => {
                    return self
                        .servers(records::usable(data.iter().filter_map(service)), ttl, spec)
                        .await;
                }
                NameRecords::Nothing { ttl } => nothing = ttl.or(nothing),
                NameRecords::Unclear if self.is_known => return DnsOutcome::Failed(UNCLEAR.into()),
                NameRecords::Unclear => failed = Some(UNCLEAR.into()),
                NameRecords::Failed(error) if self.is_known => return DnsOutcome::Failed(error),
                NameRecords::Failed(error) => failed = Some(error),
            }
        }
        failed.map_or(DnsOutcome::Nothing { ttl: nothing }, DnsOutcome::Failed)
    }

    async fn addresses_of_target(&self, target: Arc<str>) -> (Arc<str>, NameAddresses) {
        let addresses = match absolute(&target) {
            Some(name) => self.addresses(&name).await,
            None => NameAddresses::Nothing { ttl: None },
        };
        (target, addresses)
    }

    /// The endpoints of these servers. A server that nobody can tell the address of fails the
    /// lookup: it may well be there.
    async fn servers(
        &self,
        servers: Vec<ServiceRecord>,
        ttl: Duration,
        spec: &DnsSpec,
    ) -> DnsOutcome {
        let targets: BTreeSet<_> = servers.iter().map(|server| server.target.clone()).collect();
        let lookups = targets
            .into_iter()
            .map(|target| self.addresses_of_target(target));
        let mut looked_up = stream::iter(lookups).buffer_unordered(AT_ONCE);
        let mut of_targets = BTreeMap::new();
        let mut ttl = ttl;
        while let Some((target, addresses)) = looked_up.next().await {
            match addresses {
                NameAddresses::Found {
                    unknown: Some((_, error)),
                    ..
                }
                | NameAddresses::Failed(error) => {
                    return DnsOutcome::Failed(format!("{target}: {error}").into());
                }
                NameAddresses::Found {
                    addresses,
                    ttl: own,
                    unknown: None,
                } => {
                    ttl = ttl.min(own);
                    of_targets.insert(target, addresses);
                }
                NameAddresses::Nothing { ttl: own } => ttl = own.map_or(ttl, |own| ttl.min(own)),
            }
        }
        found(
            records::for_services(&servers, &of_targets, spec.scheme),
            ttl,
            None,
        )
    }

    /// The names that `name` may stand for, in the order of resolv.conf(5).
    fn candidates(&self, name: &str) -> Vec<Name> {
        let itself = absolute(name);
        if name.ends_with('.') {
            return itself.into_iter().collect();
        }
        let relative = Name::from_ascii(name).ok();
        let searched = self.search.iter().filter_map(|domain| {
            let mut name = relative.clone()?.append_domain(domain).ok()?;
            name.set_fqdn(true);
            Some(name)
        });
        if name.matches('.').count() >= self.ndots {
            itself.into_iter().chain(searched).collect()
        } else {
            searched.chain(itself).collect()
        }
    }

    async fn addresses(&self, name: &Name) -> NameAddresses {
        let both = join(
            self.records(name, RecordType::A),
            self.records(name, RecordType::AAAA),
        )
        .await;
        match both {
            (
                NameRecords::Found { data, ttl },
                NameRecords::Found {
                    data: other,
                    ttl: of_other,
                },
            ) => of_families(data.iter().chain(&other), ttl.min(of_other), None),
            (
                NameRecords::Found { data, ttl },
                NameRecords::Nothing { .. } | NameRecords::Unclear,
            )
            | (
                NameRecords::Nothing { .. } | NameRecords::Unclear,
                NameRecords::Found { data, ttl },
            ) => of_families(data.iter(), ttl, None),
            (NameRecords::Found { data, ttl }, NameRecords::Failed(error)) => {
                of_families(data.iter(), ttl, Some((IpFamily::V6, error)))
            }
            (NameRecords::Failed(error), NameRecords::Found { data, ttl }) => {
                of_families(data.iter(), ttl, Some((IpFamily::V4, error)))
            }
            (NameRecords::Nothing { ttl }, NameRecords::Nothing { ttl: other }) => {
                NameAddresses::Nothing {
                    ttl: ttl.min(other),
                }
            }
            (NameRecords::Failed(error), _) | (_, NameRecords::Failed(error)) => {
                NameAddresses::Failed(error)
            }
            (NameRecords::Unclear, _) | (_, NameRecords::Unclear) => {
                NameAddresses::Failed(UNCLEAR.into())
            }
        }
    }

    async fn records(&self, name: &Name, of: RecordType) -> NameRecords {
        let Some(looked_up) = QUESTIONS.ask(self.resolver.lookup(name.clone(), of)).await else {
            return NameRecords::Failed(UNANSWERED.into());
        };
        match looked_up {
            Ok(answer) => {
                let seconds = answer
                    .answers()
                    .iter()
                    .map(|record| record.ttl)
                    .min()
                    .unwrap_or(0);
                let ttl = Duration::from_secs(u64::from(seconds));
                let of_type = answer
                    .answers()
                    .iter()
                    .filter(|record| record.record_type() == of);
                let data: Vec<_> = of_type.map(|record| record.data.clone()).collect();
                if data.is_empty() {
                    NameRecords::Unclear
                } else {
                    NameRecords::Found { data, ttl }
                }
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none)))
                if none.response_code != ResponseCode::NXDomain && none.soa.is_none() =>
            {
                NameRecords::Unclear
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => NameRecords::Nothing {
                ttl: none
                    .negative_ttl
                    .map(|seconds| Duration::from_secs(u64::from(seconds))),
            },
            Err(error) => NameRecords::Failed(error.to_string().into()),
        }
    }
}

fn of_families<'a>(
    data: impl Iterator<Item = &'a RData>,
    ttl: Duration,
    unknown: Option<(IpFamily, Arc<str>)>,
) -> NameAddresses {
    let mut addresses = BTreeSet::new();
    for data in data {
        match data {
            RData::A(ip) => drop(addresses.insert(IpAddr::V4(ip.0))),
            RData::AAAA(ip) => drop(addresses.insert(ip.0.to_canonical())),
            _ => {}
        }
    }
    NameAddresses::Found {
        addresses,
        ttl,
        unknown,
    }
}

fn found(
    endpoints: Vec<EndpointSpec>,
    ttl: Duration,
    unknown: Option<(IpFamily, Arc<str>)>,
) -> DnsOutcome {
    match (endpoints.is_empty(), unknown) {
        (false, unknown) => DnsOutcome::Found(FoundEndpoints {
            endpoints,
            ttl,
            unknown,
        }),
        (true, None) => DnsOutcome::Nothing { ttl: Some(ttl) },
        (true, Some((_, error))) => DnsOutcome::Failed(error),
    }
}

fn service(data: &RData) -> Option<ServiceRecord> {
    let RData::SRV(srv) = data else { return None };
    let target = srv.target.to_ascii().to_ascii_lowercase();
    let target = target.trim_end_matches('.').into();
    Some(ServiceRecord {
        priority: srv.priority,
        weight: srv.weight,
        target,
        port: srv.port,
    })
}

/// The name from the root on.
fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn server(address: &std::net::SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(name: &str, ndots: usize, search: &[&str]) -> Vec<String> {
        let search: Vec<_> = search
            .iter()
            .map(|domain| Name::from_ascii(domain).unwrap())
            .collect();
        let config = ResolverConfig::from_name_servers(Vec::new());
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let source = NameSource {
            resolver: builder.build().unwrap(),
            search,
            ndots,
            is_known: false,
        };
        source.candidates(name).iter().map(Name::to_ascii).collect()
    }

    #[tokio::test]
    async fn names_are_searched_for_as_kubernetes_says() {
        let search = [
            "prod.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
        ];
        let found = candidates("orders", 5, &search);
        let expected = [
            "orders.prod.svc.cluster.local.",
            "orders.svc.cluster.local.",
            "orders.cluster.local.",
            "orders.",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            candidates("orders.prod.svc", 5, &search)[0],
            "orders.prod.svc.prod.svc.cluster.local."
        );
        assert_eq!(
            candidates("orders.prod.svc", 2, &search)[0],
            "orders.prod.svc."
        );
        assert_eq!(
            candidates("orders.example.", 5, &search),
            ["orders.example."]
        );
    }
}
