//! The v2 document in protobuf, as kubectl reads it (`openapi.v2.Document` of gnostic): the members that
//! Kubernetes' documents have. Numbers in this file are field numbers of that schema.

use serde_json::{Map, Value};

/// Encodes a v2 document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (name, item) in members(&document["paths"]) {
            paths.named(2, name, |path| path_item(path, item));
        }
    });
    out.message(9, |definitions| {
        for (name, definition) in members(&document["definitions"]) {
            definitions.named(1, name, |out| schema(out, definition));
        }
    });
    out.0
}

fn path_item(out: &mut Message, item: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if item[method].is_object() {
            out.message(number, |out| operation(out, &item[method]));
        }
    }
    parameters(out, 9, &item["parameters"]);
}

fn operation(out: &mut Message, operation: &Value) {
    out.texts(1, &operation["tags"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    parameters(out, 8, &operation["parameters"]);
    out.message(9, |responses| {
        for (code, response) in members(&operation["responses"]) {
            // NamedResponseValue, ResponseValue, Response, SchemaItem
            responses.named(1, code, |value| {
                value.message(1, |out| {
                    out.text(1, &response["description"]);
                    if response["schema"].is_object() {
                        out.message(2, |item| item.message(1, |out| schema(out, &response["schema"])));
                    }
                });
            });
        }
    });
    out.texts(10, &operation["schemes"]);
    extensions(out, 13, operation);
}

fn parameters(out: &mut Message, number: u32, parameters: &Value) {
    for parameter in parameters.as_array().into_iter().flatten() {
        out.message(number, |item| {
            item.message(1, |out| one_parameter(out, parameter));
        });
    }
}

fn one_parameter(out: &mut Message, parameter: &Value) {
    let (name, place, required) = (
        &parameter["name"],
        &parameter["in"],
        parameter["required"] == true,
    );
    match place.as_str() {
        Some("body") => out.message(1, |body| {
            body.text(2, name);
            body.text(3, place);
            body.flag(4, required);
            body.message(5, |out| schema(out, &parameter["schema"]));
        }),
        Some("path") => out.message(2, |other| {
            other.message(4, |path| {
                path.flag(1, required);
                path.text(2, place);
                path.text(4, name);
                path.text(5, &parameter["type"]);
                path.flag(19, parameter["uniqueItems"] == true);
            });
        }),
        _ => out.message(2, |other| {
            other.message(3, |query| {
                query.flag(1, required);
                query.text(2, place);
                query.text(4, name);
                query.text(6, &parameter["type"]);
                query.flag(20, parameter["uniqueItems"] == true);
            });
        }),
    }
}

fn schema(out: &mut Message, value: &Value) {
    out.text(1, &value["$ref"]);
    out.text(2, &value["format"]);
    out.text(3, &value["title"]);
    out.text(4, &value["description"]);
    if let Some(default) = value.get("default") {
        out.message(5, |any| any.bytes(2, default.to_string().as_bytes()));
    }
    for (number, key) in [(7, "maximum"), (9, "minimum")] {
        if let Some(bound) = value[key].as_f64() {
            out.double(number, bound);
        }
    }
    out.flag(8, value["exclusiveMaximum"] == true);
    out.flag(10, value["exclusiveMinimum"] == true);
    for (number, key) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        if let Some(bound) = value[key].as_u64() {
            out.varint(number, bound);
        }
    }
    out.text(13, &value["pattern"]);
    out.flag(16, value["uniqueItems"] == true);
    out.texts(19, &value["required"]);
    for item in value["enum"].as_array().into_iter().flatten() {
        out.message(20, |any| any.bytes(2, item.to_string().as_bytes()));
    }
    match &value["additionalProperties"] {
        Value::Bool(allowed) => out.message(21, |item| item.flag(2, *allowed)),
        Value::Object(_) => out.message(21, |item| {
            item.message(1, |out| schema(out, &value["additionalProperties"]));
        }),
        _ => {}
    }
    if value["type"].is_string() {
        out.message(22, |ty| ty.text(1, &value["type"]));
    }
    if value["items"].is_object() {
        out.message(23, |items| items.message(1, |out| schema(out, &value["items"])));
    }
    for part in value["allOf"].as_array().into_iter().flatten() {
        out.message(24, |out| schema(out, part));
    }
    if value["properties"].is_object() {
        out.message(25, |properties| {
            for (name, property) in members(&value["properties"]) {
                properties.named(1, name, |out| schema(out, property));
            }
        });
    }
    extensions(out, 31, value);
}

/// `x-...` members; their values travel as YAML, of which JSON is a part.
fn extensions(out: &mut Message, number: u32, value: &Value) {
    for (name, extension) in members(value) {
        if name.starts_with("x-") {
            out.named(number, name, |any| any.bytes(2, extension.to_string().as_bytes()));
        }
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, number: u32, wire_type: u32) {
        self.raw_varint(u64::from(number << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, number: u32, value: u64) {
        self.key(number, 0);
        self.raw_varint(value);
    }

    fn flag(&mut self, number: u32, value: bool) {
        if value {
            self.varint(number, 1);
        }
    }

    fn double(&mut self, number: u32, value: f64) {
        self.key(number, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, number: u32, text: &Value) {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, texts: &Value) {
        for text in texts.as_array().into_iter().flatten() {
            self.text(number, text);
        }
    }

    fn message(&mut self, number: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    /// A map's entry: name and value.
    fn named(&mut self, number: u32, name: &str, fill: impl FnOnce(&mut Self)) {
        self.message(number, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, fill);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_bytes_are_those_of_the_wire_format() {
        let small = json!({"swagger": "2.0", "info": {"title": "K"}, "definitions": {"A": {"type": "string", "minLength": 300}}});
        let expected: Vec<u8> = [
            &[0x0a, 3][..],
            b"2.0",
            &[0x12, 3, 0x0a, 1],
            b"K",
            &[0x42, 0],
            // definitions (9) > entry (1): name "A", value: minLength (12) = 300, type (22) > "string"
            &[0x4a, 21, 0x0a, 19, 0x0a, 1],
            b"A",
            &[0x12, 14, 0x60, 0xac, 0x02, 0xb2, 0x01, 8, 0x0a, 6],
            b"string",
        ]
        .concat();
        assert_eq!(document(&small), expected);
    }

    #[test]
    fn extensions_travel_as_yaml() {
        let mut out = Message::default();
        extensions(&mut out, 31, &json!({"x-a": {"b": 1}, "type": "object"}));
        let text = String::from_utf8_lossy(&out.0).into_owned();
        assert!(
            text.contains("x-a") && text.contains("{\"b\":1}") && !text.contains("object"),
            "{text}"
        );
    }
}
