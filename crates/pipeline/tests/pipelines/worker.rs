//! A dispatcher that answers by a rule, and records the queries that it got.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use sextant_pipeline::{
    CheckContext, Definition, Graph, Invalid, LoadedPipeline, Memory, Pipelines, Target,
    UnboundedMemory,
};
use sextant_rpc::{Answer, Dispatch, Query, QueryError, Timings};
use sextant_types::{
    ApplicationId, Code, DataType, Metric, ModelId, NamedTensor, Route, Signature, Targets, Tensor,
    TensorSpec, VariantId,
};
use tokio::sync::Semaphore;

/// What an application does with the rows of `x`.
pub type Rule = Box<dyn Fn(&[f32]) -> Result<Vec<f32>, QueryError> + Send + Sync>;

/// Answers `y` to `x`: `[rows, 1]` where the application is batched, else `[1]`.
pub struct Worker {
    rules: HashMap<String, (bool, Rule)>,
    pub asked: Mutex<Vec<Query>>,
    /// The time that it reports for each run, microseconds.
    compute_us: f64,
    slow: HashMap<String, f64>,
    /// The time that it reports each query to have waited for a load, microseconds.
    load_us: f64,
    /// Each answer takes a permit of this.
    gate: Option<Arc<Semaphore>>,
}

fn spec(name: &str, batched: bool) -> TensorSpec {
    let shape = if batched {
        vec![None, Some(1)]
    } else {
        vec![Some(1)]
    };
    TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape,
    }
}

pub fn name(route: &Route) -> &str {
    match route {
        Route::Application(id) => id.as_str(),
        Route::Model(id) => id.as_str(),
        Route::Variant(id) => id.as_str(),
    }
}

impl Worker {
    pub fn new() -> Self {
        Self {
            rules: HashMap::new(),
            asked: Mutex::default(),
            compute_us: 5.0,
            slow: HashMap::new(),
            load_us: 0.0,
            gate: None,
        }
    }

    /// Reports that each run took `ms` ms.
    pub fn taking(mut self, ms: f64) -> Self {
        self.compute_us = ms * 1e3;
        self
    }

    /// Reports that each query waited `ms` ms for a load.
    pub fn loading(mut self, ms: f64) -> Self {
        self.load_us = ms * 1e3;
        self
    }

    /// Reports that each run of `name` took `ms` ms.
    pub fn slow(mut self, name: &str, ms: f64) -> Self {
        self.slow.insert(name.to_owned(), ms * 1e3);
        self
    }

    /// Answers each query once there is a permit for it.
    pub fn behind(mut self, gate: &Arc<Semaphore>) -> Self {
        self.gate = Some(Arc::clone(gate));
        self
    }

    pub fn with(
        mut self,
        name: &str,
        batched: bool,
        rule: impl Fn(&[f32]) -> Result<Vec<f32>, QueryError> + Send + Sync + 'static,
    ) -> Self {
        self.rules
            .insert(name.to_owned(), (batched, Box::new(rule)));
        self
    }

    /// Adds a constant to each row.
    pub fn adding(self, name: &str, what: f32) -> Self {
        self.with(name, true, move |rows| {
            Ok(rows.iter().map(|row| row + what).collect())
        })
    }

    /// How often `of` was asked.
    pub fn count(&self, of: &str) -> usize {
        self.asked
            .lock()
            .iter()
            .filter(|query| name(&query.route) == of)
            .count()
    }
}

#[async_trait]
impl Dispatch for Worker {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        // Other tasks run meanwhile, as they would beside a device.
        tokio::task::yield_now().await;
        self.asked.lock().push(query.clone());
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("it stays open").forget();
        }
        let (batched, rule) = self
            .rules
            .get(name(&query.route))
            .ok_or_else(|| QueryError::not_found(&query.route))?;
        let rows = query.inputs[0].tensor.to_vec::<f32>().expect("floats");
        let values = rule(&rows)?;
        let shape = if *batched {
            vec![values.len(), 1]
        } else {
            vec![values.len()]
        };
        Ok(Answer {
            variant: VariantId::new(format!("{}-b1", name(&query.route))).expect("a name"),
            model: ModelId::new(name(&query.route)).expect("a name"),
            outputs: vec![NamedTensor::new(
                "y",
                Tensor::from_elements(shape, &values).expect("y"),
            )],
            rows: rows.len() as u32,
            timings: Timings {
                compute_us: *self
                    .slow
                    .get(name(&query.route))
                    .unwrap_or(&self.compute_us),
                queue_us: self.load_us,
                load_us: self.load_us,
                batch_rows: 1,
                ..Timings::default()
            },
            targets_met: true,
            cost_usd: 0.001,
            explanation: None,
        })
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        let (batched, _) = self
            .rules
            .get(name(route))
            .ok_or_else(|| QueryError::not_found(route))?;
        Ok(Signature {
            inputs: vec![spec("x", *batched)],
            outputs: vec![spec("y", *batched)],
            batched: *batched,
        })
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.rules.contains_key(name(route))
    }
}

/// A definition checked against the applications of a worker.
pub fn graph(worker: &Worker, definition: &Value) -> Result<Graph, Invalid> {
    graph_over(definition, Some(Metric::Top1), |route| {
        worker.signature(route)
    })
}

/// A definition checked against targets with these signatures, all measured by the same metric or by none.
pub fn graph_over(
    definition: &Value,
    metric: Option<Metric>,
    signature: impl Fn(&Route) -> Result<Signature, QueryError>,
) -> Result<Graph, Invalid> {
    let definition: Definition = serde_json::from_value(definition.clone()).expect("a definition");
    let targets = |route: &Route| {
        Ok(Target {
            signature: signature(route)?,
            metric,
            defaults: Targets::default(),
        })
    };
    Graph::new(
        definition,
        &CheckContext {
            targets: &targets,
            files: &BTreeMap::new(),
        },
    )
}

/// One pipeline over a worker.
pub struct Service {
    pub worker: Arc<Worker>,
    pub pipelines: Arc<Pipelines>,
}

pub fn service(worker: Worker, definition: &Value) -> Service {
    service_in(Arc::new(UnboundedMemory), worker, definition)
}

/// A pipeline whose steps have this memory.
pub fn service_in(memory: Arc<dyn Memory>, worker: Worker, definition: &Value) -> Service {
    let graph = graph(&worker, definition).unwrap_or_else(|error| panic!("{error}"));
    let worker = Arc::new(worker);
    let pipelines = Pipelines::over(Arc::clone(&worker) as Arc<dyn Dispatch>, memory);
    let application = graph.definition.application().expect("a name");
    let loaded = Arc::new(LoadedPipeline::new(graph, 1).expect("names"));
    pipelines.set(HashMap::from([(application, loaded)]));
    Service { worker, pipelines }
}

pub fn x(values: &[f32]) -> Vec<NamedTensor> {
    vec![NamedTensor::new(
        "x",
        Tensor::from_elements(vec![values.len(), 1], values).expect("x"),
    )]
}

pub fn query(inputs: Vec<NamedTensor>) -> Query {
    Query {
        explain: true,
        ..Query::new(
            Route::Application(ApplicationId::new("p").expect("a name")),
            inputs,
            Instant::now(),
        )
    }
}

impl Service {
    pub async fn ask(&self, values: &[f32]) -> Result<Answer, QueryError> {
        self.pipelines.query(query(x(values))).await
    }
}

pub fn output(answer: &Answer, name: &str) -> Option<Vec<f32>> {
    let found = answer.outputs.iter().find(|output| output.name == name)?;
    found.tensor.to_vec()
}

pub fn failing(code: Code) -> impl Fn(&[f32]) -> Result<Vec<f32>, QueryError> {
    move |_| Err(QueryError::new(code, "it is broken"))
}
