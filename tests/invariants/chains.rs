//! Imports follow the chains: a room names what stands before it, and nothing after. Between
//! crates, cargo sees to that.

use crate::imports::{Import, Workspace};

/// The rooms of a crate, level by level: a room may import what stands on earlier levels, and of
/// its own level what [`BESIDE`] lists. A room is a module right below the crate's root; `lib` and
/// `main` are the root files.
const CHAINS: [(&str, &[&str]); 4] = [
    (
        "tollgate_limiter",
        &[
            "clock",
            "algorithm",
            "limit",
            "store",
            "node",
            "decide",
            "request",
            "layer shared",
            "lib",
        ],
    ),
    (
        "tollgate_policies",
        &["time", "model", "database", "people", "lib"],
    ),
    (
        "tollgate_wire",
        &[
            "address_shares",
            "body body_memory failure_log fields header_map_pool regular_file",
            "grpc",
            "error",
            "http transport",
            "lib",
        ],
    ),
    ("tollgate", &["app fuzzing", "cli", "lib", "main"]),
];

/// Imports between rooms of one level: who imports whom, and why.
const BESIDE: [(&str, &str, &str); 0] = [];

/// Places that few may name, though the chains let more: the place, who may besides itself, and
/// what others do instead.
const KNOWN_TO_FEW: [(&str, &[&str], &str); 2] = [
    (
        "crates/limiter/src/store/redis",
        &[
            "src/app",
            "src/fuzzing",
            "crates/config/src",
            "crates/judge",
            "crates/testing",
            "crates/limiter/src/shared.rs",
        ],
        "ask the trait `Store`",
    ),
    (
        "crates/judge/src",
        &["src/cli"],
        "nothing that serves requests knows who judges it",
    ),
];

/// Imports that the chains allow and that are refused still: from where, of what, and why.
const REFUSED: [(&str, &str, &str); 3] = [
    (
        "crates/limiter/src/algorithm",
        "crates/limiter/src/clock",
        "time is an argument",
    ),
    (
        "crates/limiter/src/limit",
        "crates/limiter/src/clock",
        "nothing that a person configures reads time",
    ),
    (
        "crates/judge/src/judge",
        "crates/limiter/src",
        "the judge shares no arithmetic with the limiter it judges",
    ),
];

/// Rooms import by the chains of their crate. A room without a place in them is a finding too.
pub fn against_the_chains(workspace: &Workspace) -> Vec<String> {
    let strangers = workspace.modules.keys().filter(|module| {
        let (krate, room) = room_of(module);
        module.matches("::").count() <= 1 && is_chained(krate) && level(krate, room).is_none()
    });
    let strangers = strangers.map(|module| {
        format!(
            "{}: `{}` has no place in CHAINS: say after which rooms it stands",
            workspace.file(module),
            room_of(module).1
        )
    });
    let upward = workspace
        .imports
        .iter()
        .filter(|import| !follows(import))
        .map(|import| {
            let (_, from) = room_of(&import.from);
            let (_, to) = room_of(&import.to);
            format!(
                "{}: `{from}` may not import `{to}`: {}",
                import.place, import.path
            )
        });
    strangers.chain(upward).collect()
}

/// Rows of the tables above about what is gone, so that they stay the picture of the tree.
pub fn rows_without_need(workspace: &Workspace) -> Vec<String> {
    let rooms = CHAINS.iter().flat_map(|(krate, levels)| {
        levels
            .iter()
            .flat_map(|level| level.split(' '))
            .map(move |room| (*krate, room))
    });
    let gone = rooms.filter(|(krate, room)| {
        let module = if *room == "lib" {
            (*krate).to_owned()
        } else {
            format!("{krate}::{room}")
        };
        !workspace.modules.contains_key(&module)
    });
    let gone = gone.map(|(krate, room)| format!("CHAINS: {krate} has no room `{room}`"));
    let idle = BESIDE.iter().filter(|(from, to, _)| {
        let between =
            |import: &Import| room_of(&import.from).1 == *from && room_of(&import.to).1 == *to;
        !workspace.imports.iter().any(between)
    });
    let idle =
        idle.map(|(from, to, _)| format!("BESIDE: `{from}` does not import `{to}` any more"));
    let few = KNOWN_TO_FEW
        .iter()
        .flat_map(|(place, few, _)| few.iter().chain([place]));
    let places = few.chain(REFUSED.iter().flat_map(|(from, to, _)| [from, to]));
    let unknown =
        places.filter(|place| !workspace.sources.iter().any(|source| source.is_in(place)));
    let unknown = unknown.map(|place| format!("KNOWN_TO_FEW or REFUSED: there is no {place}"));
    gone.chain(idle).chain(unknown).collect()
}

/// Imports that [`KNOWN_TO_FEW`] and [`REFUSED`] forbid though the chains allow them.
pub fn refused(workspace: &Workspace) -> Vec<String> {
    let found = workspace.imports.iter().flat_map(|import| {
        let (from, to) = (workspace.source(&import.from), workspace.source(&import.to));
        let known = KNOWN_TO_FEW.iter().filter(move |(place, few, _)| {
            to.is_in(place) && !from.is_in(place) && !few.iter().any(|place| from.is_in(place))
        });
        let refused = REFUSED
            .iter()
            .filter(move |(one, other, _)| from.is_in(one) && to.is_in(other));
        let why = known.map(|row| row.2).chain(refused.map(|row| row.2));
        why.map(|why| format!("{}: names {}: {why}", import.place, import.path))
    });
    found.collect()
}

fn follows(import: &Import) -> bool {
    let ((krate, from), (other, to)) = (room_of(&import.from), room_of(&import.to));
    if krate != other || from == to || !is_chained(krate) {
        return true;
    }
    let (Some(own), Some(others)) = (level(krate, from), level(krate, to)) else {
        return true;
    };
    own > others
        || own == others
            && BESIDE
                .iter()
                .any(|(one, another, _)| (*one, *another) == (from, to))
}

/// `(tollgate, server)` of `tollgate_server::listener`.
fn room_of(module: &str) -> (&str, &str) {
    let (krate, inside) = module.split_once("::").unwrap_or((module, "lib"));
    (krate, inside.split("::").next().unwrap_or(inside))
}

fn is_chained(krate: &str) -> bool {
    CHAINS.iter().any(|(chained, _)| *chained == krate)
}

fn level(krate: &str, room: &str) -> Option<usize> {
    let (_, levels) = CHAINS.iter().find(|(chained, _)| *chained == krate)?;
    levels
        .iter()
        .position(|level| level.split(' ').any(|name| name == room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_finds, assert_none, tree, workspace};

    #[test]
    fn each_room_imports_only_what_stands_before_it() {
        assert_none(&against_the_chains(workspace()));
    }

    #[test]
    fn the_chains_name_the_rooms_there_are() {
        assert_none(&rows_without_need(workspace()));
        let gone = rows_without_need(&tree(&[("src/app/mod.rs", "")]));
        assert_finds(&gone, "CHAINS: tollgate has no room `cli`");
        assert!(
            !gone.iter().any(|finding| finding.contains("`app`")),
            "{gone:?}"
        );
    }

    #[test]
    fn an_import_against_the_chains_is_found() {
        let misuses = [
            ("src/app/start.rs", "use crate::cli::run;"),
            ("src/app/start.rs", "fn f() { crate::cli::run::main() }"),
            (
                "crates/wire/src/grpc.rs",
                "use crate::{error, http::Method};",
            ),
            (
                "crates/wire/src/grpc.rs",
                "use super::http;\nuse super::error::Failure;",
            ),
            ("crates/wire/src/body.rs", "use crate::error::*;"),
            ("src/cli/run.rs", "use crate::Top;"),
            (
                "crates/limiter/src/algorithm/window.rs",
                "use crate::node::Node;",
            ),
            (
                "crates/limiter/src/store/redis/mod.rs",
                "use super::super::decide::limiter::Limiter;",
            ),
        ];
        for (path, code) in misuses {
            let found = against_the_chains(&rooms(path, code));
            assert!(
                found.iter().any(|finding| finding.starts_with(path)),
                "{path} passes with: {code}\n{found:?}"
            );
        }
        for (path, code) in [
            (
                "src/cli/run.rs",
                "use crate::app::{self, start}; use super::output; use tollgate_wire::body::B;",
            ),
            (
                "src/app/start.rs",
                "use tollgate_limiter::request; #[cfg(test)] mod tests { use crate::cli; }",
            ),
        ] {
            assert_none(&against_the_chains(&rooms(path, code)));
        }
    }

    #[test]
    fn a_room_without_a_place_in_the_chains_is_found() {
        assert_finds(
            &against_the_chains(&tree(&[("src/sundries/mod.rs", "")])),
            "src/sundries/mod.rs: `sundries` has no",
        );
        assert_finds(
            &against_the_chains(&tree(&[("crates/limiter/src/sundries.rs", "")])),
            "crates/limiter/src/sundries",
        );
    }

    #[test]
    fn some_places_may_not_name_others_whatever_the_chains_say() {
        assert_none(&refused(workspace()));
        let misuses = [
            (
                "crates/limiter/src/algorithm/window.rs",
                "use crate::clock;",
            ),
            (
                "crates/limiter/src/decide/limiter.rs",
                "use crate::store::{Store, redis::RedisStore};",
            ),
            (
                "src/cli/run.rs",
                "use tollgate_limiter::store::redis::RedisStore;",
            ),
            (
                "crates/judge/src/judge/mod.rs",
                "use tollgate_limiter::request;",
            ),
            ("src/app/start.rs", "use tollgate_judge::Limit;"),
        ];
        for (path, code) in misuses {
            assert_finds(&refused(&rooms(path, code)), path);
        }
        assert_none(&refused(&rooms(
            "crates/config/src/store.rs",
            "use tollgate_limiter::store::redis::RedisStore;",
        )));
    }

    /// A file, in a tree of a few rooms.
    fn rooms(path: &str, code: &str) -> Workspace {
        let mut files = vec![
            ("crates/wire/src/error.rs", "pub enum Failure {}"),
            ("crates/wire/src/body.rs", "pub struct B;"),
            ("crates/wire/src/http/mod.rs", "pub struct Method;"),
            ("crates/wire/src/grpc.rs", ""),
            ("crates/wire/src/lib.rs", ""),
            ("src/lib.rs", "pub struct Top;"),
            ("src/app/mod.rs", "pub mod start;"),
            ("src/app/start.rs", ""),
            ("src/cli/mod.rs", ""),
            ("src/cli/run.rs", ""),
            ("src/cli/output.rs", ""),
            ("crates/limiter/src/clock.rs", ""),
            ("crates/limiter/src/store/mod.rs", "pub trait Store {}"),
            (
                "crates/limiter/src/store/redis/mod.rs",
                "pub struct RedisStore;",
            ),
            ("crates/limiter/src/node/mod.rs", "pub struct Node;"),
            (
                "crates/limiter/src/decide/limiter.rs",
                "pub struct Limiter;",
            ),
            ("crates/limiter/src/request/mod.rs", ""),
            ("crates/judge/src/lib.rs", "pub struct Limit;"),
        ];
        files.retain(|(other, _)| *other != path);
        files.push((path, code));
        tree(&files)
    }
}
