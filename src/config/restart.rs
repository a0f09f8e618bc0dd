//! What a running gateway cannot change.

use super::Config;
use crate::server::ListenerSpec;

impl Config {
    /// The sections in which `new` differs and which are only read at start: sockets, threads and what they were built
    /// around. A reload applies everything else.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let changed = [
            ("workers", self.workers != new.workers),
            ("listeners", !self.servers().eq(new.servers())),
            ("admin", self.admin != new.admin),
            ("store", self.store != new.store),
            ("max_local_buckets", self.max_local_buckets != new.max_local_buckets),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(section, _)| section).collect()
    }

    /// The listeners without their limits, which a reload does change.
    fn servers(&self) -> impl Iterator<Item = &ListenerSpec> {
        self.listeners.iter().map(|listener| &listener.server)
    }
}
