//! Definitions and the files that they name, as they come.

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde_json::Value;
use sextant_objects::ObjectPath;
use sextant_types::Code;

use crate::{ApiState, json, problem::Problem};

/// Most bytes of a file that a step needs.
const MOST_FILE_BYTES: u64 = 64 << 20;

/// A document in JSON, or in YAML where the request says so.
pub fn document(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Problem> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let document: Value = match kind.is_some_and(|kind| kind.contains("yaml")) {
        false => json::owned(bytes)?,
        true => {
            let invalid = |why: String| {
                Problem::new(Code::InvalidRequest, format!("the body is no YAML: {why}"))
            };
            let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
            serde_saphyr::from_str(text).map_err(|error| invalid(error.to_string()))?
        }
    };
    match document.is_object() {
        true => Ok(document),
        false => Err(Problem::new(
            Code::InvalidRequest,
            "the body must be an object: the definition of a pipeline",
        )),
    }
}

/// Changes a document by another one (RFC 7396).
pub fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *document = change;
        return;
    };
    if !document.is_object() {
        *document = Value::Object(serde_json::Map::new());
    }
    let Value::Object(members) = document else {
        return;
    };
    for (name, value) in change {
        match value {
            Value::Null => {
                members.remove(&name);
            }
            value => merge(members.entry(name).or_insert(Value::Null), value),
        }
    }
}

/// A file of the artefact store that a step names.
pub async fn file(state: &ApiState, path: &str) -> Result<Bytes, Problem> {
    let at = ObjectPath::parse(path)?;
    let invalid = |why: String| Problem::new(Code::InvalidPipeline, format!("file `{path}` {why}"));
    let found = state.objects().stat(&at).await?;
    let found = found.ok_or_else(|| {
        invalid("is not in the artefact store: `PUT /v1/artefacts/{path}` puts it there".to_owned())
    })?;
    if found.size_bytes > MOST_FILE_BYTES {
        return Err(invalid(format!(
            "has {} bytes: a step's file has at most {MOST_FILE_BYTES}",
            found.size_bytes
        )));
    }
    Ok(state.objects().get(&at).await?)
}
