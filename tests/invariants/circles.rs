//! Imports form no circle, neither between files nor between the rooms of a folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::imports::{Import, Workspace};

/// From whom, to whom, by which import: the first of several.
type Edges<'a> = BTreeMap<String, BTreeMap<String, &'a Import>>;

/// A file that needs another to be understood is not needed to understand that one.
pub fn circles_of_files(workspace: &Workspace) -> Vec<String> {
    let mut edges = Edges::new();
    for import in &workspace.imports {
        let (from, to) = (
            workspace.file(&import.from).to_owned(),
            workspace.file(&import.to).to_owned(),
        );
        edges.entry(from).or_default().entry(to).or_insert(import);
    }
    circles(&edges)
}

/// The files of a folder, its `mod.rs` included, and the folders in it, each as a whole, form no
/// circle. A child may import what the `mod.rs` defines only where that does not import from the
/// child, directly or through others.
pub fn circles_of_folders(workspace: &Workspace) -> Vec<String> {
    let mut levels: BTreeMap<String, Edges> = BTreeMap::new();
    for import in &workspace.imports {
        let (from, to): (Vec<_>, Vec<_>) = (
            import.from.split("::").collect(),
            import.to.split("::").collect(),
        );
        let common = from
            .iter()
            .zip(&to)
            .take_while(|(one, other)| one == other)
            .count();
        if common == 0 {
            continue;
        }
        // The level's own file when the path ends there, else the child that the path goes through.
        let room = |path: &[&str]| match path.get(..=common) {
            Some(child) => workspace.room(&child.join("::")),
            None => workspace.file(&path.join("::")).to_owned(),
        };
        let edges = levels.entry(from[..common].join("::")).or_default();
        edges
            .entry(room(&from))
            .or_default()
            .entry(room(&to))
            .or_insert(import);
    }
    // A circle of files alone is the other rule's.
    let has_folder = |circle: &String| {
        circle
            .lines()
            .next()
            .is_some_and(|rooms| rooms.split(" → ").any(|room| room.ends_with('/')))
    };
    levels
        .values()
        .flat_map(circles)
        .filter(has_folder)
        .collect()
}

/// The shortest circle through each room that is in one, shortest first. A circle with a step of an
/// earlier one is left out: that step has to go anyway.
fn circles(edges: &Edges) -> Vec<String> {
    let mut found: Vec<_> = edges
        .keys()
        .filter_map(|start| shortest_circle(edges, start))
        .collect();
    found.sort_by_key(Vec::len);
    let mut steps = BTreeSet::new();
    found.retain(|circle| {
        let new = !circle.windows(2).any(|step| steps.contains(step));
        if new {
            steps.extend(circle.windows(2).map(<[String]>::to_vec));
        }
        new
    });
    found.iter().map(|circle| show(edges, circle)).collect()
}

/// From `start` back to it.
fn shortest_circle(edges: &Edges, start: &String) -> Option<Vec<String>> {
    let mut reached_from: BTreeMap<&String, &String> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(room) = waiting.pop_front() {
        for next in edges.get(room).into_iter().flatten().map(|(next, _)| next) {
            if next == start {
                let mut circle = vec![start.clone()];
                let mut at = room;
                while at != start {
                    circle.insert(1, at.clone());
                    at = reached_from[at];
                }
                circle.push(start.clone());
                return Some(circle);
            }
            if !reached_from.contains_key(next) {
                reached_from.insert(next, room);
                waiting.push_back(next);
            }
        }
    }
    None
}

fn show(edges: &Edges, circle: &[String]) -> String {
    let steps = circle.windows(2).map(|step| {
        let import = edges[&step[0]][&step[1]];
        format!("\n      {}: {}", import.place, import.path)
    });
    format!("{}{}", circle.join(" → "), steps.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_finds, assert_none, tree, workspace};

    #[test]
    fn files_form_no_circle() {
        assert_none(&circles_of_files(workspace()));
    }

    #[test]
    fn a_circle_of_files_is_found_with_the_imports_that_close_it() {
        let found = circles_of_files(&tree(&[
            ("src/a.rs", "use crate::b::B;\npub struct A;"),
            ("src/b.rs", "use crate::c::C;\npub struct B;"),
            ("src/c.rs", "\npub struct C; fn f() { super::a::A; }"),
            ("src/d.rs", "use crate::e::E; pub struct D;"),
            (
                "src/e.rs",
                "use crate::d::D; use crate::a::A; pub struct E;",
            ),
        ]));
        let two = "src/d.rs → src/e.rs → src/d.rs\n      src/d.rs:1: crate::e::E\n      src/e.rs:1: crate::d::D";
        let steps = "      src/a.rs:1: crate::b::B\n      src/b.rs:1: crate::c::C\n      src/c.rs:2: super::a::A";
        let three = format!("src/a.rs → src/b.rs → src/c.rs → src/a.rs\n{steps}");
        assert_eq!(found, [two, &three]);
    }

    #[test]
    fn circles_with_a_common_step_are_told_by_the_shortest() {
        let found = circles_of_files(&tree(&[
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "use crate::{a::A, c::C}; pub struct B;"),
            ("src/c.rs", "use crate::a::A; pub struct C;"),
        ]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_finds(&found, "src/a.rs → src/b.rs → src/a.rs\n");
    }

    #[test]
    fn a_child_and_a_parent_that_need_each_other_are_a_circle() {
        let child = ("src/a/b.rs", "use super::A;\npub struct B;");
        let found = |parent| circles_of_files(&tree(&[("src/a/mod.rs", parent), child]));
        assert_finds(
            &found("mod b; use b::B; pub struct A;"),
            "src/a/b.rs → src/a/mod.rs → src/a/b.rs",
        );
        assert_finds(
            &found("mod b; pub use b::B; pub struct A(B);"),
            "src/a/b.rs → src/a/mod.rs → src/a/b.rs",
        );
        assert_none(&found("mod b; pub use b::B; pub struct A;"));
    }

    #[test]
    fn a_circle_between_files_of_two_crates_tests_aside_is_none() {
        let tests = "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }";
        assert_none(&circles_of_files(&tree(&[
            ("src/a.rs", tests),
            ("src/b.rs", "use crate::a::A; pub struct B;"),
        ])));
    }

    #[test]
    fn folders_form_no_circle() {
        assert_none(&circles_of_folders(workspace()));
    }

    #[test]
    fn folders_whose_files_form_none_can_form_a_circle() {
        let files = [
            ("src/a/mod.rs", "pub mod one; pub mod two;"),
            ("src/a/one.rs", "use crate::b::One;"),
            ("src/a/two.rs", "pub struct Two;"),
            (
                "src/b/mod.rs",
                "pub mod one; pub mod two; pub use one::One;",
            ),
            ("src/b/one.rs", "pub struct One;"),
            ("src/b/two.rs", "use crate::a::two::Two;"),
        ];
        assert_none(&circles_of_files(&tree(&files)));
        let found = circles_of_folders(&tree(&files));
        assert_eq!(
            found,
            [
                "src/a/ → src/b/ → src/a/\n      src/a/one.rs:1: crate::b::One\n      src/b/two.rs:1: crate::a::two::Two"
            ]
        );
        assert_none(&circles_of_folders(&tree(&files[..5])));
    }

    #[test]
    fn a_folder_forms_a_circle_with_the_file_it_belongs_to_through_another_child() {
        let found = |last| {
            circles_of_folders(&tree(&[
                ("src/a.rs", "mod b; mod c; use c::C; pub struct A;"),
                ("src/a/c.rs", last),
                ("src/a/b/mod.rs", "mod inner; pub struct B;"),
                ("src/a/b/inner.rs", "use crate::a::A;"),
            ]))
        };
        assert_finds(
            &found("use super::b::B; pub struct C;"),
            "src/a.rs → src/a/c.rs → src/a/b/ → src/a.rs",
        );
        assert_none(&found("pub struct C;"));
    }
}
