//! Reads metrics out of the source of the crates: the declarations of `evenkeel_net::metrics!`, the calls of
//! `register` and `register_with_unit`, and the descriptors that collectors encode.
//!
//! Whatever looks like a metric and cannot be read is an error, so that no metric is missing on the page.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMethodCall, ExprStruct, ExprTuple, Ident, Item, Lit, Token, Type};

/// A metric as Prometheus sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// With the prefix of its registry, and with `_total`, `_seconds` or `_info` where they belong to it.
    pub(crate) name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub(crate) kind: &'static str,
    pub(crate) help: String,
    pub(crate) labels: Vec<Label>,
    /// The file that declares it, from the root of the checkout.
    pub(crate) file: String,
}

/// A label, with its values where its type lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
}

/// A value of a label, and what it means; empty where the code says nothing about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) meaning: String,
}

/// Constants with the names of metrics, by the path of their module.
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// Reads `crates/api/src/names.rs`.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let mut names = BTreeMap::new();
        collect_constants(&syn::parse_file(text)?.items, "", &mut names);
        Ok(Self(names))
    }
}

fn collect_constants(items: &[Item], module: &str, names: &mut BTreeMap<String, String>) {
    for item in items {
        match item {
            Item::Const(item) => {
                if let Some(text) = literal(&item.expr) {
                    names.insert(format!("{module}{}", item.ident), text);
                }
            }
            Item::Mod(item) => {
                let inner = item.content.as_ref().map_or(&[][..], |(_, items)| items);
                collect_constants(inner, &format!("{module}{}::", item.ident), names);
            }
            _ => {}
        }
    }
}

/// The metrics of one file.
pub(crate) fn read(path: &str, text: &str, names: &Names) -> anyhow::Result<Vec<Metric>> {
    let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
    let mut types = Types::default();
    types.visit_file(&file);
    let mut reader = Reader {
        path,
        names,
        alias: alias(text),
        types: &types,
        metrics: Vec::new(),
        pending: Vec::new(),
        loose: Vec::new(),
        collected: None,
        problems: Vec::new(),
    };
    reader.visit_file(&file);
    if !reader.problems.is_empty() {
        bail!("{}", reader.problems.join("\n"));
    }
    Ok(reader.metrics)
}

/// The module behind `names` in this file, as in `use evenkeel_api::names::vnode::metrics as names;`.
fn alias(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        line.trim_start()
            .strip_prefix("use evenkeel_api::names::")?
            .strip_suffix(" as names;")
    })
}

/// What a file declares beside its metrics.
#[derive(Default)]
struct Types {
    /// Structs by name: fields with the last segment of their types, and the type behind `Family`.
    structs: BTreeMap<String, Vec<(String, Kind)>>,
    enums: BTreeMap<String, Vec<Value>>,
    /// Values that literals of a struct give to its fields, by struct and field.
    given: BTreeMap<(String, String), Vec<String>>,
    /// Functions that hand out labels as tuples of name and value.
    labelled: BTreeMap<String, Labels>,
    prefix: Option<String>,
}

/// The type of a field: `Family<Labels, Counter>` is a `Counter` with `Labels`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    name: String,
    labels: Option<String>,
}

impl Kind {
    fn of(kind: &Type) -> Self {
        let (name, arguments) = last_segment(kind);
        match (name.as_str(), arguments.as_slice()) {
            ("Family", [labels, inner, ..]) => Self {
                name: last_segment(inner).0,
                labels: Some(last_segment(labels).0),
            },
            _ => Self { name, labels: None },
        }
    }
}

/// The last segment of a type's path, and the types that it is given.
fn last_segment(kind: &Type) -> (String, Vec<&Type>) {
    let Type::Path(path) = kind else {
        return (String::new(), Vec::new());
    };
    let Some(segment) = path.path.segments.last() else {
        return (String::new(), Vec::new());
    };
    let arguments = match &segment.arguments {
        syn::PathArguments::AngleBracketed(given) => given
            .args
            .iter()
            .filter_map(|argument| match argument {
                syn::GenericArgument::Type(inner) => Some(inner),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    (segment.ident.to_string(), arguments)
}

/// The documentation of an item, in one line.
fn documentation(attributes: &[Attribute]) -> String {
    let lines: Vec<String> = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
        .filter_map(|attribute| literal(&attribute.meta.require_name_value().ok()?.value))
        .map(|line| line.trim().to_owned())
        .collect();
    lines.join(" ").trim().to_owned()
}

/// Variants with their documentation.
pub(super) fn variants(item: &syn::ItemEnum) -> Vec<Value> {
    let value = |variant: &syn::Variant| Value {
        name: variant.ident.to_string(),
        meaning: documentation(&variant.attrs),
    };
    item.variants.iter().map(value).collect()
}

pub(super) fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(syn::ExprLit {
            lit: Lit::Str(text), ..
        }) => Some(text.value()),
        _ => None,
    }
}

fn ident_of(path: &syn::Path) -> String {
    path.segments
        .last()
        .map(|segment| segment.ident.to_string())
        .unwrap_or_default()
}

impl Visit<'_> for Types {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !crate::size::is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        let fields = item.fields.iter();
        let fields =
            fields.filter_map(|field| Some((field.ident.as_ref()?.to_string(), Kind::of(&field.ty))));
        self.structs.insert(item.ident.to_string(), fields.collect());
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.enums.insert(item.ident.to_string(), variants(item));
    }

    fn visit_expr_struct(&mut self, expression: &ExprStruct) {
        for field in &expression.fields {
            if let (syn::Member::Named(name), Some(text)) = (&field.member, literal(&field.expr)) {
                let place = (ident_of(&expression.path), name.to_string());
                self.given.entry(place).or_default().push(text);
            }
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if call.method == "sub_registry_with_prefix" {
            self.prefix = call.args.first().and_then(literal);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        let name = item.sig.ident.to_string();
        if name.ends_with("labels") {
            let mut labels = Labels::default();
            labels.visit_block(&item.block);
            self.labelled.insert(name, labels);
        }
        visit::visit_impl_item_fn(self, item);
    }
}

/// The labels that a function hands out.
#[derive(Default)]
struct Labels {
    /// The methods that it calls, some of which hand out labels, too.
    called: Vec<String>,
    own: Vec<String>,
}

impl Types {
    /// The labels that a function hands out: first those of the functions that it calls.
    fn handed_out(&self, function: &str) -> Vec<String> {
        let Some(labels) = self.labelled.get(function) else {
            return Vec::new();
        };
        let called = labels.called.iter().filter(|called| *called != function);
        let mut found: Vec<String> = called.flat_map(|called| self.handed_out(called)).collect();
        found.extend(labels.own.iter().cloned());
        found
    }
}

impl Visit<'_> for Labels {
    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        self.called.push(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_tuple(&mut self, tuple: &ExprTuple) {
        self.own.extend(tuple.elems.first().and_then(literal));
        visit::visit_expr_tuple(self, tuple);
    }
}

/// One line of `evenkeel_net::metrics!`.
struct Declared {
    kind: Kind,
    name: Expr,
    help: Expr,
}

/// The body of `evenkeel_net::metrics!`.
struct Declaration(Vec<Declared>);

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Attribute::parse_outer(input)?;
        input.parse::<syn::Visibility>()?;
        input.parse::<Token![struct]>()?;
        input.parse::<Ident>()?;
        let body;
        syn::braced!(body in input);
        let mut declared = Vec::new();
        while !body.is_empty() {
            Attribute::parse_outer(&body)?;
            body.parse::<syn::Visibility>()?;
            body.parse::<Ident>()?;
            body.parse::<Token![:]>()?;
            let kind = Kind::of(&body.parse::<Type>()?);
            body.parse::<Token![=]>()?;
            let name = body.parse()?;
            body.parse::<Token![,]>()?;
            let help = body.parse()?;
            if body.parse::<Option<Token![,]>>()?.is_some() {
                body.parse::<Expr>()?;
            }
            body.parse::<Token![;]>()?;
            declared.push(Declared { kind, name, help });
        }
        Ok(Self(declared))
    }
}

struct Reader<'a> {
    path: &'a str,
    names: &'a Names,
    alias: Option<&'a str>,
    types: &'a Types,
    metrics: Vec<Metric>,
    /// Tuples of name and help that a loop encodes as one descriptor each.
    pending: Vec<(String, String)>,
    /// The first elements of tuples since the last metric: the labels of an `Info`.
    loose: Vec<String>,
    /// From where on metrics of this function come from collectors; their labels follow them.
    collected: Option<usize>,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, place: proc_macro2::Span, what: &str) {
        let line = place.start().line;
        self.problems.push(format!("{}:{line}: {what}", self.path));
    }

    /// A text, or one of the constants behind `names`.
    fn text(&self, expression: &Expr) -> Option<String> {
        if let Expr::Path(path) = expression
            && path.path.segments.len() == 2
        {
            let key = format!("{}::{}", self.alias?, ident_of(&path.path));
            return self.names.0.get(&key).cloned();
        }
        literal(expression)
    }

    fn labels(&self, of: &str) -> Vec<Label> {
        let fields = self.types.structs.get(of).into_iter().flatten();
        let label = |(field, kind): &(String, Kind)| {
            let given = self.types.given.get(&(of.to_owned(), field.clone()));
            let given = given.into_iter().flatten().map(|name| Value {
                name: name.clone(),
                meaning: String::new(),
            });
            let listed = self.types.enums.get(&kind.name).into_iter().flatten().cloned();
            Label {
                name: field.clone(),
                values: listed.chain(given).collect(),
            }
        };
        fields.map(label).collect()
    }

    fn put(&mut self, name: &str, help: &str, kind: &str, unit: Option<&Expr>, labels: Vec<Label>) -> bool {
        let kind = match kind {
            "Counter" => "counter",
            "Gauge" => "gauge",
            "Histogram" => "histogram",
            "Info" => "info",
            _ => return false,
        };
        let unit = match unit {
            Some(Expr::Path(path)) if ident_of(&path.path) != "None" => {
                format!("_{}", ident_of(&path.path).to_lowercase())
            }
            _ => String::new(),
        };
        let end = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        self.metrics.push(Metric {
            name: format!("{name}{unit}{end}"),
            kind,
            help: help.to_owned(),
            labels,
            file: self.path.to_owned(),
        });
        true
    }

    fn prefixed(&self, name: &str) -> String {
        match &self.types.prefix {
            Some(prefix) => format!("{prefix}_{name}"),
            None => name.to_owned(),
        }
    }

    fn registered(&mut self, call: &ExprMethodCall) {
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let (name, help, unit, value) = match arguments.as_slice() {
            [name, help, value] => (name, help, None, value),
            [name, help, unit, value] => (name, help, Some(*unit), value),
            _ => return,
        };
        let kind = match value {
            Expr::Call(made) => made_type(made).map(|name| Kind { name, labels: None }),
            Expr::MethodCall(cloned) => match &*cloned.receiver {
                Expr::Field(syn::ExprField {
                    member: syn::Member::Named(field),
                    ..
                }) => self.field(&field.to_string()),
                _ => None,
            },
            _ => None,
        };
        let (Some(name), Some(help), Some(kind)) = (self.text(name), self.text(help), kind) else {
            return self.problem(call.span(), "a metric whose name, help or type cannot be read");
        };
        let mut labels = kind.labels.as_deref().map(|of| self.labels(of));
        if kind.name == "Info" {
            labels = Some(open(std::mem::take(&mut self.loose)));
        }
        let name = self.prefixed(&name);
        if !self.put(&name, &help, &kind.name, unit, labels.unwrap_or_default()) {
            self.problem(call.span(), "a metric of an unknown type");
        }
    }

    /// The type of a field of any struct of the file.
    fn field(&self, name: &str) -> Option<Kind> {
        let mut fields = self.types.structs.values().flatten();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, kind)| kind.clone())
    }

    fn encoded(&mut self, call: &ExprMethodCall) {
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let [name, help, unit, Expr::Path(kind)] = arguments.as_slice() else {
            return self.problem(
                call.span(),
                "encode_descriptor takes a name, a help, a unit, and a constant of MetricType here",
            );
        };
        let unit = match unit {
            Expr::Call(some) => some.args.first().map(|unit| match unit {
                Expr::Reference(reference) => &*reference.expr,
                other => other,
            }),
            _ => None,
        };
        let described = match (self.text(name), self.text(help)) {
            (Some(name), Some(help)) => vec![(name, help)],
            _ => std::mem::take(&mut self.pending),
        };
        if described.is_empty() {
            self.problem(call.span(), "a descriptor whose name and help cannot be read");
        }
        self.collected = Some(self.metrics.len());
        for (name, help) in described {
            if !self.put(&name, &help, &ident_of(&kind.path), unit, Vec::new()) {
                self.problem(call.span(), "a descriptor of an unknown type");
            }
        }
    }

    /// Gives labels to the metrics of the last descriptor, unless they have some.
    fn label(&mut self, labels: &[Label]) {
        let Some(from) = self.collected else { return };
        for metric in self.metrics.iter_mut().skip(from) {
            if metric.labels.is_empty() {
                metric.labels = labels.to_vec();
            }
        }
    }
}

/// The type of `Info::new(…)`.
fn made_type(call: &ExprCall) -> Option<String> {
    let Expr::Path(path) = &*call.func else {
        return None;
    };
    let mut segments = path.path.segments.iter().rev().skip(1);
    segments.next().map(|segment| segment.ident.to_string())
}

/// Labels of which only the names are known here.
fn open(names: Vec<String>) -> Vec<Label> {
    let label = |name| Label {
        name,
        values: Vec::new(),
    };
    names.into_iter().map(label).collect()
}

impl Visit<'_> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !crate::size::is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_macro(&mut self, item: &syn::Macro) {
        if ident_of(&item.path) != "metrics" {
            return;
        }
        let declaration = match item.parse_body::<Declaration>() {
            Ok(declaration) => declaration,
            Err(error) => return self.problem(item.span(), &format!("metrics! cannot be read: {error}")),
        };
        for declared in declaration.0 {
            let (Some(name), Some(help)) = (self.text(&declared.name), self.text(&declared.help)) else {
                self.problem(declared.name.span(), "a metric whose name or help cannot be read");
                continue;
            };
            let labels = declared.kind.labels.as_deref().map(|of| self.labels(of));
            let name = self.prefixed(&name);
            if !self.put(
                &name,
                &help,
                &declared.kind.name,
                None,
                labels.unwrap_or_default(),
            ) {
                self.problem(declared.name.span(), "a metric of an unknown type");
            }
        }
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        visit::visit_impl_item_fn(self, item);
        (self.collected, self.pending, self.loose) = (None, Vec::new(), Vec::new());
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        match call.method.to_string().as_str() {
            "register" | "register_with_unit" => self.registered(call),
            "encode_descriptor" => self.encoded(call),
            other => self.label(&open(self.types.handed_out(other))),
        }
    }

    fn visit_expr_struct(&mut self, expression: &ExprStruct) {
        let labels = self.labels(&ident_of(&expression.path));
        self.label(&labels);
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_tuple(&mut self, tuple: &ExprTuple) {
        let texts: Vec<Option<String>> = tuple.elems.iter().map(literal).collect();
        if let [Some(name), rest @ ..] = texts.as_slice() {
            self.loose.push(name.clone());
            if let [Some(help), ..] = rest {
                self.pending.push((name.clone(), help.clone()));
            }
        }
        visit::visit_expr_tuple(self, tuple);
    }
}
