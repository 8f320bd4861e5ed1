//! The JSON Schema of definitions in the form of OpenAPI: its parts are components, in one name space.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

/// A definition to register.
pub struct DefinitionBody;

/// Keys of a definition to change.
pub struct DefinitionChangeBody;

/// The prefix of the names of the schema's parts among the components.
const PREFIX: &str = "Pipeline";

/// The schema of the whole, with references to components, and the components.
fn parts() -> (Value, Vec<(String, Value)>) {
    let mut whole = portable(sextant_pipeline::schema());
    let members = whole.as_object_mut();
    let parts = members.and_then(|members| {
        members.remove("$schema");
        members.remove("title");
        members.remove("$defs")
    });
    let parts = match parts {
        Some(Value::Object(parts)) => parts,
        _ => Map::new(),
    };
    let named = parts
        .into_iter()
        .map(|(name, part)| (format!("{PREFIX}{name}"), part));
    (whole, named.collect())
}

/// The schema in the form that OpenAPI's tools know: references to components instead of definitions, and an
/// enumeration of words instead of one schema for each word.
fn portable(schema: Value) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(portable).collect(),
        Value::Object(members) => {
            if let Some(words) = members.get("oneOf").and_then(words) {
                let mut plain = json!({"type": "string", "enum": words});
                if let (Some(text), Some(plain)) =
                    (members.get("description"), plain.as_object_mut())
                {
                    plain.insert("description".to_owned(), text.clone());
                }
                return plain;
            }
            let members = members
                .into_iter()
                .map(|(key, value)| match (key.as_str(), &value) {
                    ("$ref", Value::String(to)) => {
                        let name = to.rsplit('/').next().unwrap_or_default();
                        (
                            key,
                            Value::String(format!("#/components/schemas/{PREFIX}{name}")),
                        )
                    }
                    _ => (key, portable(value)),
                });
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// The words of a list of alternatives, if every alternative is a word.
fn words(alternatives: &Value) -> Option<Vec<&Value>> {
    let alternatives = alternatives.as_array()?.iter();
    alternatives.map(|it| it.get("const")).collect()
}

fn read(schema: Value) -> RefOr<Schema> {
    // The schema is part of the program: a test reads the description that is made of it.
    serde_json::from_value(schema).unwrap_or_else(|_| RefOr::T(Schema::default()))
}

fn components() -> impl Iterator<Item = (String, RefOr<Schema>)> {
    parts().1.into_iter().map(|(name, part)| (name, read(part)))
}

impl PartialSchema for DefinitionBody {
    fn schema() -> RefOr<Schema> {
        read(parts().0)
    }
}

impl ToSchema for DefinitionBody {
    fn name() -> Cow<'static, str> {
        "PipelineDefinition".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend(components());
    }
}

impl PartialSchema for DefinitionChangeBody {
    fn schema() -> RefOr<Schema> {
        let mut whole = parts().0;
        if let Some(members) = whole.as_object_mut() {
            members.remove("required");
        }
        read(whole)
    }
}

impl ToSchema for DefinitionChangeBody {
    fn name() -> Cow<'static, str> {
        "PipelineChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend(components());
    }
}
