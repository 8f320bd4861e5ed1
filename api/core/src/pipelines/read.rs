//! Reads definitions and the files that they name.

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde_json::Value;
use sextant_objects::ObjectPath;
use sextant_registry::Pipeline;
use sextant_types::{Code, Digest};

use super::whole::SET;
use crate::{ApiState, auth::Caller, json, problem::Problem};

/// Most bytes of a file that a step needs.
const MOST_FILE_BYTES: u64 = 64 << 20;

/// A document in JSON, or in YAML if the request says so.
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

/// The files of the artefact store that a definition may name: all files, unless the caller's key is bound to an
/// application. Artefacts belong to no application, so a bound key may name only the files that its pipeline has
/// already, and reads them as the pipeline keeps them.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// The caller that sends the definition.
    pub caller: &'a Caller,
    /// The pipeline that it changes.
    pub known: Option<&'a Pipeline>,
}

impl Files<'_> {
    /// A file that a step names.
    pub async fn of_step(&self, state: &ApiState, path: &str) -> Result<Bytes, Problem> {
        let kept = self.known.and_then(|known| known.files.get(path));
        self.read(state, path, kept).await
    }

    /// The file of the validation set.
    pub async fn of_set(&self, state: &ApiState, path: &str) -> Result<Bytes, Problem> {
        let known = self.known.filter(|known| {
            let before = known.definition.pointer("/validation/file");
            before.and_then(Value::as_str) == Some(path)
        });
        let kept = known.and_then(|known| known.files.get(SET));
        self.read(state, path, kept).await
    }

    async fn read(
        &self,
        state: &ApiState,
        path: &str,
        kept: Option<&Digest>,
    ) -> Result<Bytes, Problem> {
        let at = ObjectPath::parse(path)?;
        let Some(own) = self.caller.application() else {
            return file(state, &at).await;
        };
        let Some(kept) = kept else {
            let detail = format!(
                "the key is bound to application `{own}`, and file `{path}` of the artefact store belongs to none: \
                 somebody whose key is not bound has to name it in the pipeline first"
            );
            return Err(Problem::new(Code::Forbidden, detail));
        };
        Ok(state.objects().get_blob(kept).await?)
    }
}

/// The present content of a file in the artefact store.
async fn file(state: &ApiState, path: &ObjectPath) -> Result<Bytes, Problem> {
    let invalid = |why: String| Problem::new(Code::InvalidPipeline, format!("file `{path}` {why}"));
    let found = state.objects().stat(path).await?;
    let found = found.ok_or_else(|| {
        invalid("is not in the artefact store: `PUT /v1/artefacts/{path}` puts it there".to_owned())
    })?;
    if found.size_bytes > MOST_FILE_BYTES {
        return Err(invalid(format!(
            "has {} bytes: a step's file has at most {MOST_FILE_BYTES}",
            found.size_bytes
        )));
    }
    Ok(state.objects().get(path).await?)
}
