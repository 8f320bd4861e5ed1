//! Applications as streams of queries: the inputs of each, their rate, and when an answer is in
//! time.

use serde_json::{Map, Value, json};
use sextant_bench_client::{Question, Stream, Trace};
use sextant_types::{DataType, Signature, TensorSpec};

use super::{Bench, Client, Error, application::BenchTarget};
use crate::cli::{input::InputSpec, output::rows};

/// Makes streams of what the command line and the service say.
pub struct Asker<'a> {
    bench: &'a Bench,
    client: &'a Client,
    trace: Option<&'a Trace>,
}

impl<'a> Asker<'a> {
    /// Of a command line.
    pub fn new(bench: &'a Bench, client: &'a Client, trace: Option<&'a Trace>) -> Self {
        Self {
            bench,
            client,
            trace,
        }
    }

    /// One for each application: those that are named, or else those of the trace.
    pub async fn streams(&self) -> Result<Vec<Stream>, Error> {
        let mut asked = self.bench.application.clone();
        if asked.is_empty() {
            let named = self.trace.into_iter().flat_map(Trace::applications);
            let named = named.map(|name| name.parse().map_err(Error::Usage));
            asked = named.collect::<Result<_, _>>()?;
        }
        if asked.is_empty() {
            let reason = "the trace names no application: name one with `--application`";
            return Err(Error::Usage(reason.to_owned()));
        }
        let mut streams = Vec::new();
        for asked in &asked {
            streams.push(self.stream(asked).await?);
        }
        Ok(streams)
    }

    async fn stream(&self, asked: &BenchTarget) -> Result<Stream, Error> {
        let name = asked.name.as_str();
        let path = ["v1", "applications", name];
        let application: Value = self.client.get(&path).await?;
        let signature = signature(&application).ok_or_else(|| Error::Answer {
            reason: format!("`{name}` has no model, which would tell its inputs: register one"),
        })?;
        let members = self.members(asked);
        let input = asked.own.input.as_ref();
        let inputs = self.bench.inputs.of(&signature, input, self.bench.seed)?;
        let question = Question {
            binary: self.bench.inputs.binary,
            members,
        };
        let recorded = self.trace.and_then(|trace| trace.arrivals(name));
        Ok(Stream {
            name: name.to_owned(),
            path: "/v1/queries".to_owned(),
            messages: inputs
                .iter()
                .map(|inputs| question.message(inputs))
                .collect(),
            pace: self.bench.pace.of(&asked.own, recorded)?,
            reads_answers: true,
            latency_ms: latency_ms(&question.members, &application),
        })
    }

    /// All of a query but its inputs.
    fn members(&self, asked: &BenchTarget) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("application".to_owned(), json!(asked.name));
        self.bench.targets.fill(&mut members);
        let targets = members.entry("targets").or_insert_with(|| json!({}));
        if let Value::Object(targets) = targets {
            targets.extend(asked.own.targets.clone());
        }
        if let Some(preset) = &asked.own.preset {
            members.insert("preset".to_owned(), json!(preset));
        }
        if self.bench.best_effort {
            members.insert("on_infeasible".to_owned(), json!("best_effort"));
        }
        members
    }
}

/// The signature of an application as the service tells it; `None` before it has a model.
fn signature(application: &Value) -> Option<Signature> {
    let signature = application.get("signature")?;
    let inputs = rows(signature, "/inputs").iter().map(|input| {
        let known: InputSpec = serde_json::from_value(input.clone()).ok()?;
        let dim = |dim: &i64| u64::try_from(*dim).ok();
        Some(TensorSpec {
            data_type: DataType::parse(&known.datatype)?,
            shape: known.shape.iter().map(dim).collect(),
            name: known.name,
        })
    });
    Some(Signature {
        inputs: inputs.collect::<Option<_>>()?,
        outputs: Vec::new(),
        batched: signature.get("batched")?.as_bool()?,
    })
}

/// The latency target of a query: its own, its preset's, or the application's.
fn latency_ms(members: &Map<String, Value>, application: &Value) -> Option<f64> {
    let own = members.get("targets")?.get("latency_ms");
    let preset = members.get("preset").and_then(Value::as_str);
    let preset = preset.and_then(|name| application.get("presets")?.get(name)?.get("latency_ms"));
    let usual = application.pointer("/default_targets/latency_ms");
    own.or(preset).or(usual)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_target_is_the_first_of_query_preset_and_application() {
        let application = json!({
            "default_targets": {"latency_ms": 50.0}, "presets": {"fast": {"latency_ms": 5.0}, "open": {}},
        });
        let latency = |query: Value| match query {
            Value::Object(members) => latency_ms(&members, &application),
            _ => None,
        };
        assert_eq!(
            latency(json!({"targets": {"latency_ms": 7}, "preset": "fast"})),
            Some(7.0)
        );
        assert_eq!(latency(json!({"targets": {}, "preset": "fast"})), Some(5.0));
        assert_eq!(
            latency(json!({"targets": {}, "preset": "open"})),
            Some(50.0)
        );
        assert_eq!(latency(json!({"targets": {}})), Some(50.0));
    }

    #[test]
    fn a_signature_has_open_dimensions() {
        let told = json!({"signature": {"batched": true, "outputs": [], "inputs": [
            {"name": "pixels", "datatype": "FP32", "shape": [-1, 64]},
        ]}});
        let read = signature(&told).expect("a signature");
        assert_eq!(read.inputs[0].shape, [None, Some(64)]);
        assert_eq!(signature(&json!({"name": "digits"})), None);
    }
}
