//! Custom resources: what a CustomResourceDefinition makes of them.
//!
//! A structural schema is parsed once into a `Structural`; pruning, defaulting and validation walk it
//! beside the object.

mod columns;
mod definition;
mod expressions;
mod ownership;
mod structural;
mod validation;

#[cfg(test)]
mod tests;

use crate::apply::types::Type;
use crate::gvk::Gvk;
use crate::schema;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::strict::{self, Decoded, FieldValidation, json::Node};
use crate::table::{Column, Row};
use crate::validate;
use columns::PrinterColumn;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use structural::Structural;

pub use definition::establish;
pub(crate) use definition::{validate_definition, validate_definition_update};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Where `/scale` of a custom resource reads and writes (`.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Where the wanted number stands (`specReplicasPath`).
    pub spec_replicas: String,
    /// Where the present number stands (`statusReplicasPath`).
    pub status_replicas: String,
    /// Where the selector stands, as text (`labelSelectorPath`).
    pub label_selector: Option<String>,
}

/// One served version of a CustomResourceDefinition, ready for use.
#[derive(Clone, Debug)]
pub struct CustomKind {
    /// Group, version and kind of the objects.
    pub gvk: Gvk,
    /// Plural of the resource, as in URLs.
    pub resource: String,
    /// Whether the objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `/status` subresource.
    pub status: bool,
    /// The `/scale` subresource, where there is one.
    pub scale: Option<ScalePaths>,
    /// Paths of the fields that field selectors may name (`selectableFields`).
    pub selectable_fields: Vec<String>,
    schema: Structural,
    /// Of the other versions, by name.
    others: BTreeMap<String, Structural>,
    document: Value,
    expressions: Option<Arc<expressions::Rules>>,
    columns: Vec<PrinterColumn>,
}

impl CustomKind {
    /// What ownership of fields needs to know of the objects.
    pub(crate) fn owned_type(&self) -> Type<'_> {
        Type::Object(&self.schema)
    }

    /// Compiles a version of a valid CRD.
    pub fn compile(crd: &Value, version: &str) -> Result<Self, String> {
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entry = versions
            .iter()
            .find(|entry| entry["name"] == version)
            .ok_or_else(|| format!("the definition has no version {version:?}"))?;
        let document = entry["schema"]["openAPIV3Schema"].clone();
        let parse = |entry: &Value| match &entry["schema"]["openAPIV3Schema"] {
            Value::Null => Ok(Structural::anything()),
            document => Structural::parse(document),
        };
        let others = versions.iter().filter(|other| other["name"] != version);
        // One that does not compile serves nothing, and knows no field.
        let others = others.filter_map(|other| Some((text(&other["name"]), parse(other).ok()?)));
        let scale = &entry["subresources"]["scale"];
        let paths = entry["selectableFields"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        Ok(Self {
            gvk: Gvk {
                group: text(&spec["group"]),
                version: version.to_owned(),
                kind: text(&spec["names"]["kind"]),
            },
            resource: text(&spec["names"]["plural"]),
            namespaced: spec["scope"] == "Namespaced",
            status: entry["subresources"]["status"].is_object(),
            scale: scale.is_object().then(|| ScalePaths {
                spec_replicas: text(&scale["specReplicasPath"]),
                status_replicas: text(&scale["statusReplicasPath"]),
                label_selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            selectable_fields: paths
                .iter()
                .filter_map(|field| field["jsonPath"].as_str())
                .map(str::to_owned)
                .collect(),
            schema: parse(entry)?,
            others: others.collect(),
            expressions: expressions::compile(&document).map(Arc::new),
            document,
            columns: PrinterColumn::of_version(entry),
        })
    }

    /// As [`crate::strict::decode`].
    pub fn decode(&self, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
        let node = strict::parse_body(&self.gvk, body)?;
        self.decode_node(node, body, mode)
    }

    /// As [`crate::strict::decode_yaml`].
    pub fn decode_yaml(&self, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
        let (node, doubled) = strict::parse_yaml(&self.gvk, body)?;
        let decoded = self.decode_node(node, body, mode)?;
        strict::told_of_doubled(&self.gvk, decoded, doubled, mode)
    }

    /// 400: what has no field numbers is in no message.
    pub fn refuse_protobuf(&self) -> ApiError {
        let error = "object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot \
                     be encoded to a protobuf message";
        strict::cannot_handle(&self.gvk, &self.gvk.kind, &self.gvk.version, error)
    }

    /// As [`crate::strict::check`].
    pub fn check(&self, object: Value, mode: FieldValidation) -> Result<Decoded, String> {
        self.typed(Node::from(object), &self.schema, mode)
    }

    fn decode_node(&self, node: Node, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
        let kind = strict::kind_of(&self.gvk, &node, body, mode)?;
        let version = match node.get("apiVersion") {
            Some(Node::Null) => {
                let error = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
                return Err(strict::cannot_handle(&self.gvk, &kind, "", error));
            }
            version => version.and_then(Node::as_str).unwrap_or_default().to_owned(),
        };
        let named = Gvk::of(&version, &kind);
        // Fields of another kind are not looked at. Of a version that the definition has not, none is known.
        let (anything, nothing) = (Structural::anything(), Structural::default());
        let schema = if named.group != self.gvk.group || named.kind != self.gvk.kind {
            &anything
        } else if named.version == self.gvk.version {
            &self.schema
        } else {
            self.others.get(&named.version).unwrap_or(&nothing)
        };
        let decoded = self.typed(node, schema, mode);
        if decoded.is_err() && named.version.is_empty() && mode == FieldValidation::Strict {
            return Err(ApiError::bad_request(strict::no_version()));
        }
        let mut decoded = decoded.map_err(|error| {
            // What is only strict is told of once the body counts as what it says it is.
            let is_strict = error.starts_with("strict decoding error");
            let expected = if is_strict { &named } else { &self.gvk };
            strict::cannot_handle(expected, &kind, &named.version, &error)
        })?;
        decoded.object["apiVersion"] = json!(version);
        Ok(decoded)
    }

    fn typed(&self, node: Node, schema: &Structural, mode: FieldValidation) -> Result<Decoded, String> {
        let Node::Object(members) = &node else {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                node.go_kind()
            ));
        };
        if let Some(number) = node.out_of_range() {
            return Err(format!(
                "json: cannot unmarshal number {number} into Go value of type float64"
            ));
        }
        let mut found = Vec::new();
        structural::duplicates(members, "", &mut found);
        let metadata = node.get("metadata").map(|metadata| match metadata {
            // Go reads it as metadata with nothing in them.
            Node::Null => Node::Object(Vec::new()),
            metadata => metadata.clone(),
        });
        let mut object = node.into_value();
        if let Some(metadata) = metadata {
            object["metadata"] = decode_metadata(metadata, &mut found)?;
        }
        structural::prune(schema, &mut object, &mut found);
        let warnings = strict::strictness(found, mode)?;
        if object["apiVersion"].as_str().is_none_or(str::is_empty) {
            object["apiVersion"] = json!(strict::api_version(&self.gvk));
        }
        if object["kind"].as_str().is_none_or(str::is_empty) {
            object["kind"] = json!(self.gvk.kind);
        }
        Ok(Decoded { object, warnings })
    }

    /// Defaults of the schema.
    pub fn apply_defaults(&self, object: &mut Value) {
        structural::apply_defaults(&self.schema, object);
    }

    /// Takes out nulls that the schema does not allow and that no default replaces.
    pub fn forget_nulls(&self, object: &mut Value) {
        structural::forget_nulls(&self.schema, object);
    }

    /// As [`crate::strategy::prepare_create`].
    pub fn prepare_create(&self, object: &mut Value) {
        if self.status
            && let Some(members) = object.as_object_mut()
        {
            members.remove("status");
        }
        object["metadata"]["generation"] = json!(1);
    }

    /// As [`crate::strategy::prepare_update`]. With a status subresource only changes outside of status and
    /// metadata are a new generation; without one every change outside of metadata is.
    pub fn prepare_update(&self, old: &Value, new: &mut Value) {
        if self.status {
            put_or_remove(new, "status", &old["status"]);
        }
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let changed = without_metadata(old) != without_metadata(new);
        new["metadata"]["generation"] = json!(if changed { generation + 1 } else { generation });
    }

    /// As [`crate::strategy::prepare_status_update`].
    pub fn prepare_status_update(&self, old: &Value, new: &mut Value) {
        let mut kept = old.clone();
        put_or_remove(&mut kept, "status", &new["status"]);
        // Upstream lets managed fields through beside the status; all other metadata stays.
        put_or_remove(
            &mut kept["metadata"],
            "managedFields",
            &new["metadata"]["managedFields"],
        );
        *new = kept;
    }

    /// As [`crate::validate::create`].
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type(object);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(validate::metadata(&self.gvk, object));
        errors.extend(validation::validate(&self.schema, object));
        errors.extend(validation::validate_lists(&self.schema, object));
        self.evaluate(object, None, &mut errors);
        errors
    }

    /// As [`crate::validate::update`].
    pub fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type(new);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(validate::metadata_update(old, new));
        errors.extend(validation::validate(&self.schema, new));
        self.new_in_lists(old, new, &mut errors);
        self.evaluate(new, Some(old), &mut errors);
        errors
    }

    /// As [`crate::validate::status_update`].
    pub fn validate_status_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type(new);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(validation::validate_status(&self.schema, new));
        self.new_in_lists(old, new, &mut errors);
        self.evaluate(new, Some(old), &mut errors);
        errors
    }

    /// What stands twice in lists stays allowed where it was stored before the schema forbade it.
    fn new_in_lists(&self, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
        if validation::validate_lists(&self.schema, old).is_empty() {
            errors.extend(validation::validate_lists(&self.schema, new));
        }
    }

    fn evaluate(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if let Some(compiled) = &self.expressions {
            expressions::add((compiled, &self.document), new, old, errors);
        }
    }

    /// Whether an object says that it is of this kind, in this version.
    pub fn validate_type(&self, object: &Value) -> Vec<FieldError> {
        let wanted = [
            ("kind", self.gvk.kind.clone()),
            ("apiVersion", strict::api_version(&self.gvk)),
        ];
        wanted
            .iter()
            .filter(|(field, wanted)| object[*field] != json!(wanted))
            .map(|(field, wanted)| {
                let found = object[*field].as_str().unwrap_or_default();
                FieldError {
                    reason: "FieldValueInvalid",
                    field: (*field).to_owned(),
                    message: format!("Invalid value: {found:?}: must be {wanted}"),
                }
            })
            .collect()
    }

    /// As [`crate::table::columns`].
    pub fn columns(&self) -> Vec<Column> {
        columns::columns(&self.columns)
    }

    /// As [`crate::table::row`].
    pub fn row(&self, object: &Value, now: Timestamp) -> Row {
        columns::row(&self.columns, object, now)
    }

    /// The version's schema for OpenAPI, with `apiVersion`, `kind`, `metadata` added.
    pub fn openapi(&self) -> Value {
        let mut document = if self.document.is_object() {
            self.document.clone()
        } else {
            json!({"type": "object"})
        };
        document["properties"]["apiVersion"] = json!({"type": "string"});
        document["properties"]["kind"] = json!({"type": "string"});
        document["properties"]["metadata"] = json!({"$ref": format!("#/definitions/{OBJECT_META}")});
        document["x-kubernetes-group-version-kind"] =
            json!([{"group": self.gvk.group, "version": self.gvk.version, "kind": self.gvk.kind}]);
        document
    }
}

/// Metadata passes through the typed struct like that of built-in kinds.
fn decode_metadata(metadata: Node, found: &mut Vec<String>) -> Result<Value, String> {
    let Some(definition) = schema::definition(OBJECT_META) else {
        return Ok(metadata.into_value());
    };
    let (value, strict) = strict::decode_part(definition, metadata)?;
    found.extend(
        strict
            .iter()
            .map(|text| text.replacen(" field \"", " field \"metadata.", 1)),
    );
    Ok(value)
}

fn without_metadata(object: &Value) -> Value {
    let mut rest = object.clone();
    if let Some(members) = rest.as_object_mut() {
        members.remove("metadata");
    }
    rest
}

fn put_or_remove(object: &mut Value, key: &str, value: &Value) {
    if value.is_null() {
        if let Some(members) = object.as_object_mut() {
            members.remove(key);
        }
    } else {
        object[key] = value.clone();
    }
}
