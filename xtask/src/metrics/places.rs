//! Finds the values of labels where they stand in the code as literals.

use super::declared::{Value, literal, variants};
use Place::{Arguments, Function, Variable};
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprMethodCall, ImplItemFn, ItemEnum, ItemFn, ItemImpl, Pat};

/// A place in the code that has the values of a label as literals of one word.
pub(super) enum Place {
    /// All of a function: file, and its name, with the type's name before it where it is a method.
    Function(&'static str, &'static str),
    /// What a variable is set to: file, function, variable.
    Variable(&'static str, &'static str, &'static str),
    /// What functions of these names are given: file or folder, names.
    Arguments(&'static str, &'static [&'static str]),
}

impl Place {
    pub(super) fn file(&self) -> &'static str {
        match self {
            Function(file, _) | Variable(file, ..) | Arguments(file, _) => file,
        }
    }

    /// The values, in the order of the code.
    pub(super) fn values(&self, root: &Path) -> anyhow::Result<Vec<Value>> {
        let mut finder = Finder {
            place: self,
            owner: String::new(),
            enums: BTreeMap::new(),
            is_inside: false,
            found: Vec::new(),
        };
        for (path, text) in crate::size::product_sources(root, self.file())? {
            let file = syn::parse_file(&text).with_context(|| format!("cannot parse {path}"))?;
            finder.visit_file(&file);
        }
        Ok(finder.found)
    }
}

/// Collects literals of one word at a place.
struct Finder<'a> {
    place: &'a Place,
    /// The type whose methods are being read.
    owner: String,
    enums: BTreeMap<String, Vec<Value>>,
    is_inside: bool,
    found: Vec<Value>,
}

impl Finder<'_> {
    fn function(&mut self, name: &str, visit: impl FnOnce(&mut Self)) {
        let full = format!("{}::{name}", self.owner);
        let is_meant = match self.place {
            Function(_, wanted) | Variable(_, wanted, _) => *wanted == name || *wanted == full,
            Arguments(..) => true,
        };
        if !is_meant {
            return;
        }
        self.inside(matches!(self.place, Function(..)), visit);
    }

    fn inside(&mut self, is_inside: bool, visit: impl FnOnce(&mut Self)) {
        let before = self.is_inside;
        self.is_inside |= is_inside;
        visit(self);
        self.is_inside = before;
    }

    fn is_asked(&self, name: &str) -> bool {
        matches!(self.place, Arguments(_, names) if names.contains(&name))
    }

    fn put(&mut self, name: String, meaning: &str) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_name = name.chars().all(is_word) || name == "no majority";
        if is_name && !self.found.iter().any(|value| value.name == name) {
            let meaning = meaning.to_owned();
            self.found.push(Value { name, meaning });
        }
    }

    /// The documentation of the variant that a pattern names, among those of the enum whose method this is.
    fn meaning(&self, pattern: &Pat) -> String {
        let path = match pattern {
            Pat::Path(path) => &path.path,
            Pat::TupleStruct(pattern) => &pattern.path,
            Pat::Struct(pattern) => &pattern.path,
            _ => return String::new(),
        };
        let name = path.segments.last().map(|segment| segment.ident.to_string());
        let variants = self.enums.get(&self.owner).into_iter().flatten();
        let mut named = variants.filter(|variant| Some(&variant.name) == name.as_ref());
        named
            .next()
            .map(|variant| variant.meaning.clone())
            .unwrap_or_default()
    }
}

impl Visit<'_> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !crate::size::is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        self.enums.insert(item.ident.to_string(), variants(item));
    }

    fn visit_item_impl(&mut self, item: &ItemImpl) {
        if item.trait_.is_none()
            && let syn::Type::Path(path) = &*item.self_ty
            && let Some(segment) = path.path.segments.last()
        {
            self.owner = segment.ident.to_string();
        }
        visit::visit_item_impl(self, item);
        self.owner.clear();
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.function(&item.sig.ident.to_string(), |finder| {
            visit::visit_impl_item_fn(finder, item);
        });
    }

    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.function(&item.sig.ident.to_string(), |finder| {
            visit::visit_item_fn(finder, item);
        });
    }

    fn visit_local(&mut self, local: &syn::Local) {
        let is_meant = match (self.place, &local.pat) {
            (Variable(.., name), Pat::Ident(pattern)) => pattern.ident == *name,
            _ => false,
        };
        self.inside(is_meant, |finder| visit::visit_local(finder, local));
    }

    fn visit_arm(&mut self, arm: &syn::Arm) {
        if self.is_inside
            && let Some(name) = literal(&arm.body)
        {
            self.put(name, &self.meaning(&arm.pat));
            return;
        }
        // Patterns are no values.
        self.visit_expr(&arm.body);
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        let name = match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let is_asked = name.is_some_and(|name| self.is_asked(&name));
        self.inside(is_asked, |finder| visit::visit_expr_call(finder, call));
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        self.visit_expr(&call.receiver);
        let is_asked = self.is_asked(&call.method.to_string());
        self.inside(is_asked, |finder| {
            for argument in &call.args {
                finder.visit_expr(argument);
            }
        });
    }

    fn visit_lit_str(&mut self, text: &syn::LitStr) {
        if self.is_inside {
            self.put(text.value(), "");
        }
    }

    fn visit_attribute(&mut self, _: &syn::Attribute) {}
}
