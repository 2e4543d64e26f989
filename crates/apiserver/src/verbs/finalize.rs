//! `PUT namespaces/NAME/finalize`: who holds a namespace back.

use super::context::{ATTEMPTS, Answer, Context};
use super::hooks;
use crate::request::query::WriteOptions;
use crate::store::{StoreError, resource_version};
use evenkeel_kube_rules::status::ApiResult;
use serde_json::json;
use std::sync::Arc;

pub(crate) fn update(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", &context.user_agent)?;
    let decoded = context.read_body(options.field_validation)?;
    let name = &context.info.name;
    let wanted = decoded["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let finalizers = decoded["spec"]["finalizers"].clone();
    let (store, table, key) = (&context.server.store, context.table(), context.key_of(name));
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        if !wanted.is_empty() && stored["metadata"]["resourceVersion"] != *wanted {
            return Err(context.modified(name));
        }
        let mut new = (*stored).clone();
        let held = finalizers
            .as_array()
            .is_some_and(|finalizers| !finalizers.is_empty());
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
        if let Some(spec) = new["spec"].as_object_mut() {
            if held {
                spec.insert("finalizers".to_owned(), finalizers.clone());
            } else {
                spec.remove("finalizers");
            }
        }
        if options.dry_run {
            return Ok(Answer::object(200, Arc::new(new)));
        }
        let expected = resource_version(&stored);
        let free = new["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let result = if !held && free && !stored["metadata"]["deletionTimestamp"].is_null() {
            store.delete(&table, &key, expected).map(|_| {
                hooks::deleted(context, &stored);
                Arc::new(new)
            })
        } else {
            store.update(&table, &key, expected, new)
        };
        match result {
            Ok(object) => return Ok(Answer::object(200, object)),
            Err(StoreError::Missing) => return Err(context.not_found(name)),
            Err(_) => {}
        }
    }
    Err(context.modified(name))
}
