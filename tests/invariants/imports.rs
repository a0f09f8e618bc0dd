//! The imports of the workspace: every path of every crate, resolved to the file that defines what
//! it names.
//!
//! A path is followed down the module tree and through re-exports. `mod` lines are no imports, nor
//! is a `pub use` of a module's own children unless that file uses the name itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{WrittenPath, inline_modules, paths, types_of_macros};
use crate::source::{Source, workspace_sources};

pub struct Workspace {
    pub sources: Vec<Source>,
    pub imports: Vec<Import>,
    /// By its full path from its crate: `tollgate_server::listener`.
    pub modules: BTreeMap<String, Module>,
    /// Paths of ours that lead to no definition: `file:line: path`. The rules would look past what
    /// these name.
    pub unresolved: Vec<String>,
}

/// A file names something that another defines.
pub struct Import {
    /// The importing module and the one imported, as keys of [`Workspace::modules`].
    pub from: String,
    pub to: String,
    /// `file:line` of the importing path.
    pub place: String,
    /// The path, as written.
    pub path: String,
}

#[derive(Default)]
pub struct Module {
    /// The index of its file.
    pub file: usize,
    /// Names that `use` brings in, and the paths they stand for.
    bindings: Vec<(String, Vec<String>)>,
    /// Names of items that it defines itself, at whatever depth.
    defined: BTreeSet<String>,
}

/// The end of a path.
struct Target {
    module: String,
    /// Whether the path ends at the module, or at an item that it certainly defines.
    certain: bool,
    is_module: bool,
}

/// Re-exports are followed this far, so that two that name each other end.
const MOST_REEXPORTS: usize = 8;

const DEFINING: [&str; 10] = [
    "struct",
    "enum",
    "trait",
    "type",
    "fn",
    "const",
    "static",
    "union",
    "mod",
    "macro_rules",
];

impl Workspace {
    pub fn read() -> Self {
        Self::new(workspace_sources())
    }

    pub fn new(sources: Vec<Source>) -> Self {
        let mut workspace = Self {
            sources,
            imports: Vec::new(),
            modules: BTreeMap::new(),
            unresolved: Vec::new(),
        };
        let mut written = Vec::new();
        for (file, source) in workspace.sources.iter().enumerate() {
            let module = module_of(&source.path);
            workspace.modules.entry(module.clone()).or_default().file = file;
            let inline = inline_modules(source);
            let scope = |at: usize| {
                let around = inline.iter().filter(|(_, range)| range.contains(&at));
                around.fold(module.clone(), |scope, (name, _)| {
                    format!("{scope}::{name}")
                })
            };
            for (name, range) in &inline {
                let path = format!("{}::{name}", scope(range.start.saturating_sub(1)));
                workspace.modules.entry(path).or_default().file = file;
            }
            let tokens = source.tokens();
            let items = tokens
                .windows(2)
                .filter(|pair| DEFINING.contains(&pair[0].text) && pair[1].is_name());
            for name in items.map(|pair| pair[1]).chain(types_of_macros(&tokens)) {
                let module = workspace.modules.entry(scope(name.at)).or_default();
                module.defined.insert(name.text.to_owned());
            }
            for path in paths(source) {
                let scope = scope(path.at);
                if let Some(binding) = &path.binds {
                    let bindings =
                        &mut workspace.modules.entry(scope.clone()).or_default().bindings;
                    bindings.push((binding.name.clone(), path.segments.clone()));
                }
                written.push((file, scope, path));
            }
        }
        let used = workspace
            .sources
            .iter()
            .map(names_in_use)
            .collect::<Vec<_>>();
        let lost = written
            .iter()
            .filter(|(_, scope, path)| workspace.is_lost(scope, &path.segments));
        workspace.unresolved = lost
            .map(|(file, _, path)| {
                format!(
                    "{}: {}",
                    workspace.sources[*file].at(path.at),
                    path.segments.join("::")
                )
            })
            .collect();
        let imports = written
            .iter()
            .filter_map(|(file, scope, path)| workspace.import(*file, scope, path, &used[*file]));
        workspace.imports = imports.collect();
        workspace
    }

    pub fn source(&self, module: &str) -> &Source {
        &self.sources[self.modules[module].file]
    }

    /// The path of a module's file.
    pub fn file(&self, module: &str) -> &str {
        &self.source(module).path
    }

    /// The folder of a module that has children, with a slash at its end, else its file.
    pub fn room(&self, module: &str) -> String {
        let file = self.file(module);
        if !self.has_children(module) {
            return file.to_owned();
        }
        let folder = file.trim_end_matches(".rs");
        let folder = ["/mod", "/lib"]
            .iter()
            .find_map(|own| folder.strip_suffix(own))
            .unwrap_or(folder);
        format!("{folder}/")
    }

    /// Modules below this one have files of their own.
    pub fn has_children(&self, module: &str) -> bool {
        let below = format!("{module}::");
        let mut children = self
            .modules
            .range(below.clone()..)
            .take_while(|(name, _)| name.starts_with(&below));
        children.any(|(_, child)| child.file != self.modules[module].file)
    }

    fn import(
        &self,
        file: usize,
        scope: &str,
        written: &WrittenPath,
        used: &BTreeMap<String, NameUse>,
    ) -> Option<Import> {
        let found = self.resolve(scope, &written.segments, 0)?;
        let target = &self.modules[&found.module];
        if target.file == file {
            return None;
        }
        // `Item::new()` of a `use` says nothing that the `use` did not.
        let head = &written.segments[..1];
        let is_item = || {
            self.resolve(scope, head, 0)
                .is_some_and(|head| !head.is_module)
        };
        if written.binds.is_none() && self.binding(scope, &head[0]).is_some() && is_item() {
            return None;
        }
        if let Some(binding) = &written.binds {
            let used = used.get(&binding.name).copied().unwrap_or_default();
            let own_child = found.module.starts_with(&format!("{scope}::"));
            if binding.public && own_child && !used.at_all {
                return None;
            }
            // `use crate::store;` with `store::Ask` in the code: that path says what is imported.
            let only_a_prefix = found.is_module && binding.name != "*" && used.as_prefix;
            if only_a_prefix {
                return None;
            }
        }
        Some(Import {
            from: module_of(&self.sources[file].path),
            to: module_of(&self.sources[target.file].path),
            place: self.sources[file].at(written.at),
            path: written.segments.join("::"),
        })
    }

    /// The path is certainly one of ours and leads nowhere.
    fn is_lost(&self, scope: &str, path: &[String]) -> bool {
        let ours = ["crate", "self", "super"].contains(&path[0].as_str())
            || self.modules.contains_key(&path[0]);
        ours && !self
            .resolve(scope, path, 0)
            .is_some_and(|found| found.certain)
    }

    /// Nothing when the path leads out of the workspace.
    fn resolve(&self, scope: &str, path: &[String], depth: usize) -> Option<Target> {
        let (head, rest) = path.split_first()?;
        let krate = scope.split("::").next().unwrap_or(scope);
        match head.as_str() {
            "crate" => self.follow(krate, rest, depth),
            "self" => self.follow(scope, rest, depth),
            "super" => {
                let ups = rest.iter().take_while(|name| *name == "super").count();
                let mut base = scope;
                for _ in 0..=ups {
                    base = base.rsplit_once("::")?.0;
                }
                self.follow(base, &rest[ups..], depth)
            }
            name if self.modules.contains_key(&format!("{scope}::{name}")) => {
                self.follow(scope, path, depth)
            }
            name => match self.binding(scope, name) {
                Some(bound) if depth < MOST_REEXPORTS && bound != path => {
                    self.resolve(scope, &[bound, rest].concat(), depth + 1)
                }
                _ if self.modules.contains_key(name) => self.follow(name, rest, depth),
                _ => None,
            },
        }
    }

    /// Down the tree from a module of ours, which is where the path ends at the latest.
    fn follow(&self, base: &str, path: &[String], depth: usize) -> Option<Target> {
        let mut module = self.modules.contains_key(base).then(|| base.to_owned())?;
        for (index, name) in path.iter().enumerate() {
            let child = format!("{module}::{name}");
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            if name == "*" {
                break;
            }
            let defined = self.modules[&module].defined.contains(name);
            let found = self
                .reexported(&module, &path[index..], depth)
                .filter(|found| found.certain || !defined);
            // A re-export from another crate is this module's to give.
            let certain = defined || self.binding(&module, name).is_some();
            return Some(found.unwrap_or(Target {
                module,
                certain,
                is_module: false,
            }));
        }
        Some(Target {
            module,
            certain: true,
            is_module: true,
        })
    }

    fn reexported(&self, module: &str, path: &[String], depth: usize) -> Option<Target> {
        let (name, rest) = path.split_first()?;
        if depth >= MOST_REEXPORTS {
            return None;
        }
        if let Some(bound) = self.binding(module, name) {
            return self.resolve(module, &[bound, rest].concat(), depth + 1);
        }
        let globs = self.modules[module]
            .bindings
            .iter()
            .filter(|(name, _)| name == "*");
        let globbed = globs.filter_map(|(_, bound)| {
            self.resolve(
                module,
                &[&bound[..bound.len() - 1], path].concat(),
                depth + 1,
            )
        });
        globbed.into_iter().find(|found| found.certain)
    }

    fn binding(&self, module: &str, name: &str) -> Option<&[String]> {
        let bindings = &self.modules.get(module)?.bindings;
        bindings
            .iter()
            .find(|(bound, _)| bound == name && name != "*")
            .map(|(_, path)| path.as_slice())
    }
}

/// How a file uses a name outside of its `use` lines.
#[derive(Clone, Copy, Default)]
struct NameUse {
    at_all: bool,
    as_prefix: bool,
}

fn names_in_use(source: &Source) -> BTreeMap<String, NameUse> {
    let mut used: BTreeMap<String, NameUse> = BTreeMap::new();
    let tokens = source.tokens();
    let mut within_use = false;
    for (index, token) in tokens.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .map_or("", |before| tokens[before].text);
        let after = tokens.get(index + 1).map_or("", |after| after.text);
        match token.text {
            "use" if after != "<" => within_use = true,
            ";" => within_use = false,
            // A field, a method or the tail of a longer path is another's name.
            _ if within_use || !token.is_name() || [".", "::", "mod", "fn"].contains(&before) => {}
            name => {
                let entry = used.entry(name.to_owned()).or_default();
                entry.at_all = true;
                entry.as_prefix |= after == "::";
            }
        }
    }
    used
}

/// `src/store/redis/mod.rs` is `tollgate::store::redis`, `crates/limiter/src/lib.rs` is
/// `tollgate_limiter`.
pub fn module_of(path: &str) -> String {
    let (krate, inside) = match path
        .strip_prefix("crates/")
        .and_then(|path| path.split_once("/src/"))
    {
        Some((package, inside)) => (format!("tollgate_{package}"), inside),
        None => ("tollgate".to_owned(), path.trim_start_matches("src/")),
    };
    let inside = inside.trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    match inside {
        "lib" => krate,
        _ => format!("{krate}::{}", inside.replace('/', "::")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_none, tree, workspace};

    /// The files that `importer` imports, in a tree that has a few.
    fn imported(importer: &str, code: &str) -> Vec<String> {
        let workspace = tree(&[
            (importer, code),
            (
                "src/lib.rs",
                "pub mod a; mod b; pub use tollgate_limiter::clock;",
            ),
            (
                "src/a/mod.rs",
                "mod inner; pub mod other; pub use inner::Inner; pub use other::*; pub struct Own;",
            ),
            ("src/a/inner.rs", "pub struct Inner;"),
            (
                "src/a/other.rs",
                "pub struct Other; pub mod within { pub fn f() {} }",
            ),
            ("crates/limiter/src/lib.rs", "pub mod clock;"),
            ("crates/limiter/src/clock.rs", "pub fn now() {}"),
        ]);
        let from = module_of(importer);
        let imports = workspace
            .imports
            .iter()
            .filter(|import| import.from == from);
        imports
            .map(|import| workspace.file(&import.to).to_owned())
            .collect()
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_what_it_names() {
        let cases = [
            ("use crate::a::Own;", "src/a/mod.rs"),
            ("use crate::a::inner::Inner;", "src/a/inner.rs"),
            ("use crate::a::Inner as I;", "src/a/inner.rs"),
            ("use crate::a::{Other};", "src/a/other.rs"),
            ("use super::a::other::within::f;", "src/a/other.rs"),
            ("use crate::a; fn f() { a::Inner; }", "src/a/inner.rs"),
            ("use crate::a;", "src/a/mod.rs"),
            ("use crate::a::*;", "src/a/mod.rs"),
            ("fn f(x: crate::a::Inner) {}", "src/a/inner.rs"),
            (
                "use crate::a::other as o; fn f() { o::within::f() }",
                "src/a/other.rs",
            ),
            (
                "use crate::clock; fn f() { clock::now() }",
                "crates/limiter/src/clock.rs",
            ),
            (
                "use tollgate_limiter::clock::now;",
                "crates/limiter/src/clock.rs",
            ),
            ("mod local { use super::super::a::Own; }", "src/a/mod.rs"),
        ];
        for (code, file) in cases {
            assert_eq!(imported("src/b.rs", code), [file], "{code}");
        }
        for code in [
            "use std::fmt; use http::Method;",
            "#[cfg(test)] mod tests { use crate::a; }",
            "fn a() { b::c() }",
        ] {
            assert_eq!(imported("src/b.rs", code), [""; 0], "{code}");
        }
    }

    #[test]
    fn every_path_of_ours_leads_to_a_definition() {
        assert_none(&workspace().unresolved);
        let found = tree(&[
            ("src/a.rs", "pub use http::Method; pub struct A;"),
            (
                "src/d.rs",
                "record! { /// Made.\n Made at place { a: u8 } }",
            ),
            (
                "src/b.rs",
                "use crate::{d::Made, a::{A, Method}};\nuse crate::a::Gone; fn f() { super::c::x() }",
            ),
        ]);
        assert_eq!(
            found.unresolved,
            ["src/b.rs:2: crate::a::Gone", "src/b.rs:2: super::c::x"]
        );
    }

    #[test]
    fn a_parent_that_only_shows_its_children_imports_none_of_them() {
        let shown = |code: &str| imported("src/b/mod.rs", code).len();
        let tree = |code: &str| {
            let workspace = tree(&[
                ("src/b/mod.rs", code),
                ("src/b/c.rs", "pub struct C; pub fn run() {}"),
            ]);
            workspace.imports.len()
        };
        assert_eq!(shown("mod c; pub use std::fmt;"), 0);
        assert_eq!(tree("mod c; pub use c::C;"), 0);
        assert_eq!(tree("mod c; pub(crate) use self::c::*;"), 0);
        assert_eq!(
            tree("mod c; pub use c::C; fn f(c: C) {}"),
            1,
            "it uses the name itself"
        );
        assert_eq!(tree("mod c; use c::C;"), 1);
        assert_eq!(tree("mod c; fn f() { c::run() }"), 1);
    }
}
