//! The whole file: its sections, and the keys outside of any section.

use super::access_log::RawAccessLog;
use super::defaults::RawDefaults;
use super::identity::RawAuthenticator;
use super::limit::RawLimit;
use super::listener::{RawAdmin, RawListener};
use super::policies::source::RawPolicySource;
use super::route::RawRoute;
use super::route::error_pages::RawErrorPage;
use super::scalar::address::{IncludedPath, SocketPath, TrustedProxy};
use super::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use super::scalar::text::DefinedName;
use super::store::RawStore;
use super::upstream::RawUpstream;
use crate::config::report::Report;
use crate::config::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions};
use crate::config::yaml::record::{Record, RecordReader, RecordSchema, record};

record! {
    /// The configuration of a Tollgate gateway.
    RawConfig {
        /// Keys about the file itself.
        group _tree: TreeKeys,
        /// The name of this node among the nodes of its fleet. Default: the name of its machine.
        optional node_name: Located<DefinedName>,
        /// Threads that serve requests, each with its own connections. Default: one per core.
        optional workers: Located<WholeNumber<1, 1024>>,
        /// How long requests in flight may take to finish after SIGTERM.
        default("30s") drain_timeout: Located<BoundedDuration<DAY>>,
        /// A Unix socket at which `tollgate run --take-over` takes over from this process without
        /// losing a connection.
        optional handover: Located<SocketPath>,
        /// A line for each request: off, json or combined, or its format, destination and sample.
        default("off") access_log: RawAccessLog,
        /// Proxies in front, whose claims about their clients are believed: addresses, networks,
        /// and unix for Unix sockets.
        optional trusted_proxies: Vec<Located<TrustedProxy>>,
        /// Requests in flight per worker; further ones are answered with 503. Default: no bound.
        optional max_requests: Located<WholeNumber<1, 1_000_000_000>>,
        /// Whether tunnels, such as WebSockets, count as requests in flight for max_requests.
        default(true) tunnels_count: Located<bool>,
        /// Buckets kept in this process at most.
        default(1_000_000) max_local_buckets: Located<WholeNumber<1, 1_000_000_000>>,
        /// Which header fields answers carry.
        optional headers: RawAnswerHeaders,
        /// Pages in place of errors, for requests that no route takes and routes that have none of
        /// their own.
        optional error_pages: NonEmptyList<RawErrorPage>,
        /// Bounds on request bodies that are read ahead of limits which count by a member of them.
        optional body_keys: RawBodyKeys,
        /// Where to listen for requests.
        required listeners: NonEmptyList<RawListener>,
        /// The admin server, or `off`.
        optional admin: RawAdmin,
        /// The memory that all nodes share. Leave it out for one node: buckets then live in this
        /// process.
        optional store: RawStore,
        /// Policies that people edit, kept in a database. They lie over this file.
        optional policies: RawPolicySource,
        /// Rate limits, by name.
        optional limits: Mapping<DefinedName, RawLimit>,
        /// Ways in which clients say who they are, by name.
        optional authenticators: Mapping<DefinedName, RawAuthenticator>,
        /// Groups of servers to forward to, by name.
        optional upstreams: Mapping<DefinedName, RawUpstream>,
        /// Which requests are forwarded or answered, and how.
        required routes: NonEmptyList<RawRoute>,
    }
}

record! {
    /// Which header fields answers carry.
    RawAnswerHeaders {
        /// Also send x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset.
        default(false) legacy_ratelimit: Located<bool>,
    }
}

record! {
    /// Bounds on request bodies that are read ahead.
    RawBodyKeys {
        /// A body longer than this has no members for keys. It is forwarded all the same.
        default("64KiB") max_body: Located<ByteSize<1, { 1 << 20 }>>,
        /// All bodies that are read ahead at a time, together; further ones are answered with 503.
        default("64MiB") max_memory: Located<ByteSize<{ 1 << 16 }, { 1 << 40 }>>,
        /// How long a body may take to arrive; then 408.
        default("10s") timeout: Located<BoundedDuration<DAY>>,
    }
}

/// The keys that join and complete the tree. They are taken out of it before the rest is read.
pub struct TreeKeys;

impl Record for TreeKeys {
    fn keys() -> Vec<&'static str> {
        vec!["include", "defaults"]
    }

    fn read(_: &RecordReader<'_>, _: &mut Report) -> Self {
        Self
    }

    fn add_to(schema: &mut RecordSchema, definitions: &mut SchemaDefinitions) {
        let doc = "Files and folders to read besides this one, by paths from its own folder.";
        schema.add("include", RawInclude::schema(definitions), doc, None);
        let doc = "What routes, limits and upstreams have that do not say otherwise.";
        schema.add("defaults", RawDefaults::schema(definitions), doc, None);
    }
}

/// Paths of files and folders.
pub type RawInclude = OneOrMore<Located<IncludedPath>>;
