//! Reads YAML: text → tree with locations → typed values, and the JSON Schema of the same types.
//!
//! `parse` makes a tree of the text, `variables` puts environment variables into it, and `decode`
//! reads types off it: single values, lists and mappings with keys of the user's choice
//! (`collection`), a choice of words (`words`), and mappings with fixed keys (`record`). Each type
//! states once how it is written; decoding, messages and `schema` all come from that statement and
//! cannot drift apart. `print` writes a tree down again. Nothing here names a key of the file.
//!
//! Why this is not serde: a file must be answered with all of its mistakes at once, each with file,
//! line, column, YAML path and a hint. A serde deserializer ends at the first error, its errors
//! know the type that failed and not the YAML path, and decoded values have lost their locations,
//! which later checks need to say where two parts of the file contradict each other. YAML crates
//! for serde also resolve anchors, tags and YAML 1.1's words before anyone can refuse them.

pub mod alias;
pub mod collection;
pub mod decode;
pub mod node;
pub mod parse;
pub mod print;
pub mod record;
pub mod schema;
pub mod variables;
pub mod words;
