//! `check-docs`: `docs/events.md` has every reason of an Event, and every warning and error that agents,
//! controllers, virtual nodes, `evenkeel elect` and `evenkeel probe run` log, and none that is gone.

use crate::markdown::{self, Row, code_spans};
use crate::size::{is_test_only, product_sources};
use anyhow::{Context, bail};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, Item, Lit, LitStr};

const PAGE: &str = "docs/events.md";
/// Reasons that are no constants of `crates/api/src/names.rs`: file, constant.
const OTHER_REASONS: [(&str, &str); 1] = [("crates/election/src/lock/announcer.rs", "REASON")];
/// The sections with log lines, the crates whose warnings and errors must stand there, and those whose texts
/// may: a shell logs what its core says.
const LOGS: [(&str, &[&str], &[&str]); 9] = [
    ("Log lines of the agent", &["agent"], &["zone"]),
    (
        "Log lines of the controller",
        &["failover", "failover-rules"],
        &[],
    ),
    ("Log lines of every process", &["net", "settings"], &[]),
    ("Log lines of every elector", &["election"], &[]),
    ("Log lines of evenkeel elect", &["elect"], &[]),
    ("Log lines of evenkeel install", &["install"], &[]),
    ("Log lines of probes", &["probe", "probe-handlers"], &[]),
    (
        "Log lines of virtual nodes",
        &["vnode", "kubelet-api", "vnode-simulated"],
        &[],
    ),
    ("Log lines of Koupleless", &["koupleless", "arklet"], &[]),
];
/// What an Event's type may be; a row is one of the incident alone.
const TYPES: [&str; 3] = ["Normal", "Warning", "row"];

/// Fails naming everything that the page lacks, or has too much of.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let (rows, mut problems) = markdown::read(&page, &[]);
    problems.extend(compare_reasons(&rows, &reasons(root)?));
    for (section, crates, also) in LOGS {
        let mut said = Said::default();
        for (name, is_shell) in crates
            .iter()
            .map(|name| (name, true))
            .chain(also.iter().map(|name| (name, false)))
        {
            for (path, text) in product_sources(root, &format!("crates/{name}/src"))? {
                let file = syn::parse_file(&text).with_context(|| format!("cannot parse {path}"))?;
                let mut found = Said::default();
                found.visit_file(&file);
                said.texts.extend(found.texts);
                if is_shell {
                    said.lines.extend(found.lines);
                }
            }
        }
        problems.extend(compare_lines(&rows, section, &said));
    }
    if !problems.is_empty() {
        bail!(
            "{PAGE} and the code disagree:\n  {PAGE}{}",
            problems.join(&format!("\n  {PAGE}"))
        );
    }
    Ok(())
}

/// Every reason of an Event.
fn reasons(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let mut found = BTreeSet::new();
    collect(
        &syn::parse_file(&read("crates/api/src/names.rs")?)?.items,
        false,
        &mut found,
    );
    for (path, name) in OTHER_REASONS {
        let file = syn::parse_file(&read(path)?)?;
        let constant = file.items.iter().find_map(|item| match item {
            Item::Const(item) if item.ident == name => text_of(&item.expr),
            _ => None,
        });
        found.insert(constant.with_context(|| format!("{path} has no text {name}"))?);
    }
    Ok(found)
}

/// Takes all constants of the module `events`, and those elsewhere whose documentation begins with `Event`.
fn collect(items: &[Item], is_events: bool, found: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Mod(item) => {
                let inner = item.content.as_ref().map_or(&[][..], |(_, items)| items);
                collect(inner, item.ident == "events", found);
            }
            Item::Const(item) => {
                let documentation = item
                    .attrs
                    .iter()
                    .find_map(|attribute| text_of(&attribute.meta.require_name_value().ok()?.value));
                let says_so = documentation.is_some_and(|text| text.trim_start().starts_with("Event"));
                if is_events || says_so {
                    found.extend(text_of(&item.expr));
                }
            }
            _ => {}
        }
    }
}

fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(syn::ExprLit {
            lit: Lit::Str(text), ..
        }) => Some(text.value()),
        _ => None,
    }
}

fn compare_reasons(rows: &[Row<'_>], reasons: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for row in rows.iter().filter(|row| row.under == "Events") {
        let reason = code_spans(row.first()).next().unwrap_or_default();
        if !listed.insert(reason) {
            problems.push(format!(":{}: {reason} stands there twice", row.line));
        }
        if !reasons.contains(reason) {
            problems.push(format!(":{}: no Event has the reason {reason:?}", row.line));
        }
        if !row.cell("type").is_some_and(|kind| TYPES.contains(&kind)) {
            problems.push(format!(
                ":{}: the type of {reason} is none of {TYPES:?}",
                row.line
            ));
        }
        problems.extend(unexplained(row, reason));
    }
    let missing = reasons.iter().filter(|reason| !listed.contains(reason.as_str()));
    problems.extend(missing.map(|reason| format!(": the reason {reason} is missing")));
    problems
}

/// A row that does not say what something means and what to do.
fn unexplained(row: &Row<'_>, what: &str) -> Option<String> {
    let is_empty = |heading| row.cell(heading).is_none_or(str::is_empty);
    ["meaning", "what to do"]
        .into_iter()
        .find(|heading| is_empty(heading))
        .map(|heading| format!(":{}: {what:?} has no {heading}", row.line))
}

fn compare_lines(rows: &[Row<'_>], section: &str, said: &Said) -> Vec<String> {
    let mut problems = Vec::new();
    let mut missing: BTreeMap<&str, &str> = said
        .lines
        .iter()
        .map(|(text, level)| (text.as_str(), *level))
        .collect();
    for row in rows.iter().filter(|row| row.under == section) {
        let line = code_spans(row.first()).next().unwrap_or_default();
        let is_meant = |text: &str| match line.strip_suffix('…') {
            Some(start) => text.starts_with(start),
            None => text == line,
        };
        if !said.texts.iter().any(|text| is_meant(text)) {
            problems.push(format!(":{}: nobody says {line:?}", row.line));
        }
        missing.retain(|text, level| {
            let is_this = is_meant(text);
            if is_this && row.cell("level") != Some(*level) {
                problems.push(format!(":{}: {line:?} is of level {level}", row.line));
            }
            !is_this
        });
        problems.extend(unexplained(row, line));
    }
    problems.extend(
        missing
            .iter()
            .map(|(text, level)| format!(": under \"{section}\" the line {text:?} ({level}) is missing")),
    );
    problems
}

/// What a crate says.
#[derive(Default)]
struct Said {
    /// Warnings and errors that are logged, with their level.
    lines: BTreeMap<String, &'static str>,
    /// Every literal text.
    texts: BTreeSet<String>,
}

impl Said {
    fn level(name: &str) -> Option<&'static str> {
        match name {
            "warn" => Some("WARN"),
            "error" => Some("ERROR"),
            _ => None,
        }
    }

    /// A line that is nothing but another text is listed by that text.
    fn line(&mut self, text: String, level: &'static str) {
        let is_another = text.starts_with('{') && text.find('}') == Some(text.len() - 1);
        if !is_another {
            self.lines.insert(text, level);
        }
    }

    fn take_texts(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.take_texts(group.stream()),
                TokenTree::Literal(literal) => self.texts.extend(text(&literal)),
                _ => {}
            }
        }
    }
}

fn text(literal: &proc_macro2::Literal) -> Option<String> {
    let text: LitStr = syn::parse_str(&literal.to_string()).ok()?;
    Some(text.value())
}

/// The message among the arguments of `tracing::warn!` and its like: the first that begins with a text.
fn message(arguments: TokenStream) -> Option<String> {
    let mut begins = true;
    for token in arguments {
        match &token {
            TokenTree::Literal(literal) if begins => {
                if let Some(text) = text(literal) {
                    return Some(text);
                }
            }
            _ => {}
        }
        begins = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ',');
    }
    None
}

impl Visit<'_> for Said {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_attribute(&mut self, _: &syn::Attribute) {}

    fn visit_macro(&mut self, item: &syn::Macro) {
        let name = item.path.segments.last().map(|segment| segment.ident.to_string());
        if let Some(level) = name.and_then(|name| Self::level(&name))
            && let Some(text) = message(item.tokens.clone())
        {
            self.line(text, level);
        }
        self.take_texts(item.tokens.clone());
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        // A function of that name logs what it is given.
        if let Expr::Path(path) = &*call.func
            && let Some(level) = path
                .path
                .get_ident()
                .and_then(|name| Self::level(&name.to_string()))
            && let Some(text) = call.args.first().and_then(text_of)
        {
            self.line(text, level);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_lit_str(&mut self, text: &LitStr) {
        self.texts.insert(text.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        fn f() {
            tracing::warn!(%error, path = "x", "it is late by {} ms, and \
                            later", late);
            error!("{name} panicked");
            tracing::warn!("{why}");
            tracing::info!("all is well");
            warn("no certificate", &error);
            let why = format!("why not");
        }
        #[cfg(test)]
        mod tests { fn g() { tracing::warn!("in a test"); } }
    "#;

    fn problems(page: &str) -> Vec<String> {
        let mut said = Said::default();
        said.visit_file(&syn::parse_file(SOURCE).expect("a source"));
        let (rows, mut problems) = markdown::read(page, &[]);
        problems.extend(compare_lines(&rows, "Lines", &said));
        problems
    }

    #[test]
    fn a_page_with_every_line_is_accepted() {
        let page = "## Lines\n\n| line | level | meaning | what to do |\n|---|---|---|---|\n\
                    | `it is late by {} ms, and later` | WARN | x | y |\n| `{name} pan…` | ERROR | x | y |\n\
                    | `no certificate` | WARN | x | y |\n| `why not` | WARN | x | y |\n";
        assert_eq!(problems(page), Vec::<String>::new());
    }

    #[test]
    fn lines_that_are_missing_gone_or_unexplained_are_named() {
        let page = "## Lines\n\n| line | level | meaning | what to do |\n|---|---|---|---|\n\
                    | `it is late by {} ms, and later` | ERROR | x | y |\n| `gone` | WARN | x | y |\n\
                    | `no certificate` | WARN | x | |\n";
        let expected = [
            ":5: \"it is late by {} ms, and later\" is of level WARN",
            ":6: nobody says \"gone\"",
            ":7: \"no certificate\" has no what to do",
            ": under \"Lines\" the line \"{name} panicked\" (ERROR) is missing",
        ];
        assert_eq!(problems(page), expected);
    }

    #[test]
    fn reasons_that_are_missing_gone_or_of_no_type_are_named() {
        let names = "pub mod events { /// It ended.\npub const ENDED: &str = \"Ended\"; }\n\
                     pub mod pods { /// Event: it began.\npub const BEGUN: &str = \"Begun\";\n\
                     /// Waiting: it waits.\npub const WAITS: &str = \"Waits\"; }";
        let mut reasons = BTreeSet::new();
        collect(&syn::parse_file(names).expect("names").items, false, &mut reasons);
        let page = "## Events\n\n| reason | type | meaning | what to do |\n|---|---|---|---|\n\
                    | `Begun` | Warming | x | y |\n| `Waits` | row | x | y |\n";
        let (rows, _) = markdown::read(page, &[]);
        let expected = [
            ":5: the type of Begun is none of [\"Normal\", \"Warning\", \"row\"]",
            ":6: no Event has the reason \"Waits\"",
            ": the reason Ended is missing",
        ];
        assert_eq!(compare_reasons(&rows, &reasons), expected);
    }
}
