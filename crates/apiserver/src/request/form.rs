//! What form the client wants its answer in.

use evenkeel_kube_rules::status::{ApiError, ApiResult};

/// Encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Yaml,
}

/// What is made of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The object itself.
    #[default]
    Plain,
    /// A `Table`, in `meta.k8s.io/v1` or `v1beta1`.
    Table {
        /// The older version.
        beta: bool,
    },
    /// `PartialObjectMetadata`, or for lists `PartialObjectMetadataList`.
    Partial {
        /// The older version.
        beta: bool,
    },
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
    /// Whether JSON is indented.
    pub(crate) pretty: bool,
}

/// Picks the first form of an `Accept` header that this server can write, in the client's order of
/// preference. `list` tells whether the answer is a list: the shape's name has to fit.
pub(crate) fn negotiate(accept: Option<&str>, list: bool) -> ApiResult<Form> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
        return Ok(Form::default());
    };
    let mut clauses: Vec<(f32, &str)> = accept
        .split(',')
        .map(|clause| (quality(clause), clause))
        .collect();
    // The sort is stable: equal qualities keep the client's order.
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    clauses
        .iter()
        .find_map(|(_, clause)| form(clause, list))
        .ok_or_else(|| {
            // A known media type in an unknown shape is refused by another layer upstream, which adds no
            // details.
            let known = clauses.iter().any(|(_, clause)| encoding(clause).is_some());
            let mut error = ApiError::not_acceptable();
            if known {
                error.details = serde_json::Value::Null;
            }
            error
        })
}

fn encoding(clause: &str) -> Option<Encoding> {
    match clause.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        _ => None,
    }
}

fn parameters(clause: &str) -> impl Iterator<Item = (&str, &str)> {
    clause.split(';').skip(1).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        Some((name.trim(), value.trim()))
    })
}

fn quality(clause: &str) -> f32 {
    parameters(clause)
        .find(|(name, _)| *name == "q")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(1.0)
}

fn form(clause: &str, list: bool) -> Option<Form> {
    let encoding = encoding(clause)?;
    let (mut kind, mut version, mut group) = ("", "", "");
    for (name, value) in parameters(clause) {
        match name {
            "as" => kind = value,
            "v" => version = value,
            "g" => group = value,
            _ => {}
        }
    }
    let beta = version == "v1beta1";
    let known = group == "meta.k8s.io" && (beta || version == "v1");
    let shape = match kind {
        "" => Shape::Plain,
        "Table" if known => Shape::Table { beta },
        "PartialObjectMetadata" if known && !list => Shape::Partial { beta },
        "PartialObjectMetadataList" if known && list => Shape::Partial { beta },
        _ => return None,
    };
    Some(Form {
        encoding,
        shape,
        pretty: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(accept: &str, list: bool) -> Option<(Encoding, Shape)> {
        negotiate(Some(accept), list)
            .ok()
            .map(|form| (form.encoding, form.shape))
    }

    #[test]
    fn the_first_form_that_can_be_written_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                     application/json";
        assert_eq!(
            shape(table, true),
            Some((Encoding::Json, Shape::Table { beta: false }))
        );
        assert_eq!(
            shape("application/vnd.kubernetes.protobuf,application/json", true),
            Some((Encoding::Json, Shape::Plain))
        );
        assert_eq!(
            shape("application/json;q=0.1, application/yaml", false),
            Some((Encoding::Yaml, Shape::Plain))
        );
        assert_eq!(
            shape("text/html, */*;q=0.5", false),
            Some((Encoding::Json, Shape::Plain))
        );
        assert_eq!(
            shape("application/json;stream=watch", false),
            Some((Encoding::Json, Shape::Plain))
        );
    }

    #[test]
    fn forms_that_cannot_be_written_are_refused() {
        for accept in [
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Nope;v=v1;g=meta.k8s.io",
        ] {
            assert_eq!(shape(accept, true), None, "{accept}");
        }
        let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        assert_eq!(shape(partial, true), None, "a list wants the list's kind");
        assert!(shape(partial, false).is_some());
    }
}
