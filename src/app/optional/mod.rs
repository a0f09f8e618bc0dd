//! The parts of a gateway that a build may lack: `team` has people and what they edit, `console`
//! the pages for them. Without its feature, each has a stand-in with the same functions.

#[cfg_attr(not(feature = "console"), path = "without_console.rs")]
pub mod console;
#[cfg_attr(not(feature = "team"), path = "without_team.rs")]
pub mod team;
