//! The data that people edit: objects, the state that they form at a revision, and drafts of the
//! next.

mod apply;
mod draft;
mod id;
mod object;
mod revision;
mod shared;
mod state;

pub use apply::{Conflict, DraftError, LastChange, Preview};
pub(crate) use apply::{NextRevision, list};
pub use draft::{
    Draft, DraftProblem, Expected, MOST_BODY_BYTES, MOST_DRAFT_BYTES, MOST_DRAFT_VALUES,
    MOST_EDITS, ObjectEdit,
};
pub use id::{NameProblem, ObjectId, ObjectKind};
pub use object::{Object, ObjectChange, key_hash};
pub use revision::{Position, Revision};
pub(crate) use shared::SharedParts;
pub use state::PolicyState;
pub use tollgate_spec::plain_text::{is_hidden, is_plain_line, is_plain_text};
