//! The description as a contract: complete, and never broken by accident.
//!
//! `openapi/baseline.json` is the description that clients were last promised. What works by it must go on working:
//! an operation or a member of an answer that goes, a member of a request that becomes required, and a type that
//! changes are found here. With a release that may break clients the file is replaced by the description of that day.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];

fn current() -> Value {
    serde_json::to_value(sextant_api::openapi()).expect("serialises")
}

fn baseline() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/baseline.json");
    let text = std::fs::read_to_string(path).expect("openapi/baseline.json exists");
    serde_json::from_str(&text).expect("JSON")
}

/// Every operation as `GET /path`, with its description.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let each = paths.flat_map(|(path, item)| {
        METHODS.iter().filter_map(move |method| {
            let name = format!("{} {path}", method.to_uppercase());
            item.get(method).map(|operation| (name, operation))
        })
    });
    each.collect()
}

/// The schema itself where one is only named.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => {
            let found = document.pointer(path.trim_start_matches('#'));
            found.unwrap_or_else(|| panic!("{path} leads nowhere"))
        }
        None => schema,
    }
}

/// The types of a schema, `null` left out; those of choices together.
fn types(document: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = resolved(document, schema);
    let mut found: BTreeSet<String> = match &schema["type"] {
        Value::String(kind) => BTreeSet::from([kind.clone()]),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => BTreeSet::new(),
    };
    for list in ["oneOf", "anyOf", "allOf"] {
        for choice in schema[list].as_array().into_iter().flatten() {
            found.extend(types(document, choice));
        }
    }
    found.remove("null");
    found
}

/// Whose side of the contract a body is on.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Asked,
    Answered,
}

/// Two descriptions, and what of the older one the newer one breaks.
struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    seen: BTreeSet<(String, String)>,
    broken: Vec<String>,
}

impl Comparison<'_> {
    fn run(mut self) -> Vec<String> {
        let (old, new) = (self.old, self.new);
        let now = operations(new);
        for (name, before) in operations(old) {
            let Some((_, after)) = now.iter().find(|(other, _)| *other == name) else {
                self.broken.push(format!("{name} is gone"));
                continue;
            };
            self.operation(&name, before, after);
        }
        self.broken
    }

    fn operation(&mut self, name: &str, before: &Value, after: &Value) {
        self.parameters(name, before, after);
        let required = |of: &Value| of["requestBody"]["required"] == json!(true);
        if required(after) && !required(before) {
            self.broken.push(format!("{name} needs a body now"));
        }
        for (kind, content) in before["requestBody"]["content"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let place = format!("{name}: the body ({kind})");
            match after["requestBody"]["content"].get(kind) {
                Some(now) => self.schemas(&place, &content["schema"], &now["schema"], Side::Asked),
                None => self.broken.push(format!("{place} is not taken any more")),
            }
        }
        for (status, response) in before["responses"].as_object().into_iter().flatten() {
            let Some(now) = after["responses"].get(status) else {
                if status.starts_with('2') {
                    self.broken
                        .push(format!("{name} answers no {status} any more"));
                }
                continue;
            };
            for (kind, content) in response["content"].as_object().into_iter().flatten() {
                let place = format!("{name}: {status} ({kind})");
                match now["content"].get(kind) {
                    Some(now) => {
                        self.schemas(&place, &content["schema"], &now["schema"], Side::Answered);
                    }
                    None => self.broken.push(format!("{place} is not sent any more")),
                }
            }
        }
    }

    fn parameters(&mut self, name: &str, before: &Value, after: &Value) {
        let list = |of: &Value| of["parameters"].as_array().cloned().unwrap_or_default();
        let (before, after) = (list(before), list(after));
        let same = |a: &Value, b: &Value| a["name"] == b["name"] && a["in"] == b["in"];
        for parameter in &before {
            match after.iter().find(|other| same(parameter, other)) {
                None => self
                    .broken
                    .push(format!("{name} takes no {} any more", parameter["name"])),
                Some(now) => {
                    let place = format!("{name}: parameter {}", parameter["name"]);
                    self.schemas(&place, &parameter["schema"], &now["schema"], Side::Asked);
                }
            }
        }
        for parameter in after.iter().filter(|of| of["required"] == json!(true)) {
            let was = before.iter().find(|other| same(parameter, other));
            if !was.is_some_and(|was| was["required"] == json!(true)) {
                self.broken
                    .push(format!("{name} needs {} now", parameter["name"]));
            }
        }
    }

    fn schemas(&mut self, place: &str, before: &Value, after: &Value, side: Side) {
        let named = |of: &Value| of["$ref"].as_str().map(str::to_owned);
        if let (Some(old), Some(new)) = (named(before), named(after)) {
            let side = if side == Side::Asked {
                "asked"
            } else {
                "answered"
            };
            if !self.seen.insert((format!("{side} {old}"), new)) {
                return;
            }
        }
        let (was, is) = (types(self.old, before), types(self.new, after));
        // A request may be taken in more forms, an answer may come in fewer.
        let fits = match side {
            Side::Asked => is.is_superset(&was) || is.is_empty(),
            Side::Answered => was.is_superset(&is) || was.is_empty(),
        };
        if !fits {
            self.broken
                .push(format!("{place} was {was:?} and is {is:?}"));
            return;
        }
        let before = self.plain(self.old, before);
        let after = self.plain(self.new, after);
        self.members(place, before, after, side);
        if before["items"].is_object() && after["items"].is_object() {
            let place = format!("{place}[]");
            self.schemas(&place, &before["items"], &after["items"], side);
        }
    }

    /// The one schema of a choice between it and `null`.
    fn plain<'b>(&self, document: &'b Value, schema: &'b Value) -> &'b Value {
        let schema = resolved(document, schema);
        let choices = schema["oneOf"].as_array().into_iter().flatten();
        let some: Vec<&Value> = choices.filter(|one| one["type"] != "null").collect();
        match some[..] {
            [one] => resolved(document, one),
            _ => schema,
        }
    }

    fn members(&mut self, place: &str, before: &Value, after: &Value, side: Side) {
        let required = |of: &Value, name: &str| {
            let mut names = of["required"].as_array().into_iter().flatten();
            names.any(|one| one == name)
        };
        for (name, was) in before["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            let Some(now) = after["properties"].get(name) else {
                self.broken.push(format!("{place} is gone"));
                continue;
            };
            if side == Side::Answered && required(before, name) && !required(after, name) {
                self.broken.push(format!("{place} may be missing now"));
            }
            self.schemas(&place, was, now, side);
        }
        for name in after["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if side == Side::Asked && required(after, name) && !required(before, name) {
                self.broken.push(format!("{place}.{name} is required now"));
            }
        }
    }
}

fn broken(old: &Value, new: &Value) -> Vec<String> {
    let comparison = Comparison {
        old,
        new,
        seen: BTreeSet::new(),
        broken: Vec::new(),
    };
    comparison.run()
}

#[test]
fn what_clients_were_promised_still_holds() {
    let broken = broken(&baseline(), &current());
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_comparison_finds_what_breaks_clients() {
    let old = json!({"paths": {"/things": {"post": {
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
        "responses": {"200": {"content": {"application/json": {"schema": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}}}}}
    }, "get": {"parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}}],
        "responses": {"200": {}}}}},
    "components": {"schemas": {"New": {"type": "object", "properties": {"name": {"type": "string"}}}}}});
    assert!(broken(&old, &old).is_empty());
    let post = "/paths/~1things/post";
    let answer = format!("{post}/responses/200/content/application~1json/schema");
    for (pointer, value, wanted) in [
        (
            "/paths/~1things".to_owned(),
            json!({"post": old["paths"]["/things"]["post"]}),
            "GET /things is gone",
        ),
        (
            format!("{answer}/properties"),
            json!({"name": {"type": "string"}}),
            "size is gone",
        ),
        (
            format!("{answer}/properties/size"),
            json!({"type": "string"}),
            "size was",
        ),
        (
            format!("{answer}/required"),
            json!([]),
            "name may be missing now",
        ),
        (
            "/components/schemas/New".to_owned(),
            json!({"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}}}),
            "name is required now",
        ),
        (
            "/components/schemas/New".to_owned(),
            json!({"type": "object"}),
            "name is gone",
        ),
        (
            format!("{post}/requestBody"),
            json!({"required": true, "content": {}}),
            "needs a body now",
        ),
        (
            "/paths/~1things/get/parameters".to_owned(),
            json!([]),
            "takes no \"limit\" any more",
        ),
        (
            "/paths/~1things/get/parameters/0".to_owned(),
            json!({"name": "limit", "in": "query",
            "required": true, "schema": {"type": "integer"}}),
            "needs \"limit\" now",
        ),
        (
            format!("{post}/responses"),
            json!({}),
            "answers no 200 any more",
        ),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(&pointer)
            .unwrap_or_else(|| panic!("{pointer}")) = value;
        let found = broken(&old, &new);
        assert!(
            found.iter().any(|one| one.contains(wanted)),
            "{wanted}: {found:?}"
        );
    }
}

/// What a tool needs to make a good client of it, and a reader to try it.
#[test]
fn every_operation_is_complete() {
    let document = current();
    let mut lacks = Vec::new();
    for (name, operation) in operations(&document) {
        let mut need = |holds: bool, what: &str| {
            if !holds {
                lacks.push(format!("{name}: {what}"));
            }
        };
        need(operation["operationId"].is_string(), "no name");
        need(
            operation["tags"]
                .as_array()
                .is_some_and(|tags| tags.len() == 1),
            "not one tag",
        );
        let summary = operation["summary"]
            .as_str()
            .or(operation["description"].as_str());
        need(summary.is_some_and(|text| text.len() > 3), "no description");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let said = parameter["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty());
            need(
                said,
                &format!("parameter {} is not described", parameter["name"]),
            );
            need(
                parameter["schema"].is_object(),
                &format!("parameter {} has no type", parameter["name"]),
            );
        }
        let mut bodies: Vec<(String, &Value)> = Vec::new();
        let asked = operation["requestBody"]["content"].as_object();
        bodies.extend(
            asked
                .into_iter()
                .flatten()
                .map(|(kind, body)| (kind.clone(), body)),
        );
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            need(
                response["description"].is_string(),
                &format!("{status} is not described"),
            );
            if status.starts_with('2') {
                let content = response["content"].as_object();
                bodies.extend(
                    content
                        .into_iter()
                        .flatten()
                        .map(|(kind, body)| (kind.clone(), body)),
                );
            }
        }
        for (kind, body) in bodies {
            let schema = resolved(&document, &body["schema"]);
            let is_typed = !types(&document, schema).is_empty();
            let is_bare = schema["type"] == "object"
                && schema.get("properties").is_none()
                && schema.get("additionalProperties").is_none();
            need(is_typed && !is_bare, &format!("{kind} has no type"));
            if kind == "application/json" {
                need(
                    body.get("example").is_some(),
                    &format!("{kind} has no example"),
                );
            }
        }
    }
    assert!(lacks.is_empty(), "{lacks:#?}");
}

#[test]
fn examples_are_what_their_schemas_say() {
    let document = current();
    for (name, operation) in operations(&document) {
        let body = &operation["requestBody"]["content"]["application/json"];
        let Some(example) = body.get("example") else {
            continue;
        };
        let schema = resolved(&document, &body["schema"]);
        let Some(members) = schema["properties"].as_object() else {
            continue;
        };
        for member in example.as_object().expect("an object").keys() {
            assert!(
                members.contains_key(member),
                "{name}: `{member}` is no member"
            );
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            let required = required.as_str().expect("a name");
            assert!(
                example.get(required).is_some(),
                "{name}: `{required}` is missing"
            );
        }
    }
}

#[test]
fn a_reader_finds_queries_first() {
    let document = current();
    let tags = document["tags"].as_array().expect("tags");
    assert_eq!(tags[0]["name"], "queries");
    let named: BTreeSet<&str> = tags.iter().filter_map(|tag| tag["name"].as_str()).collect();
    for (name, operation) in operations(&document) {
        let tag = operation["tags"][0].as_str().expect("a tag");
        assert!(named.contains(tag), "{name}: `{tag}` is not described");
    }
}
