//! Services that answer queries of texts, their largest bodies, and the memory that these take.

use serde_json::json;

use crate::{
    Settings, TestCluster, Upload,
    onnx::{Message, node, number_attribute, tensor_value},
};

/// The largest body that is accepted by default.
pub const BODY_BYTES: usize = 16 << 20;

/// Most memory outside of the engine that a body may take, as a multiple of its size.
const MOST_TIMES: usize = 4;

/// A model of texts: `x` are rows of strings, `[N, T]`.
#[derive(Debug, Clone, Copy)]
pub enum Texts {
    /// `y` are the same strings.
    Echo,
    /// `y` is 1 for each row, `[N, 1]`: all strings are equal to themselves.
    Same,
}

impl Texts {
    /// The file.
    pub fn bytes(self) -> Vec<u8> {
        let mut graph = Message::default();
        let row = [Err("N"), Err("T")];
        graph.message(11, &tensor_value("x", 8, &row));
        match self {
            Self::Echo => {
                graph.message(1, &node("Identity", &["x"], "y"));
                graph.message(12, &tensor_value("y", 8, &row));
            }
            Self::Same => {
                graph.message(1, &node("Equal", &["x", "x"], "same"));
                let mut number = node("Cast", &["same"], "number");
                number.message(5, &number_attribute("to", 1));
                graph.message(1, &number);
                graph.message(1, &node("ReduceMean", &["number", "axis"], "y"));
                graph.message(5, &scalar_list("axis", 1));
                graph.message(12, &tensor_value("y", 1, &[Err("N"), Ok(1)]));
            }
        }
        graph.text(2, "texts");
        let mut model = Message::default();
        model.number(1, 9).message(7, &graph);
        model.message(8, Message::default().number(2, 19));
        model.0
    }
}

/// One whole number in a list.
fn scalar_list(name: &str, value: i64) -> Message {
    let mut list = Message::default();
    list.number(1, 1).number(2, 7).text(8, name);
    list.bytes(9, &value.to_le_bytes());
    list
}

/// A service with a loaded model of texts, which has the name of its application.
pub async fn service(set: &[&str], name: &str, model: Texts) -> TestCluster {
    let cluster = TestCluster::start(Settings {
        set: set.iter().map(ToString::to_string).collect(),
        ..Settings::default()
    });
    let api = cluster.api();
    let metric = match model {
        Texts::Echo => "exact",
        Texts::Same => "mae",
    };
    let body = json!({"name": name, "metric": metric});
    api.post("/v1/applications", &body).await.created();
    let record = |text: &str| {
        let label = match model {
            Texts::Echo => json!([text, ""]),
            Texts::Same => json!(1.0),
        };
        json!({"inputs": {"x": [text, ""]}, "label": label}).to_string()
    };
    let job = api
        .register(Upload {
            application: name,
            name,
            model: model.bytes(),
            validation: ["a", "b", "c", "d"].map(record).join("\n").into_bytes(),
            validation_name: "validation.jsonl",
        })
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let query = json!({"application": name, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": ["a", ""]},
    ]});
    api.post("/v1/queries", &query).await.json(200);
    cluster
}

/// A service whose engine holds nothing: the measured memory is that of the rest.
pub async fn without_engine() -> TestCluster {
    let set = ["worker.devices=emulated:1", "variants.engines=emulated"];
    service(&set, "texts", Texts::Same).await
}

/// A query for `/v1/queries` with as many empty strings as fit into a body of this size.
pub fn empty_strings(application: &str, body_bytes: usize) -> Vec<u8> {
    let count = body_bytes / 3 - 100;
    let texts = "\"\",".repeat(count - 1);
    let body = format!(
        r#"{{"application":"{application}","inputs":[{{"name":"x","shape":[1,{count}],"datatype":"BYTES","data":[{texts}""]}}]}}"#
    );
    body.into_bytes()
}

/// Asserts that `asks` takes no more memory than four times a body of this size.
pub async fn within<T>(
    cluster: &TestCluster,
    body_bytes: usize,
    asks: impl Future<Output = T>,
) -> T {
    let before = cluster.resident_bytes();
    cluster.forget_peak();
    let answer = asks.await;
    let taken = cluster.peak_bytes().saturating_sub(before);
    let most = (MOST_TIMES * body_bytes) as u64;
    assert!(taken <= most, "`{taken}` bytes of `{most}`");
    answer
}
