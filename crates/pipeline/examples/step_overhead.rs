//! Measures what a step costs besides its work: chains of steps that do next to nothing, over a dispatcher that answers
//! at once. Prints microseconds a step, the median of several turns.
//!
//! ```sh
//! cargo run --release --package sextant-pipeline --example step_overhead
//! ```

#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use sextant_pipeline::{
    CheckContext, Definition, Graph, LoadedPipeline, Pipelines, Target, UnboundedMemory,
};
use sextant_rpc::{Answer, Dispatch, DispatcherClient, Query, QueryError, Timings};
use sextant_types::{
    ApplicationId, DataType, ModelId, NamedTensor, Route, Signature, Targets, Tensor, TensorSpec,
    VariantId,
};

/// Steps of a chain.
const STEPS: usize = 10;

/// Queries of a turn, and number of turns.
const QUERIES: u32 = 2000;
const TURNS: usize = 9;

/// Answers with its inputs.
struct Echo {
    model: ModelId,
    variant: VariantId,
}

fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(10)],
    };
    Signature {
        inputs: vec![spec("scores")],
        outputs: vec![spec("probabilities")],
        batched: true,
    }
}

#[async_trait]
impl Dispatch for Echo {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        let outputs = query.inputs.into_iter();
        let outputs = outputs.map(|it| NamedTensor::new("probabilities", it.tensor));
        Ok(Answer {
            variant: self.variant.clone(),
            model: self.model.clone(),
            outputs: outputs.collect(),
            rows: 1,
            timings: Timings::default(),
            targets_met: true,
            cost_usd: 0.0,
            explanation: None,
        })
    }

    fn signature(&self, _: &Route) -> Result<Signature, QueryError> {
        Ok(signature())
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, _: &Route) -> bool {
        true
    }
}

/// A chain of steps of one kind.
fn chain(step: &Value) -> Value {
    let steps = (0..STEPS).map(|at| {
        let mut step = step.clone();
        step["name"] = json!(format!("s{at}"));
        if at > 0 {
            step["inputs"] = json!({"scores": format!("s{}.probabilities", at - 1)});
        }
        step
    });
    json!({"name": "chain", "steps": steps.collect::<Vec<_>>()})
}

fn pipelines(definition: Value) -> Result<Arc<Pipelines>, Box<dyn std::error::Error>> {
    let definition: Definition = serde_json::from_value(definition)?;
    let targets = |_: &Route| {
        Ok(Target {
            signature: signature(),
            metric: None,
            defaults: Targets::default(),
        })
    };
    let known = CheckContext {
        targets: &targets,
        files: &BTreeMap::new(),
    };
    let loaded = LoadedPipeline::new(Graph::new(definition, &known)?, 1)?;
    let echo = Echo {
        model: "echo".parse()?,
        variant: "echo-b1".parse()?,
    };
    let pipelines = Pipelines::over(Arc::new(echo), Arc::new(UnboundedMemory));
    pipelines.set(HashMap::from([("chain".parse()?, Arc::new(loaded))]));
    Ok(pipelines)
}

/// Microseconds of one query.
async fn turn(
    dispatcher: &DispatcherClient,
    inputs: &[NamedTensor],
) -> Result<f64, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    for _ in 0..QUERIES {
        let query = Query {
            targets: Targets {
                latency_ms: Some(1e6),
                ..Targets::default()
            },
            ..Query::new(
                Route::Application(ApplicationId::new("chain")?),
                inputs.to_vec(),
                Instant::now(),
            )
        };
        dispatcher.query(query).await?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(QUERIES))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scores = Tensor::from_elements(vec![1, 10], &[0.1f32; 10])?;
    let inputs = [NamedTensor::new("scores", scores)];
    for (name, step) in [
        ("asks", json!({"application": "echo"})),
        ("transforms", json!({"softmax": {}})),
    ] {
        let dispatcher: DispatcherClient = pipelines(chain(&step))?;
        let mut turns = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            turns.push(turn(&dispatcher, &inputs).await?);
        }
        turns.sort_by(f64::total_cmp);
        let of_step = turns[TURNS / 2] / STEPS as f64;
        println!(
            "{}",
            json!({"experiment": "pipelines", "metric": "pipeline_step_overhead_us", "cell": name,
            "value": (of_step * 1000.0).round() / 1000.0, "unit": "us"})
        );
    }
    Ok(())
}
