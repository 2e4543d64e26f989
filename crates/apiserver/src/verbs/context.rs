//! One request on its way, and its answer.

use super::rules::Rules;
use crate::kinds::Resource;
use crate::request::body::Syntax;
use crate::request::form::Form;
use crate::request::query::{Query, WriteOptions};
use crate::request::{Attributes, Operation, RequestInfo, UserInfo};
use crate::state::Shared;
use crate::store::{Table, key};
use crate::traffic::RecordedRequest;
use bytes::Bytes;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict::{self, FieldValidation};
use futures::stream::BoxStream;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Times that a write is tried against concurrent writers, where the client does not name the version that it
/// replaces.
pub(super) const ATTEMPTS: usize = 32;

/// One request, read and permitted.
pub(crate) struct Context {
    pub(crate) server: Arc<Shared>,
    pub(crate) info: RequestInfo,
    pub(crate) resource: Arc<Resource>,
    pub(crate) query: Query,
    pub(crate) user: UserInfo,
    pub(crate) body: Bytes,
    /// Media type of the body without parameters; empty without one.
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) form: Form,
    /// Ends streams when the listener stops.
    pub(crate) shutdown: Option<CancellationToken>,
    /// As a test sees the request, where one looks at it.
    pub(crate) recorded: Option<Arc<RecordedRequest>>,
    pub(crate) warnings: Mutex<Vec<String>>,
}

/// What goes back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: Content,
}

/// The content of an answer.
pub(crate) enum Content {
    /// An object of the request's resource: may be shown as a table row or by its metadata alone.
    Object(Arc<Value>),
    /// Objects of the request's resource.
    List(List),
    /// Anything else, as it is.
    Value(Value),
    /// Watch events, each a complete frame.
    Stream(BoxStream<'static, Result<Bytes, std::convert::Infallible>>),
}

/// Objects of the request's resource.
pub(crate) struct List {
    pub(crate) items: Vec<Arc<Value>>,
    /// Absent for an exact state of the past, as upstream leaves it out there.
    pub(crate) resource_version: Option<u64>,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<u64>,
}

impl Answer {
    pub(crate) fn object(status: u16, object: Arc<Value>) -> Self {
        Self {
            status,
            content: Content::Object(object),
        }
    }

    pub(crate) fn value(status: u16, value: Value) -> Self {
        Self {
            status,
            content: Content::Value(value),
        }
    }

    /// `Status` of a success that has no object to show.
    pub(crate) fn created() -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        });
        Self::value(201, status)
    }
}

impl Context {
    /// Passes a write to a subresource through admission: what plugins and webhooks change, refuse and warn
    /// of.
    pub(crate) async fn admit(&self, attributes: &mut Attributes) -> ApiResult<()> {
        let admission = &self.server.access.admission;
        self.warn(admission.mutate(attributes, self.reader(), &|_| {}).await?);
        self.warn(admission.validate(attributes, self.reader()).await?);
        Ok(())
    }

    /// The body as an object of the resource's kind. What is wrong in it is refused or warned of by `mode`.
    pub(crate) fn read_body(&self, mode: FieldValidation) -> ApiResult<Value> {
        self.decoded(&self.rules()?, mode)
    }

    /// The body as an object of another built-in kind.
    pub(crate) fn read_body_as(&self, gvk: &Gvk, mode: FieldValidation) -> ApiResult<Value> {
        let (served, stored) = (gvk.clone(), gvk.clone());
        self.decoded(&Rules::Builtin { served, stored }, mode)
    }

    fn decoded(&self, rules: &Rules<'_>, mode: FieldValidation) -> ApiResult<Value> {
        let decoded = rules.decode(&self.body, Syntax::of(&self.content_type)?, mode)?;
        self.warn(decoded.warnings);
        strict::version_is(rules.served(), &decoded.object)?;
        Ok(decoded.object)
    }

    /// Adds lines for `Warning` headers; one that is there already is not repeated.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        let mut all = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
    }

    /// The warnings so far.
    pub(crate) fn all_warnings(&self) -> Vec<String> {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The rules of the resource's kind.
    pub(crate) fn rules(&self) -> ApiResult<Rules<'_>> {
        Rules::of(&self.resource)
    }

    /// Where the objects are.
    pub(crate) fn table(&self) -> Table {
        Table::new(&self.resource.stored_group, &self.resource.gvr.resource)
    }

    /// Namespace of the objects; empty for cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        if self.resource.namespaced {
            &self.info.namespace
        } else {
            ""
        }
    }

    /// Key of an object of the request's namespace.
    pub(crate) fn key_of(&self, name: &str) -> String {
        key(self.namespace(), name)
    }

    /// Namespace for a list: `None` for all.
    pub(crate) fn list_namespace(&self) -> Option<&str> {
        Some(self.namespace()).filter(|namespace| !namespace.is_empty())
    }

    /// The stored object that the path names, or 404.
    pub(crate) fn stored(&self) -> ApiResult<Arc<Value>> {
        self.server
            .store
            .get(&self.table(), &self.key_of(&self.info.name))
            .ok_or_else(|| self.not_found(&self.info.name))
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.gvr.group, &self.resource.gvr.resource, name)
    }

    pub(crate) fn already_exists(&self, name: &str) -> ApiError {
        ApiError::already_exists(&self.resource.gvr.group, &self.resource.gvr.resource, name)
    }

    pub(crate) fn modified(&self, name: &str) -> ApiError {
        ApiError::modified(&self.resource.gvr.group, &self.resource.gvr.resource, name)
    }

    pub(crate) fn conflict(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.resource.gvr.group, &self.resource.gvr.resource, name, why)
    }

    /// 422 where there are errors; it names the kind that the object says it is.
    pub(crate) fn valid(&self, object: &Value, errors: Vec<FieldError>) -> ApiResult<()> {
        if errors.is_empty() {
            return Ok(());
        }
        let group = &self.resource.stored_group;
        let kind = object["kind"].as_str().unwrap_or(&self.resource.kind);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::invalid(group, kind, name, errors))
    }

    pub(crate) fn reader(&self) -> &dyn crate::request::Reader {
        &self.server.store
    }

    /// What admission is told of a write. `kind` is the kind of the options.
    pub(crate) fn attributes(
        &self,
        operation: Operation,
        name: &str,
        objects: (Option<Value>, Option<Value>),
        options: &WriteOptions,
        kind: &str,
    ) -> Attributes {
        let mut shown = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if options.dry_run {
            shown["dryRun"] = json!(["All"]);
        }
        if kind != "DeleteOptions" {
            if let Some(manager) = self.query.get("fieldManager") {
                shown["fieldManager"] = json!(manager);
            }
            if let Some(mode) = self.query.get("fieldValidation") {
                shown["fieldValidation"] = json!(mode);
            }
        }
        Attributes {
            operation,
            gvk: self.admission_gvk(),
            gvr: self.resource.gvr.clone(),
            subresource: self.info.subresource.clone(),
            namespace: self.info.namespace.clone(),
            name: name.to_owned(),
            user: self.user.clone(),
            object: objects.0,
            old_object: objects.1,
            options: shown,
            dry_run: options.dry_run,
        }
    }

    fn admission_gvk(&self) -> Gvk {
        match self.resource.subresource(&self.info.subresource) {
            Some(sub) if !sub.version.is_empty() => Gvk {
                group: sub.group.clone(),
                version: sub.version.clone(),
                kind: sub.kind.clone(),
            },
            Some(sub) => Gvk {
                kind: sub.kind.clone(),
                ..self.resource.gvk()
            },
            None => self.resource.gvk(),
        }
    }
}
