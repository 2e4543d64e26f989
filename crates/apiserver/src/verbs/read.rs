//! Get and list.

use super::context::{Answer, Content, Context, List};
use crate::access::rbac;
use crate::kinds::convert::to_served;
use crate::request::query::{Query, invalid_options};
use crate::store::{HistoryError, Listed};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use evenkeel_kube_rules::selector::{FieldSelector, LabelSelector};
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Which objects a list or a watch wants.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Name that the path or the field selector demands.
    name: String,
}

impl Selector {
    fn parse(context: &Context) -> ApiResult<Self> {
        let text = |name| context.query.get(name).unwrap_or_default();
        Ok(Self {
            labels: LabelSelector::parse(text("labelSelector"))?,
            fields: FieldSelector::parse(text("fieldSelector"))?,
            name: context.info.name.clone(),
        })
    }

    /// Whether everything is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_empty()
    }

    /// The one name that is wanted.
    fn name(&self) -> Option<&str> {
        Some(self.name.as_str())
            .filter(|name| !name.is_empty())
            .or_else(|| self.fields.required_name())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.name.is_empty() || object["metadata"]["name"] == *self.name)
            && (self.labels.is_empty() || self.labels.matches_object(object))
            && (self.fields.is_empty() || self.fields.matches(object))
    }
}

/// An object as clients read it: in the served version, with what is computed on reading.
pub(crate) fn presented(context: &Context, object: &Arc<Value>) -> Arc<Value> {
    let object = to_served(&context.resource, object);
    let aggregates = context.resource.kind == "ClusterRole" && !object["aggregationRule"].is_null();
    if !aggregates {
        return object;
    }
    let mut role = (*object).clone();
    rbac::aggregate(&mut role, context.reader());
    Arc::new(role)
}

/// Reads a resourceVersion; the error is upstream's text.
fn parse_resource_version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

fn from_history(error: HistoryError, wanted: u64) -> ApiError {
    match error {
        HistoryError::TooOld { oldest } => ApiError::expired(wanted, oldest),
        HistoryError::TooLarge { current } => ApiError::too_large(wanted, current),
    }
}

pub(crate) fn get(context: &Context) -> ApiResult<Answer> {
    if let Some(text) = context.query.get("resourceVersion") {
        let wanted = parse_resource_version(text).map_err(ApiError::unforeseen)?;
        let current = context.server.store.resource_version();
        if wanted > current {
            return Err(ApiError::too_large(wanted, current));
        }
    }
    let object = context.stored()?;
    Ok(Answer::object(200, presented(context, &object)))
}

/// The options that choose which state is listed or watched.
pub(crate) struct ListOptions {
    pub(crate) resource_version: Option<u64>,
    /// Whether the state at exactly that resourceVersion is wanted.
    exact: bool,
    pub(crate) send_initial_events: Option<bool>,
}

/// The options of a list, or of a watch, and which objects it wants. Checked in upstream's order, since the
/// first that is wrong is told: numbers, selectors, what does not fit together, fields by which the kind is
/// not selected, and the version.
pub(crate) fn options(context: &Context, watch: bool) -> ApiResult<(ListOptions, Selector)> {
    let query = &context.query;
    query.number("limit")?;
    query.number("timeoutSeconds")?;
    let selector = Selector::parse(context)?;
    ListOptions::check(query, watch)?;
    if !selector.fields.is_empty() {
        let rules = context.rules()?;
        rules.check_fields(&selector.fields, context.resource.namespaced)?;
    }
    Ok((ListOptions::parse(query, watch)?, selector))
}

impl ListOptions {
    /// 422 for options that do not fit together.
    fn check(query: &Query, watch: bool) -> ApiResult<()> {
        let version = query.get("resourceVersion").unwrap_or_default();
        let matching = query.get("resourceVersionMatch").unwrap_or_default();
        let send_initial_events = query.optional_flag("sendInitialEvents");
        let mut errors = Vec::new();
        let forbidden = |field: &str, why: &str| FieldError {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {why}"),
        };
        let unsupported = |supported: &str| FieldError {
            reason: "FieldValueNotSupported",
            field: "resourceVersionMatch".to_owned(),
            message: format!("Unsupported value: {matching:?}: supported values: {supported}"),
        };
        let field = "resourceVersionMatch";
        if watch {
            if send_initial_events.is_some() {
                if matching != "NotOlderThan" {
                    let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                    errors.push(forbidden(field, why));
                }
                if !matches!(matching, "" | "NotOlderThan") {
                    errors.push(unsupported("\"NotOlderThan\""));
                }
            } else if !matching.is_empty() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(forbidden(field, why));
            }
        } else {
            if send_initial_events.is_some() {
                errors.push(forbidden(
                    "sendInitialEvents",
                    "sendInitialEvents is forbidden for list",
                ));
            }
            if !matching.is_empty() {
                if version.is_empty() {
                    let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                    errors.push(forbidden(field, why));
                }
                if query.get("continue").is_some() {
                    errors.push(forbidden(
                        field,
                        "resourceVersionMatch is forbidden when continue is provided",
                    ));
                }
                if !matches!(matching, "Exact" | "NotOlderThan") {
                    errors.push(unsupported("\"Exact\", \"NotOlderThan\", \"\""));
                }
                if matching == "Exact" && version == "0" {
                    let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    errors.push(forbidden(field, why));
                }
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(invalid_options("ListOptions", errors))
    }

    fn parse(query: &Query, watch: bool) -> ApiResult<Self> {
        let version = query.get("resourceVersion").unwrap_or_default();
        let resource_version = match version {
            "" => None,
            text => Some(parse_resource_version(text).map_err(|error| {
                if watch {
                    ApiError::unforeseen(error)
                } else {
                    ApiError::bad_request(format!("invalid resource version: {error}"))
                }
            })?),
        };
        Ok(Self {
            resource_version,
            exact: query.get("resourceVersionMatch") == Some("Exact"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        })
    }
}

/// What a continue token holds, in upstream's form.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    /// First key of the next page, relative to the list's namespace.
    start: String,
}

impl Continue {
    fn encode(resource_version: u64, last: &str) -> String {
        let token = Self {
            v: "meta.k8s.io/v1".to_owned(),
            rv: resource_version.cast_signed(),
            start: format!("{last}\0"),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("a map of texts and numbers encodes"))
    }

    fn decode(token: &str) -> ApiResult<Self> {
        let invalid = |why: String| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    token.len().saturating_sub(1)
                }
            };
            invalid(format!("illegal base64 data at input byte {at}"))
        })?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        if token.v != "meta.k8s.io/v1" {
            let why = format!(
                "continue key is not valid: server does not recognize this encoded version {:?}",
                token.v
            );
            return Err(ApiError::bad_request(format!("invalid continue token: {why}")));
        }
        Ok(token)
    }
}

const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to retrieve \
    the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
    were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(crate) fn list(context: &Context) -> ApiResult<Answer> {
    let query = &context.query;
    let (options, selector) = options(context, false)?;
    let limit = query
        .number("limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(0);
    let (store, table, namespace) = (&context.server.store, context.table(), context.list_namespace());
    let mut start = None;
    let mut exact = false;
    let listed = match (query.get("continue"), options.resource_version) {
        (Some(_), Some(wanted)) if wanted > 0 => {
            let why = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(why));
        }
        (Some(token), _) => {
            let token = Continue::decode(token)?;
            start = Some(token.start);
            match u64::try_from(token.rv) {
                Ok(at) if at > 0 => store
                    .list_at(&table, namespace, at)
                    .map_err(|error| match error {
                        HistoryError::TooOld { .. } => ApiError::new(410, "Expired", CONTINUE_TOO_OLD),
                        error @ HistoryError::TooLarge { .. } => from_history(error, at),
                    })?,
                // Upstream's token for an inconsistent rest of a list.
                _ => store.list(&table, namespace),
            }
        }
        (None, Some(wanted)) if options.exact => {
            exact = true;
            store
                .list_at(&table, namespace, wanted)
                .map_err(|error| from_history(error, wanted))?
        }
        (None, Some(wanted)) => {
            let current = store.resource_version();
            if wanted > current {
                return Err(ApiError::too_large(wanted, current));
            }
            store.list(&table, namespace)
        }
        (None, None) => store.list(&table, namespace),
    };
    // A list "of any version" is answered whole, as upstream answers it from its cache.
    let limit = if options.resource_version == Some(0) {
        0
    } else {
        limit
    };
    let mut list = page(context, &selector, listed, start.as_deref(), limit);
    if exact {
        list.resource_version = None;
    }
    Ok(Answer {
        status: 200,
        content: Content::List(list),
    })
}

fn page(context: &Context, selector: &Selector, listed: Listed, start: Option<&str>, limit: usize) -> List {
    let prefix = context
        .list_namespace()
        .map_or(0, |namespace| namespace.len() + 1);
    let wanted_name = selector.name();
    let everything = selector.is_empty();
    let mut items = Vec::new();
    let mut continue_token = None;
    let mut remaining = None;
    let from = start.map_or(0, |start| {
        listed.items.partition_point(|(key, _)| &key[prefix..] < start)
    });
    let total = listed.items.len();
    let mut last: Option<&str> = None;
    for (index, (key, object)) in listed.items.iter().enumerate().skip(from) {
        if limit > 0 && items.len() == limit {
            // A list by name reads one key and has no further pages, but for one of all namespaces.
            if wanted_name.is_some() && (prefix > 0 || !context.resource.namespaced) {
                break;
            }
            continue_token = last.map(|last| Continue::encode(listed.resource_version, last));
            remaining = everything.then(|| (total - index) as u64);
            break;
        }
        let object = presented(context, object);
        if everything || selector.matches(&object) {
            items.push(object);
            last = Some(&key[prefix..]);
        }
    }
    List {
        items,
        resource_version: Some(listed.resource_version),
        continue_token,
        remaining,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_comes_back_as_it_went() {
        let token = Continue::encode(7, "a");
        let decoded = Continue::decode(&token).expect("our own token");
        assert_eq!((decoded.rv, decoded.start.as_str()), (7, "a\0"));
        let error = Continue::decode("notatoken").expect_err("nine characters are no base64");
        assert_eq!(
            error.message,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 8"
        );
    }

    #[rstest::rstest]
    #[case("resourceVersionMatch=Exact", false, false)]
    #[case("resourceVersion=0&resourceVersionMatch=Exact", false, false)]
    #[case("resourceVersion=5&resourceVersionMatch=Exact", false, true)]
    #[case("sendInitialEvents=true", false, false)]
    #[case("sendInitialEvents=true", true, false)]
    #[case("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, true)]
    #[case("resourceVersionMatch=NotOlderThan", true, false)]
    #[case("resourceVersion=abc", false, false)]
    fn options_that_do_not_fit_are_refused(#[case] query: &str, #[case] watch: bool, #[case] accepted: bool) {
        let query = Query::parse(query);
        let parsed = ListOptions::check(&query, watch).and_then(|()| ListOptions::parse(&query, watch));
        assert_eq!(parsed.is_ok(), accepted);
    }
}
