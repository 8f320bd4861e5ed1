//! Requests to the service, and the handling of answers.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, multipart::Form};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Stage, pace::Patience};
use crate::{
    Api, Upload,
    chaos::{
        history::Event,
        plan::{Application, LATE},
        worth,
    },
    onnx,
};

/// Longest time on an idle machine until the service is well again after everything has come back.
const HEALED: Duration = Duration::from_secs(60);
/// Longest wait for an answer without another limit.
const PATIENCE: Duration = Duration::from_secs(100);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Records of a validation set.
const VALIDATION: u64 = 8;

/// An answer.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether it is not a refusal.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer as one line of text.
    pub fn say(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// Sends a request to a process.
pub async fn send(
    stage: &Stage,
    name: &str,
    (method, path): (Method, &str),
    body: Option<Vec<u8>>,
) -> Result<Reply, String> {
    let address = stage.address(name).ok_or("it is down")?;
    let request = stage.http.request(method, format!("{address}{path}"));
    let request = request
        .header("content-type", "application/json")
        .timeout(PATIENCE);
    let request = body.into_iter().fold(request, RequestBuilder::body);
    receive(request).await
}

/// Sends the form of a registration to a process.
pub async fn upload(stage: &Stage, name: &str, form: Form) -> Result<Reply, String> {
    let address = stage.address(name).ok_or("it is down")?;
    let request = stage.uploads.post(format!("{address}/v1/models"));
    receive(request.timeout(PATIENCE).multipart(form)).await
}

/// Waits for the answer.
pub async fn receive(request: RequestBuilder) -> Result<Reply, String> {
    let response = request.send().await.map_err(|error| format!("{error:?}"))?;
    let status = response.status().as_u16();
    let body = response
        .bytes()
        .await
        .map_err(|error| format!("{error:?}"))?;
    let body = body.to_vec();
    Ok(Reply { status, body })
}

/// Records that a change was refused.
pub fn refused(stage: &Stage, what: &str, reply: &Reply) {
    stage.history.note(Event::ChangeRefused {
        what: what.to_owned(),
        status: reply.status,
        code: reply.json()["code"].as_str().unwrap_or("").to_owned(),
    });
}

/// The body of a query.
pub fn query(stage: &Stage, application: &Application, number: u64) -> Vec<u8> {
    let targets = match application.latency_ms {
        Some(ms) => json!({"latency_ms": ms}),
        None => json!({}),
    };
    let inputs = crate::digits::input(&json!(worth::inputs(stage.plan.seed, number)));
    json!({"application": application.name, "targets": targets, "inputs": inputs})
        .to_string()
        .into_bytes()
}

/// The numbers of an answer.
pub fn scores(values: &Value) -> Vec<f32> {
    let values = values.as_array().into_iter().flatten();
    values
        .filter_map(|value| Some(value.as_f64()? as f32))
        .collect()
}

/// Registers each application and its model.
pub async fn learn(stage: &Stage) -> Result<(), String> {
    let front_end = &stage.plan.front_ends()[0];
    let api = Api::new(&stage.address(front_end).ok_or("it is down")?);
    let done = |action: &str, subject: &str| {
        stage.history.note(Event::Changed {
            action: action.to_owned(),
            subject: subject.to_owned(),
        });
    };
    for application in &stage.plan.applications {
        let name = &*application.name;
        api.create_application(name).await;
        done("application.create", name);
        let upload = Upload {
            application: name,
            name,
            model: model(application),
            validation: validation(stage.plan.seed),
            validation_name: "validation.jsonl",
        };
        let job = api.register(upload).await;
        if job["state"] != "succeeded" {
            return Err(format!("`{name}` was not registered: {job}"));
        }
        done("model.create", name);
    }
    api.create_application(LATE).await;
    done("application.create", LATE);
    Ok(())
}

/// The file of an application's model.
pub fn model(application: &Application) -> Vec<u8> {
    let stated = |key, ms: u64| (key, ms.to_string());
    let metadata = vec![
        stated("sextant.alpha_ms", application.alpha_ms),
        stated("sextant.beta_ms", application.beta_ms),
        stated("sextant.load_ms", 20),
    ];
    let model = onnx::Model {
        metadata,
        ..onnx::Model::default()
    };
    model.bytes()
}

/// The validation set of every model.
pub fn validation(seed: u64) -> Vec<u8> {
    let line = |number| {
        let pixels = worth::inputs(seed, number);
        format!(
            "{}\n",
            json!({"inputs": {"pixels": pixels}, "label": number % 10})
        )
    };
    let lines: String = (0..VALIDATION).map(line).collect();
    lines.into_bytes()
}

/// Waits until every front end reports that it is ready and has answered every application.
pub async fn ready(stage: &Stage, is_part: bool) -> Result<(), String> {
    for name in stage.plan.front_ends() {
        let process = name.clone();
        match ready_at(stage, &name).await {
            Ok(()) if is_part => stage.history.note(Event::Ready { process }),
            Ok(()) => {}
            Err(cause) if is_part => stage.history.note(Event::NotReady { process, cause }),
            Err(cause) => return Err(format!("`{name}`: {cause}")),
        }
    }
    Ok(())
}

async fn ready_at(stage: &Stage, name: &str) -> Result<(), String> {
    let mut patience = Patience::new(HEALED);
    while let Err(cause) = look(stage, name).await {
        if patience.is_over(stage) {
            return Err(cause);
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn look(stage: &Stage, name: &str) -> Result<(), String> {
    let reply = send(stage, name, (Method::GET, "/health/ready"), None).await?;
    if !reply.is_success() {
        return Err(reply.say());
    }
    for application in &stage.plan.applications {
        // Among too many queries, a query is answered if its target is like theirs.
        let asks = match application.is_modest {
            true => Application {
                latency_ms: None,
                ..application.clone()
            },
            false => application.clone(),
        };
        let body = query(stage, &asks, 0);
        let reply = send(stage, name, (Method::POST, "/v1/queries"), Some(body)).await?;
        if !reply.is_success() {
            return Err(format!("`{}`: {}", application.name, reply.say()));
        }
    }
    Ok(())
}
