//! Manifests: several YAML documents in one text.

use serde_json::Value;

/// A text that holds no objects. A retry does not help.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot read document {number} of {origin}: {reason}")]
pub struct Malformed {
    /// Where the text is from.
    pub origin: String,
    /// Which document, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// The objects of a text, each with `apiVersion`, `kind`, and a name or `generateName`; empty documents are
/// skipped.
pub fn parse(text: &str, origin: &str) -> Result<Vec<Value>, Malformed> {
    let malformed = |number: usize, reason: &str| Malformed {
        origin: origin.to_owned(),
        number,
        reason: reason.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| malformed(1, &error.without_snippet().to_string()))?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        if document.is_null() {
            continue;
        }
        for field in ["apiVersion", "kind"] {
            if !document[field].is_string() {
                return Err(malformed(index + 1, &format!("{field} is missing")));
            }
        }
        let metadata = &document["metadata"];
        if !metadata["name"].is_string() && !metadata["generateName"].is_string() {
            return Err(malformed(index + 1, "metadata.name is missing"));
        }
        objects.push(document);
    }
    Ok(objects)
}

/// Objects as YAML documents, each after a line `---`.
pub fn print(objects: &[Value]) -> Result<String, serde_saphyr::ser_error::Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn several_documents_and_empty_ones() {
        let text = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: b-}\n";
        let objects = parse(text, "x").unwrap();
        assert_eq!(objects.len(), 2);
        assert_eq!(parse(&print(&objects).unwrap(), "x").unwrap(), objects);
        assert!(parse("", "x").unwrap().is_empty());
    }

    #[rstest]
    #[case("kind: Pod\nmetadata: {name: a}\n", "document 1 of x: apiVersion is missing")]
    #[case("apiVersion: v1\nmetadata: {name: a}\n", "kind is missing")]
    #[case("apiVersion: v1\nkind: Pod\n", "metadata.name is missing")]
    #[case(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n",
        "document 2 of x"
    )]
    #[case("a: [", "document 1 of x")]
    #[case("just words", "apiVersion is missing")]
    fn what_is_wrong_is_named(#[case] text: &str, #[case] said: &str) {
        let error = parse(text, "x").unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}
