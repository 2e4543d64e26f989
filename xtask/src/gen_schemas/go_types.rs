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
    /// Number in protobuf messages. A field of an embedded struct has the struct's number before its own, as
    /// in `2.19`: in protobuf such a struct is a message of its own. Empty for fields that have none.
    pub(super) number: String,
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
    let mut structs = Structs::new();
    for (prefix, files) in &packages {
        structs_of(files, prefix, &mut structs)?;
    }
    for (prefix, name) in structs.keys() {
        if definitions.contains_key(&format!("{prefix}.{name}")) {
            for (field, fact) in flatten(&structs, prefix, name) {
                let flags = match (fact.pointer, fact.omitempty, fact.omitzero) {
                    (true, true, _) => "*",
                    (true, false, _) => "*!",
                    (false, true, true) => "z",
                    (false, true, false) => "-",
                    (false, false, _) => "!",
                };
                let (go_type, number) = (&fact.go_type, &fact.number);
                writeln!(text, "{prefix}.{name}\t{field}\t{flags}\t{go_type}\t{number}")?;
            }
        }
    }
    Ok(text)
}

/// Parses `go-types.tsv`.
pub(super) fn parse(text: &str) -> Result<Facts> {
    let mut facts = Facts::new();
    for line in text.lines() {
        let columns: Option<[&str; 5]> = line.split('\t').collect::<Vec<_>>().try_into().ok();
        let Some([definition, field, flags, go_type, number]) = columns else {
            bail!("go-types.tsv: not five columns: {line}");
        };
        facts.insert(
            (definition.to_owned(), field.to_owned()),
            GoField {
                go_type: go_type.to_owned(),
                pointer: flags.contains('*'),
                omitempty: !flags.contains('!'),
                omitzero: flags.contains('z'),
                number: number.to_owned(),
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
            && (name.contains("types") || matches!(name.as_str(), "group_version.go" | "watch.go"))
            && !name.ends_with("_test.go")
        {
            packages.entry(prefix.to_owned()).or_default().push(entry.path());
        }
    }
    Ok(())
}

enum Member {
    /// A struct whose fields stand among those of the one around it, and its number in protobuf.
    Embedded(String, String),
    Field(String, GoField),
}

/// By package and name.
type Structs = BTreeMap<(String, String), Vec<Member>>;

fn structs_of(files: &[PathBuf], prefix: &str, structs: &mut Structs) -> Result<()> {
    let (group, package) = prefix.rsplit_once('.').unwrap_or_default();
    for file in files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut current = None;
        for line in text.lines() {
            let line = line.trim();
            let mut words = line.split_whitespace().filter(|word| *word != "=");
            let declared = (words.next(), words.next(), words.next(), words.next());
            match declared {
                (Some("type"), Some(name), Some("struct"), Some("{")) => {
                    let key = (prefix.to_owned(), name.to_owned());
                    structs.insert(key.clone(), Vec::new());
                    current = Some(key);
                }
                // The same type in another version of the group.
                (Some("type"), Some(name), Some(other), None) if other.starts_with("v1.") => {
                    let embedded = Member::Embedded(format!("{group}.{other}"), String::new());
                    structs.insert((prefix.to_owned(), name.to_owned()), vec![embedded]);
                }
                (Some("}"), None, ..) => current = None,
                _ => {
                    if let Some(members) = current.as_ref().and_then(|key| structs.get_mut(key)) {
                        members.extend(member(line, prefix, package));
                    }
                }
            }
        }
    }
    Ok(())
}

fn member(line: &str, prefix: &str, package: &str) -> Option<Member> {
    if line.starts_with("//") {
        return None;
    }
    let (declaration, tags) = line.split_once('`')?;
    let tag = |name: &str| Some(tags.split_once(name)?.1.split_once('"')?.0);
    let json = tag("json:\"")?;
    let number = tag("protobuf:\"").and_then(|tag| tag.split(',').nth(1));
    let number = number.unwrap_or_default().to_owned();
    let mut options = json.split(',');
    let name = options.next()?;
    let mut words = declaration.split_whitespace();
    let first = words.next()?;
    if name.is_empty() {
        return Some(Member::Embedded(format!("{prefix}.{first}"), number));
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
            number,
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

fn flatten(structs: &Structs, prefix: &str, name: &str) -> Vec<(String, GoField)> {
    let mut fields = Vec::new();
    let key = (prefix.to_owned(), name.to_owned());
    for member in structs.get(&key).into_iter().flatten() {
        match member {
            // In protobuf the kind is told by the envelope.
            Member::Embedded(embedded, _) if embedded.ends_with(".TypeMeta") => {}
            Member::Embedded(embedded, number) => {
                let (prefix, name) = embedded.rsplit_once('.').unwrap_or_default();
                for (field, mut fact) in flatten(structs, prefix, name) {
                    if !number.is_empty() && !fact.number.is_empty() {
                        fact.number = format!("{number}.{}", fact.number);
                    }
                    fields.push((field, fact));
                }
            }
            Member::Field(field, fact) => fields.push((field.clone(), fact.clone())),
        }
    }
    fields
}
