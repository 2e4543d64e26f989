//! Query parameters.

use evenkeel_kube_rules::gofmt::go_quote;
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict::FieldValidation;
use percent_encoding::percent_decode_str;

/// The parameters of a request, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=b&c=d`. What does not decode as UTF-8 is replaced, as upstream's clients never send it.
    pub(crate) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter; `None` where it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A truth value as upstream's conversion of query parameters reads it: `false` and `0` are false,
    /// anything else that is present is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    /// The same; `None` where it is absent.
    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A number; 400 for what is none.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
                })
            })
            .transpose()
    }
}

/// `a=b&c=d`
pub(crate) fn encode(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

/// Decodes a path segment, in which `+` stands for itself.
pub(crate) fn decode_segment(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// CreateOptions, UpdateOptions and PatchOptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Go through everything, but store nothing.
    pub(crate) dry_run: bool,
    /// What happens to unknown and duplicate fields.
    pub(crate) field_validation: FieldValidation,
    /// Who owns the fields that are set.
    pub(crate) field_manager: String,
    /// Take over fields of other managers (server-side apply only).
    pub(crate) force: bool,
}

/// 422 for options.
pub(crate) fn invalid_options(kind: &str, errors: Vec<FieldError>) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", errors)
}

fn unsupported(field: &str, value: &str, supported: &str) -> FieldError {
    FieldError {
        reason: "FieldValueNotSupported",
        field: field.to_owned(),
        message: format!("Unsupported value: {value}: supported values: {supported}"),
    }
}

/// Bytes that the name of a manager has at most.
const MANAGER_BYTES: usize = 128;

/// The manager that a user agent stands for: its first part, cut to what a name may have.
fn manager_of(user_agent: &str) -> String {
    let mut manager = String::new();
    let first = user_agent.split('/').next().unwrap_or_default();
    for letter in first.chars().filter(|letter| !letter.is_control()) {
        if manager.len() + letter.len_utf8() > MANAGER_BYTES {
            break;
        }
        manager.push(letter);
    }
    manager
}

/// What is wrong with the name of a manager.
fn wrong_manager(manager: &str) -> Option<FieldError> {
    let error = |reason, message| FieldError {
        reason,
        field: "fieldManager".to_owned(),
        message,
    };
    if manager.len() > MANAGER_BYTES {
        let message = format!("Too long: may not be more than {MANAGER_BYTES} bytes");
        return Some(error("FieldValueTooLong", message));
    }
    let (at, letter) = manager.char_indices().find(|(_, letter)| letter.is_control())?;
    let message = format!(
        "Invalid value: {}: invalid character U+{:04X} (at position {at})",
        go_quote(manager),
        u32::from(letter)
    );
    Some(error("FieldValueInvalid", message))
}

/// `["All"]` or nothing.
pub(crate) fn check_dry_run(values: &[String]) -> Result<bool, FieldError> {
    match values {
        [] => Ok(false),
        [one] if one == "All" => Ok(true),
        _ => Err(unsupported("dryRun", &format!("{values:?}"), "\"All\"")),
    }
}

impl WriteOptions {
    /// Reads and checks the options of a write. `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`;
    /// without a `fieldManager`, the first part of the user agent stands for it.
    pub(crate) fn parse(query: &Query, kind: &str, user_agent: &str) -> ApiResult<Self> {
        let mut errors: Vec<FieldError> = query
            .get("fieldManager")
            .and_then(wrong_manager)
            .into_iter()
            .collect();
        let values: Vec<String> = query.all("dryRun").map(str::to_owned).collect();
        let dry_run = check_dry_run(&values).unwrap_or_else(|error| {
            errors.push(error);
            false
        });
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
                errors.push(unsupported("fieldValidation", &format!("{other:?}"), supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(invalid_options(kind, errors));
        }
        let agent = manager_of(user_agent);
        Ok(Self {
            dry_run,
            field_validation,
            field_manager: query.get("fieldManager").map_or(agent, str::to_owned),
            force: query.flag("force"),
        })
    }
}

/// 422 for what does not go with the kind of a patch: applying needs a manager, and it alone can force.
pub(crate) fn check_patch(query: &Query, applies: bool) -> ApiResult<()> {
    let (reason, field, message) = match (applies, query.get("fieldManager"), query.get("force")) {
        (true, None, _) => (
            "FieldValueRequired",
            "fieldManager",
            "Required value: is required for apply patch",
        ),
        (false, _, Some(_)) => (
            "FieldValueForbidden",
            "force",
            "Forbidden: may not be specified for non-apply patch",
        ),
        _ => return Ok(()),
    };
    let error = FieldError {
        reason,
        field: field.to_owned(),
        message: message.to_owned(),
    };
    Err(invalid_options("PatchOptions", vec![error]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+(d)&watch=1&limit=5&empty=&dryRun=All");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.get("empty"), None);
        assert!(query.flag("watch") && !query.flag("pretty"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert!(Query::parse("limit=x").number("limit").is_err());
    }

    #[test]
    fn a_field_manager_is_told_by_the_user_agent() {
        let options =
            |query: &str| WriteOptions::parse(&Query::parse(query), "CreateOptions", "kubectl/v1.36 (linux)");
        assert_eq!(
            options("").map(|options| options.field_manager),
            Ok("kubectl".to_owned())
        );
        assert_eq!(
            options("fieldManager=me").map(|options| options.field_manager),
            Ok("me".to_owned())
        );
        assert!(options("dryRun=All").is_ok_and(|options| options.dry_run));
    }

    #[test]
    fn segments_keep_their_plus() {
        assert_eq!(decode_segment("a+b%3Ac"), "a+b:c");
    }
}
