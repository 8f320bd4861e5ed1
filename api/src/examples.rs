//! Examples in the description, of each body that is sent and of each that is returned. They are composed of the
//! examples of the members, so that no body lacks one and none becomes outdated.
//!
//! Only what the schemas do not say is written by hand: which members exclude each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::{OpenApi, RefOr};

use crate::auth::described;

/// Greatest depth of an example: a schema may contain itself.
const DEEPEST: usize = 8;

/// Bodies whose members exclude each other, by operation.
fn by_hand() -> BTreeMap<&'static str, Value> {
    // A row of the digits that `cargo xtask demo` registers, so that the demo answers it.
    let inputs =
        json!([{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": vec![0; 64]}]);
    let query = json!({
        "id": "q-17", "application": "digits", "targets": {"latency_ms": 50, "min_accuracy": 0.9}, "inputs": inputs
    });
    let job = json!({
        "application": "digits", "targets": {"min_accuracy": 0.95}, "input": "in/records.jsonl",
        "output": "out/answers.jsonl"
    });
    let infer = json!({"id": "q-17", "inputs": inputs, "parameters": {"slo_latency_ms": 20}});
    let pipeline = json!({
        "name": "photos",
        "steps": [
            {"name": "decode", "image": {"width": 8, "height": 8, "channels": 1, "layout": "flat"}},
            {"name": "classify", "application": "digits", "inputs": {"pixels": "decode.pixels"}}
        ],
        "outputs": {"probabilities": "classify.probabilities"}
    });
    BTreeMap::from([
        ("pipelines_create", pipeline.clone()),
        ("pipelines_replace", pipeline),
        (
            "pipelines_change",
            json!({"description": "digits on photos"}),
        ),
        ("queries_create", query.clone()),
        ("queries_create_batch", json!({"queries": [query]})),
        ("jobs_create", job),
        (
            "applications_create",
            json!({
                "name": "digits", "metric": "top1", "description": "hand-written digits",
                "default_targets": {"latency_ms": 50, "min_accuracy": 0.9}, "presets": {"fast": {"latency_ms": 5}}
            }),
        ),
        (
            "models_create",
            json!({
                "application": "digits", "name": "mlp", "model": "the bytes of mlp.onnx",
                "validation": "the bytes of validation.npz"
            }),
        ),
        (
            "keys_create",
            json!({"name": "camera-7", "scopes": ["query"], "application": "digits"}),
        ),
        (
            "models_create_from_artefacts",
            json!({
                "name": "mlp", "application": "digits", "model_path": "models/mlp.onnx",
                "validation_path": "models/validation.npz"
            }),
        ),
        ("v2_infer", infer.clone()),
        ("v2_infer_version", infer),
    ])
}

/// Gives an example to every JSON body that has none.
pub(crate) fn describe(openapi: &mut OpenApi) {
    let components = serde_json::to_value(&openapi.components).unwrap_or_default();
    let schemas = Schemas(&components["schemas"]);
    let by_hand = by_hand();
    for item in openapi.paths.paths.values_mut() {
        for operation in described(item) {
            let name = operation.operation_id.as_deref().unwrap_or_default();
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                for (kind, content) in &mut body.content {
                    let RefOr::T(content) = content else {
                        continue;
                    };
                    if content.example.is_some() {
                        continue;
                    }
                    let own = by_hand.get(name).cloned();
                    content.example = match kind.as_str() {
                        "application/json" => own.or_else(|| schemas.of(&content.schema)),
                        "multipart/form-data" => own,
                        _ => None,
                    };
                }
            }
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else {
                    continue;
                };
                for (kind, content) in &mut response.content {
                    let RefOr::T(content) = content else {
                        continue;
                    };
                    let is_answer = status.starts_with('2') && kind == "application/json";
                    if is_answer && content.example.is_none() {
                        content.example = schemas.of(&content.schema);
                    }
                }
            }
        }
    }
}

/// The schemas that others refer to, by name.
struct Schemas<'a>(&'a Value);

// === impl Schemas ===

impl Schemas<'_> {
    fn of(&self, schema: &impl serde::Serialize) -> Option<Value> {
        let schema = serde_json::to_value(schema).ok()?;
        (!schema.is_null()).then(|| self.example(&schema, 0))
    }

    fn example(&self, schema: &Value, depth: usize) -> Value {
        if let Some(given) = given(schema) {
            return given;
        }
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
        {
            return match depth < DEEPEST {
                true => self.example(&self.0[name], depth + 1),
                false => json!({}),
            };
        }
        for list in ["oneOf", "anyOf", "allOf"] {
            let mut choices = schema[list].as_array().into_iter().flatten();
            if let Some(choice) = choices.find(|choice| choice["type"] != "null") {
                return self.example(choice, depth);
            }
        }
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => json!([self.example(&schema["items"], depth + 1)]),
            "integer" => json!(schema["minimum"].as_i64().unwrap_or(1)),
            "number" => json!(schema["minimum"].as_f64().unwrap_or(0.5)),
            "boolean" => json!(true),
            "string" => json!("text"),
            _ => Value::Null,
        }
    }

    /// An object with all members; a map has one.
    fn object(&self, schema: &Value, depth: usize) -> Value {
        let members = schema["properties"].as_object().into_iter().flatten();
        let members: Map<String, Value> = members
            .map(|(name, member)| (name.clone(), self.member(name, member, depth + 1)))
            .collect();
        let values = &schema["additionalProperties"];
        match members.is_empty() && values.is_object() {
            true => json!({"name": self.example(values, depth + 1)}),
            false => Value::Object(members),
        }
    }

    /// The example of a member whose name says more than its schema, or else that of the schema.
    fn member(&self, name: &str, schema: &Value, depth: usize) -> Value {
        if given(schema).is_none() && kind(schema) == "string" {
            let told = match name {
                "application" => "digits",
                "model" => "mlp",
                "variant" | "dominated_by" => "mlp-ort-fp32-all-t1-b32",
                "worker" => "local",
                "job" => "0197a4f2-7c1e-7d63-9a55-3f0f6f4f7a10",
                "digest" | "artefact" | "validation_digest" => {
                    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
                }
                "engine" => "ort",
                "metric" => "top1",
                "precision" => "fp32",
                _ => return self.example(schema, depth),
            };
            return json!(told);
        }
        if name.ends_with("_ms") && kind(schema) == "integer" {
            return json!(1_764_000_000_000_u64);
        }
        self.example(schema, depth)
    }
}

/// The example in the schema itself, or the first of its values.
fn given(schema: &Value) -> Option<Value> {
    let named = schema.get("example").or_else(|| schema.get("default"));
    let first = || schema["enum"].as_array().and_then(|values| values.first());
    named.or_else(first).cloned()
}

/// The type of a schema, or the first of several.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
        _ => "",
    }
}
