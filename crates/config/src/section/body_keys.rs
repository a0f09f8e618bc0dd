//! `body_keys`: bounds on request bodies that are read ahead of limits.

use crate::scalar::number::{BoundedDuration, ByteSize, DAY};
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use tollgate_spec::body_keys::BodyKeyBounds;

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

/// The bounds on bodies that are read ahead. `None`: a mistake was reported.
pub fn body_keys(setting: &Setting<RawBodyKeys>) -> Option<BodyKeyBounds> {
    let bounds = setting.build(|raw| {
        Some(BodyKeyBounds {
            max_body: raw.max_body.value()?.count(),
            max_memory: raw.max_memory.value()?.count(),
            timeout: raw.timeout.value()?.0,
        })
    });
    Some(bounds?.unwrap_or_default())
}
