//! Requests, made before any of them is sent.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value, json};
use sextant_formats::json::values;
use sextant_types::{Data, NamedTensor};

/// The header that tells where JSON ends and tensors begin.
pub(crate) const JSON_BYTES: HeaderName =
    HeaderName::from_static("inference-header-content-length");

/// The body of a request with what describes it.
#[derive(Debug, Clone)]
pub struct Message {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What queries of one application have in common.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// All members of a query but its inputs.
    pub members: Map<String, Value>,
    /// Whether tensors, those of answers included, lie as bytes behind the JSON.
    pub binary: bool,
}

// === impl Message ===

impl Message {
    /// A body of JSON, sent as it is.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::of("application/json", body.into())
    }

    fn of(content_type: &'static str, body: Bytes) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type)]);
        Self { headers, body }
    }
}

// === impl Question ===

impl Question {
    /// The query with these inputs.
    pub fn message(&self, inputs: &[NamedTensor]) -> Message {
        let mut members = self.members.clone();
        if !self.binary {
            let inputs = inputs.iter().map(in_json).collect();
            members.insert("inputs".to_owned(), Value::Array(inputs));
            return Message::json(Value::Object(members).to_string());
        }
        let tensors: Vec<Vec<u8>> = inputs.iter().map(bytes).collect();
        let described = inputs.iter().zip(&tensors);
        let described = described.map(|(input, bytes)| {
            json!({
                "name": input.name, "shape": input.tensor.shape(), "datatype": input.tensor.data_type().name(),
                "parameters": {"binary_data_size": bytes.len()},
            })
        });
        members.insert("inputs".to_owned(), described.collect());
        members.insert("binary_outputs".to_owned(), json!(true));
        let mut body = Value::Object(members).to_string().into_bytes();
        let json_bytes = body.len();
        body.extend(tensors.into_iter().flatten());
        let mut message = Message::of("application/octet-stream", body.into());
        message.headers.insert(JSON_BYTES, json_bytes.into());
        message
    }
}

fn in_json(input: &NamedTensor) -> Value {
    json!({
        "name": input.name, "shape": input.tensor.shape(), "datatype": input.tensor.data_type().name(),
        "data": values(&input.tensor),
    })
}

/// Elements as they lie behind the JSON: strings have their lengths before them, four bytes each.
fn bytes(input: &NamedTensor) -> Vec<u8> {
    match input.tensor.data() {
        Data::Plain(bytes) => bytes.to_vec(),
        Data::Strings(strings) => {
            let one = |text: &[u8]| [&(text.len() as u32).to_le_bytes()[..], text].concat();
            strings.iter().flat_map(one).collect()
        }
    }
}
