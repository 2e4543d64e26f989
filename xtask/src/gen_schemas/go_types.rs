//! Facts that only Go's type declarations hold.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What Go says about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GoField {
    /// As error messages name it, without the pointer: `[]v1.Container`, `int32`.
    pub(super) go_type: String,
    /// A pointer keeps its zero value when encoded.
    pub(super) pointer: bool,
    /// Without `omitempty` the field is always encoded.
    pub(super) omitempty: bool,
    /// With `omitzero` even a zero struct is left out.
    pub(super) omitzero: bool,
}

/// `(definition, field)` to fact.
pub(super) type Facts = BTreeMap<(String, String), GoField>;

/// Folders below the Go source folder, by the prefix of the definitions' names.
const MODULES: [(&str, &str, &str); 4] = [
    ("api@", "", "io.k8s.api"),
    ("apimachinery@", "pkg", "io.k8s.apimachinery.pkg"),
    (
        "apiextensions-apiserver@",
        "pkg/apis",
        "io.k8s.apiextensions-apiserver.pkg.apis",
    ),
    ("kube-aggregator@", "pkg/apis", "io.k8s.kube-aggregator.pkg.apis"),
];

/// Reads the facts about `definitions` from the Go modules in `source`, as the text of `go-types.tsv`.
pub(super) fn extract(source: &Path, definitions: &Map<String, Value>) -> Result<String> {
    let mut packages = BTreeMap::new();
    for (module, folder, prefix) in MODULES {
        let root = module_root(source, module)?.join(folder);
        collect(&root, prefix, &mut packages)?;
    }
    let mut text = String::new();
    for (prefix, files) in &packages {
        let structs = structs_of(files, prefix)?;
        for name in structs
            .keys()
            .filter(|name| definitions.contains_key(&format!("{prefix}.{name}")))
        {
            for (field, fact) in flatten(&structs, name) {
                let flags = match (fact.pointer, fact.omitempty, fact.omitzero) {
                    (true, true, _) => "*",
                    (true, false, _) => "*!",
                    (false, true, true) => "z",
                    (false, true, false) => "-",
                    (false, false, _) => "!",
                };
                writeln!(text, "{prefix}.{name}\t{field}\t{flags}\t{}", fact.go_type)?;
            }
        }
    }
    Ok(text)
}

/// Parses `go-types.tsv`.
pub(super) fn parse(text: &str) -> Result<Facts> {
    let mut facts = Facts::new();
    for line in text.lines() {
        let mut parts = line.split('\t');
        let (Some(definition), Some(field), Some(flags), Some(go_type)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("go-types.tsv: not four columns: {line}");
        };
        facts.insert(
            (definition.to_owned(), field.to_owned()),
            GoField {
                go_type: go_type.to_owned(),
                pointer: flags.contains('*'),
                omitempty: !flags.contains('!'),
                omitzero: flags.contains('z'),
            },
        );
    }
    Ok(facts)
}

fn module_root(source: &Path, module: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(module))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
        .pop()
        .with_context(|| format!("no {module}VERSION in {}", source.display()))
}

fn collect(folder: &Path, prefix: &str, packages: &mut BTreeMap<String, Vec<PathBuf>>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{prefix}.{name}"), packages)?;
        } else if Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "go")
            && name.contains("types")
            && !name.ends_with("_test.go")
        {
            packages.entry(prefix.to_owned()).or_default().push(entry.path());
        }
    }
    Ok(())
}

enum Member {
    Embedded(String),
    Field(String, GoField),
}

type Structs = BTreeMap<String, Vec<Member>>;

fn structs_of(files: &[PathBuf], prefix: &str) -> Result<Structs> {
    let package = prefix.rsplit('.').next().unwrap_or_default();
    let mut structs = Structs::new();
    for file in files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut current: Option<String> = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(name) = line
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(" struct {"))
            {
                current = Some(name.to_owned());
                structs.insert(name.to_owned(), Vec::new());
            } else if line == "}" {
                current = None;
            } else if let Some(members) = current.as_ref().and_then(|name| structs.get_mut(name))
                && let Some(member) = member(line, package)
            {
                members.push(member);
            }
        }
    }
    Ok(structs)
}

fn member(line: &str, package: &str) -> Option<Member> {
    if line.starts_with("//") {
        return None;
    }
    let (declaration, tags) = line.split_once('`')?;
    let json = tags.split_once("json:\"")?.1.split_once('"')?.0;
    let mut options = json.split(',');
    let name = options.next()?;
    let mut words = declaration.split_whitespace();
    let first = words.next()?;
    if name.is_empty() {
        return Some(Member::Embedded(first.rsplit('.').next()?.to_owned()));
    }
    let written: Vec<&str> = words.collect();
    let written = written.join(" ");
    let options: Vec<&str> = options.collect();
    let (pointer, bare) = match written.strip_prefix('*') {
        Some(bare) => (true, bare),
        None => (false, written.as_str()),
    };
    Some(Member::Field(
        name.to_owned(),
        GoField {
            go_type: qualified(bare, package),
            pointer,
            omitempty: options.contains(&"omitempty") || options.contains(&"omitzero"),
            omitzero: options.contains(&"omitzero"),
        },
    ))
}

/// As Go prints a type: `[]Container` of package `v1` is `[]v1.Container`; import aliases become package
/// names.
fn qualified(written: &str, package: &str) -> String {
    if let Some(item) = written.strip_prefix("[]") {
        return format!("[]{}", qualified(item, package));
    }
    if let Some(item) = written.strip_prefix('*') {
        return format!("*{}", qualified(item, package));
    }
    if let Some((key, value)) = written.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", qualified(key, package), qualified(value, package));
    }
    if let Some((alias, name)) = written.split_once('.') {
        let alias = if alias.ends_with("v1") { "v1" } else { alias };
        return format!("{alias}.{name}");
    }
    if written.starts_with(char::is_uppercase) {
        format!("{package}.{written}")
    } else {
        written.to_owned()
    }
}

fn flatten(structs: &Structs, name: &str) -> Vec<(String, GoField)> {
    let mut fields = Vec::new();
    for member in structs.get(name).into_iter().flatten() {
        match member {
            Member::Embedded(embedded) if embedded == "TypeMeta" => {}
            Member::Embedded(embedded) => fields.extend(flatten(structs, embedded)),
            Member::Field(field, fact) => fields.push((field.clone(), fact.clone())),
        }
    }
    fields
}
