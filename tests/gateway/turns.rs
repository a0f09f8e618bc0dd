//! Who may run beside whom: a test that measures time runs alone.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::new(());

/// For a test that others don't disturb.
pub fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// For a test that measures.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}
