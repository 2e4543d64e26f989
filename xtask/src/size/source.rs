//! One source file: whose lines it has, and its functions.

use proc_macro2::{Span, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, Item, ItemFn, ItemMod, Meta, Signature, TraitItemFn};

/// One source file.
#[derive(Debug)]
pub(super) struct Source {
    /// From the root of the checkout.
    pub(super) path: String,
    pub(super) lines: usize,
    /// Lines that count as tests: all of a test's file, else those of its inline test modules.
    pub(super) test_lines: usize,
    pub(super) is_test: bool,
    /// Functions outside of test modules.
    pub(super) functions: Vec<Function>,
    /// Lines of comments that are wider than the code.
    pub(super) wide_comments: usize,
}

/// What rustfmt.toml allows for code.
const MAX_WIDTH: usize = 110;

/// Whether a line is a comment that is wider than the code. Rows of tables cannot be wrapped.
fn is_wide_comment(line: &str) -> bool {
    let text = line.trim_start();
    let is_row = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
    text.starts_with("//") && !is_row && line.chars().count() > MAX_WIDTH
}

/// A function, without its attributes and comments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl Source {
    pub(super) fn of(path: &str, text: &str, file: &syn::File) -> Self {
        let lines = text.lines().count();
        let is_test = is_test(path);
        let mut found = Finder::default();
        found.visit_file(file);
        Self {
            path: path.to_owned(),
            lines,
            test_lines: if is_test { lines } else { found.test_lines },
            is_test,
            functions: found.functions,
            wide_comments: text.lines().filter(|line| is_wide_comment(line)).count(),
        }
    }

    pub(super) fn product_lines(&self) -> usize {
        self.lines.saturating_sub(self.test_lines)
    }
}

/// Whether a file counts as a test by its path.
pub(super) fn is_test(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    let in_tool = matches!(parts.as_slice(), ["xtask", ..] | ["crates", "testkit", ..]);
    let in_folder = parts
        .iter()
        .any(|part| matches!(*part, "tests" | "benches" | "fuzz" | "examples"));
    in_tool || in_folder || name == "tests.rs" || name.ends_with("_tests.rs")
}

/// Whether what carries these attributes exists in tests alone.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    let conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    conditions
        .filter_map(|attribute| attribute.parse_args::<Meta>().ok())
        .any(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parts =
                list.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
            let mut parts = parts.into_iter().flatten();
            if list.path.is_ident("all") {
                parts.any(|part| needs_test(&part))
            } else {
                list.path.is_ident("any") && parts.all(|part| needs_test(&part))
            }
        }
        Meta::NameValue(_) => false,
    }
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[derive(Default)]
struct Finder {
    test_lines: usize,
    functions: Vec<Function>,
}

impl Finder {
    fn function(&mut self, signature: &Signature, block: &Block) {
        let from = signature.span().start().line;
        let to = block.brace_token.span.close().end().line;
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line: from,
            lines: to + 1 - from,
        });
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_some() && is_test_only(&module.attrs) {
            let (from, to) = extent(module);
            self.test_lines += to + 1 - from;
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_test_only(&function.attrs) {
            self.function(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test_only(&function.attrs) {
            self.function(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// First and last line of what is parsed, its attributes included.
fn extent(of: &impl ToTokens) -> (usize, usize) {
    let spans: Vec<Span> = of
        .to_token_stream()
        .into_iter()
        .map(|token| match token {
            // Of a group the whole extent, not the opening bracket alone.
            TokenTree::Group(group) => group.span(),
            other => other.span(),
        })
        .collect();
    let first = spans.iter().map(|span| span.start().line).min().unwrap_or(1);
    let last = spans.iter().map(|span| span.end().line).max().unwrap_or(first);
    (first, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::of(path, text, &syn::parse_file(text).unwrap())
    }

    #[test]
    fn files_are_tests_by_their_folder_or_name() {
        for path in [
            "crates/x/tests/it/main.rs",
            "crates/x/benches/a.rs",
            "crates/x/fuzz/targets/a.rs",
            "crates/x/examples/a.rs",
            "crates/x/src/a/tests/net.rs",
            "crates/x/src/a/tests.rs",
            "crates/x/src/a_tests.rs",
            "crates/testkit/src/lib.rs",
            "xtask/src/main.rs",
        ] {
            assert!(is_test(path), "{path}");
        }
        for path in [
            "crates/x/src/lib.rs",
            "crates/x/src/contests.rs",
            "crates/x/src/test.rs",
            "crates/x/build.rs",
        ] {
            assert!(!is_test(path), "{path}");
        }
    }

    #[test]
    fn an_inline_test_module_counts_from_its_attributes_to_its_end() {
        let text = "fn a() {}\n\n/// Cases.\n#[cfg(test)]\n#[allow(x, reason = \"y\")]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        let found = source("crates/x/src/a.rs", text);
        assert_eq!((found.lines, found.test_lines, found.product_lines()), (10, 7, 3));
        let names: Vec<&str> = found
            .functions
            .iter()
            .map(|function| function.name.as_str())
            .collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_a_feature_builds_too_is_the_product() {
        let with = |condition: &str| {
            let text = format!("#[cfg({condition})]\nmod m {{\n}}\n");
            source("crates/x/src/a.rs", &text).test_lines
        };
        assert_eq!(with("test"), 3);
        assert_eq!(with("all(test, unix)"), 3);
        assert_eq!(with("any(test, feature = \"fixture\")"), 0);
        assert_eq!(with("not(test)"), 0);
        assert_eq!(with("unix"), 0);
    }

    #[test]
    fn comments_are_no_wider_than_the_code() {
        let long = "x".repeat(110);
        let text = format!(
            "// {long}\n//! | {long} |\n    let a = \"{long}\";\n    // {}\n",
            &long[..103]
        );
        assert_eq!(text.lines().filter(|line| is_wide_comment(line)).count(), 1);
        let allowed = include_str!("../../../rustfmt.toml").lines().next();
        assert_eq!(allowed, Some("max_width = 110"));
    }

    #[test]
    fn a_function_has_the_lines_from_its_signature_to_its_brace() {
        let text = "/// Says so.\n#[must_use]\npub fn a(\n    b: u8,\n) -> u8 {\n    b\n}\nstruct S;\nimpl S {\n    fn c() {}\n}\ntrait T {\n    fn d();\n    fn e() {\n    }\n}\n";
        let found = source("crates/x/src/a.rs", text).functions;
        let expected = [("a", 3, 5), ("c", 10, 1), ("e", 14, 2)];
        let expected = expected.map(|(name, line, lines)| Function {
            name: name.to_owned(),
            line,
            lines,
        });
        assert_eq!(found, expected);
    }
}
