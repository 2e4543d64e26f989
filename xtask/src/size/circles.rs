//! Circles between modules: files of the product that import each other.
//!
//! An edge goes from a file to the file of the module that a path names, for paths that begin with `crate` or
//! `super`: in `use`, in code, and in the arguments of macros. That a module uses its own children by their
//! bare names is no edge: whoever splits a module keeps its parts together. What only tests have is left out.

use super::source::{attributes, is_test, is_test_only};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Macro, Meta, UseTree};

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// The circles of a crate, given as path to syntax; the largest first, each sorted by path.
pub(super) fn find(files: &BTreeMap<String, syn::File>) -> Vec<Vec<String>> {
    let roots = files.keys().filter(|path| {
        path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
    });
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for root in roots {
        let mut tree = Tree {
            files,
            modules: BTreeMap::new(),
        };
        tree.walk(root, &Vec::new());
        for (module, path) in &tree.modules {
            let Some(file) = files.get(*path).filter(|_| !is_test(path)) else {
                continue;
            };
            let mut finder = Finder {
                module: module.clone(),
                named: BTreeSet::new(),
            };
            // An inline module has the file of the module around it, which finds its paths.
            if tree.is_own_file(module) {
                finder.visit_file(file);
            }
            let targets = finder.named.iter().filter_map(|named| tree.file_of(named));
            edges
                .entry(path)
                .or_default()
                .extend(targets.filter(|target| target != path && !is_test(target)));
        }
    }
    components(&edges)
}

/// The modules of a crate, each with its file.
struct Tree<'a> {
    files: &'a BTreeMap<String, syn::File>,
    modules: BTreeMap<Module, &'a str>,
}

impl<'a> Tree<'a> {
    fn walk(&mut self, path: &str, module: &Module) {
        let Some((path, file)) = self.files.get_key_value(path) else {
            return;
        };
        self.modules.insert(module.clone(), path);
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.strip_suffix(".rs").unwrap_or(name);
        let holds_children = module.is_empty() || stem == "mod";
        let children = if holds_children {
            folder.to_owned()
        } else {
            format!("{folder}/{stem}")
        };
        self.declared(&file.items, path, folder, &children, module);
    }

    fn declared(&mut self, items: &'a [Item], path: &'a str, beside: &str, children: &str, module: &Module) {
        for item in items {
            let Item::Mod(declared) = item else { continue };
            if is_test_only(&declared.attrs) {
                continue;
            }
            let name = declared.ident.to_string();
            let mut inner = module.clone();
            inner.push(name.clone());
            if let Some((_, items)) = &declared.content {
                self.modules.insert(inner.clone(), path);
                let children = format!("{children}/{name}");
                self.declared(items, path, &children, &children, &inner);
                continue;
            }
            let candidates = match path_attribute(&declared.attrs) {
                Some(given) => vec![normal(&format!("{beside}/{given}"))],
                None => vec![
                    format!("{children}/{name}.rs"),
                    format!("{children}/{name}/mod.rs"),
                ],
            };
            for candidate in candidates {
                self.walk(&candidate, &inner);
            }
        }
    }

    /// The file of the longest beginning of a path that is a module.
    fn file_of(&self, named: &[String]) -> Option<&'a str> {
        (0..=named.len())
            .rev()
            .find_map(|length| self.modules.get(&named[..length]).copied())
    }

    /// Whether a module is a file, and not an inline module.
    fn is_own_file(&self, module: &Module) -> bool {
        let Some((_, around)) = module.split_last() else {
            return true;
        };
        self.modules.get(module) != self.modules.get(around)
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let given = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("path"))?;
    match &given.meta {
        Meta::NameValue(value) => match &value.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// A path without `..`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Collects the paths of a file, each from the root of the crate.
struct Finder {
    /// The module around.
    module: Module,
    named: BTreeSet<Module>,
}

impl Finder {
    /// Notes a path that begins with `crate` or `super`.
    fn note(&mut self, path: &[String]) {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let from_root = path.first().is_some_and(|first| first == "crate");
        let (mut named, rest) = if from_root {
            (Vec::new(), &path[1..])
        } else if ups > 0 && ups <= self.module.len() {
            (self.module[..self.module.len() - ups].to_vec(), &path[ups..])
        } else {
            return;
        };
        named.extend_from_slice(rest);
        self.named.insert(named);
    }

    fn note_use(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.note_use(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) => self.note_leaf(prefix, &name.ident.to_string()),
            UseTree::Rename(rename) => self.note_leaf(prefix, &rename.ident.to_string()),
            UseTree::Glob(_) => self.note(prefix),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.note_use(prefix, item);
                }
            }
        }
    }

    fn note_leaf(&mut self, prefix: &[String], name: &str) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        self.note(&path);
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.note(&std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.note(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.note(&path);
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_use(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if path.leading_colon.is_none() && parts.len() > 1 {
            self.note(&parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// Strongly connected components of more than one file: files that reach each other.
fn components<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|from| (*from, reach(edges, from))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, reached) in &reachable {
        let circle: BTreeSet<&str> = reached
            .iter()
            .filter(|other| reachable.get(*other).is_some_and(|back| back.contains(file)))
            .copied()
            .collect();
        if circle.len() > 1 {
            found.insert(circle.into_iter().map(str::to_owned).collect());
        }
    }
    let mut found: Vec<Vec<String>> = found.into_iter().collect();
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// Every file that a path of at least one edge leads to.
fn reach<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&'a str> = edges.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(edges.get(file).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(texts: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = texts.iter().map(|(path, text)| {
            let path = format!("crates/x/src/{path}");
            (path, syn::parse_file(text).unwrap())
        });
        let found = find(&files.collect());
        let short = |path: String| path.strip_prefix("crates/x/src/").unwrap_or(&path).to_owned();
        found
            .into_iter()
            .map(|circle| circle.into_iter().map(short).collect())
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "fn b() -> crate::c::C { crate::c::C }\n"),
            ("c.rs", "use super::{a::A, d};\n"),
            ("d.rs", "pub fn d() {}\n"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_parent_and_its_children_are_none_by_bare_names_and_one_by_paths() {
        let child = ("a/b.rs", "use super::A;\n");
        let bare = circles(&[
            ("lib.rs", "mod a;\n"),
            ("a.rs", "mod b;\nuse b::B;\nstruct A;\n"),
            child,
        ]);
        assert_eq!(bare, Vec::<Vec<String>>::new());
        let named = circles(&[
            ("lib.rs", "mod a;\n"),
            ("a.rs", "mod b;\nuse crate::a::b::B;\nstruct A;\n"),
            child,
        ]);
        assert_eq!(named, [["a.rs", "a/b.rs"]]);
    }

    #[test]
    fn inline_modules_macros_and_given_paths_are_followed() {
        let found = circles(&[
            ("lib.rs", "mod a;\n#[path = \"other/place.rs\"]\nmod b;\n"),
            ("a.rs", "mod inner {\n    use super::super::b::B;\n}\n"),
            (
                "other/place.rs",
                "fn b() { println!(\"{}\", crate::a::A::new(x)); }\n",
            ),
        ]);
        assert_eq!(found, [["a.rs", "other/place.rs"]]);
    }

    #[test]
    fn what_only_tests_have_makes_no_circle() {
        let found = circles(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\n"),
            (
                "b.rs",
                "#[cfg(test)]\nuse crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ]);
        assert_eq!(found, Vec::<Vec<String>>::new());
    }

    #[test]
    fn two_circles_come_the_larger_one_first() {
        let found = circles(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::a::A;\n"),
            ("c.rs", "use crate::d::D;\n"),
            ("d.rs", "use crate::e::E;\n"),
            ("e.rs", "use crate::c::*;\n"),
        ]);
        assert_eq!(found, [vec!["c.rs", "d.rs", "e.rs"], vec!["a.rs", "b.rs"]]);
    }
}
