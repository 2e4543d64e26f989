//! What form the client wants its answer in.

use evenkeel_kube_rules::protobuf;
use evenkeel_kube_rules::status::{ApiError, ApiResult};

/// Encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    /// The media type.
    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA,
        }
    }
}

/// What is read, and written of built-in kinds, as error messages name it.
pub(crate) const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// What lists and watches may be written in besides.
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

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
/// preference. `list` tells whether the answer is a list: the shape's name has to fit. `binary` tells whether
/// the kind has messages in protobuf; the metadata of all kinds has.
pub(crate) fn negotiate(accept: &str, list: bool, binary: bool) -> ApiResult<Form> {
    if accept.trim().is_empty() {
        return Ok(Form::default());
    }
    let clauses = clauses(accept);
    let form = clauses.iter().find_map(|clause| {
        form(clause, list).filter(|form| match (form.encoding, form.shape) {
            (Encoding::Protobuf, Shape::Plain) => binary,
            (Encoding::Protobuf, Shape::Table { .. }) => false,
            _ => true,
        })
    });
    form.ok_or_else(|| {
        // A known media type in an unknown shape is refused by another layer upstream, and so is all that
        // custom resources do not have.
        if !binary || clauses.iter().any(|clause| encoding(clause).is_some()) {
            ApiError::not_acceptable(ACCEPTED)
        } else if list {
            ApiError::no_representation(&format!("{ACCEPTED}, {STREAMS}"))
        } else {
            ApiError::no_representation(ACCEPTED)
        }
    })
}

/// How an error is written for a client: the first encoding that it reads without another shape, or JSON.
pub(crate) fn for_error(accept: &str) -> Form {
    let plain = |clause: &&str| form(clause, false).filter(|form| form.shape == Shape::Plain);
    clauses(accept).iter().find_map(plain).unwrap_or_default()
}

/// What the client reads, by its preference.
fn clauses(accept: &str) -> Vec<&str> {
    let mut clauses: Vec<(f32, &str)> = accept
        .split(',')
        .map(|clause| (quality(clause), clause))
        .collect();
    // The sort is stable: equal qualities keep the client's order.
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    clauses.into_iter().map(|(_, clause)| clause).collect()
}

fn encoding(clause: &str) -> Option<Encoding> {
    match clause.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        protobuf::MEDIA => Some(Encoding::Protobuf),
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
        negotiate(accept, list, true)
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
            Some((Encoding::Protobuf, Shape::Plain))
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
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=Nope;v=v1;g=meta.k8s.io",
        ] {
            assert_eq!(shape(accept, true), None, "{accept}");
        }
        let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        assert_eq!(shape(partial, true), None, "a list wants the list's kind");
        assert!(shape(partial, false).is_some());
    }

    #[test]
    fn custom_resources_have_no_messages_but_for_their_metadata() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        let error = negotiate(protobuf, false, false).expect_err("nothing else is read");
        assert!(
            error.message.ends_with(ACCEPTED) && error.details.is_null(),
            "{error:?}"
        );
        let form = negotiate(&format!("{protobuf},application/json"), false, false);
        assert_eq!(form.map(|form| form.encoding), Ok(Encoding::Json));
        let partial = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        let form = negotiate(&partial, false, false);
        assert_eq!(form.map(|form| form.encoding), Ok(Encoding::Protobuf));
    }

    #[test]
    fn errors_are_written_as_objects_are_where_the_client_reads_that() {
        let encoding = |accept| for_error(accept).encoding;
        assert_eq!(
            encoding("application/vnd.kubernetes.protobuf, */*"),
            Encoding::Protobuf
        );
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml";
        assert_eq!(encoding(table), Encoding::Yaml);
        assert_eq!(encoding("text/html"), Encoding::Json);
        assert_eq!(encoding(""), Encoding::Json);
    }
}
