//! Inputs of one step that have different numbers of rows.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use serde_json::json;
use sextant_pipeline::{LoadedPipeline, Pipelines, UnboundedMemory};
use sextant_rpc::{Answer, Dispatch, Query, QueryError, Timings};
use sextant_types::{Code, DataType, NamedTensor, Route, Signature, Tensor, TensorSpec};

use crate::worker::{graph_over, query};

/// Takes equally many rows of `x` and of `z`, and answers with `x`.
#[derive(Default)]
struct Pairs(AtomicUsize);

fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(1)],
    };
    Signature {
        inputs: vec![spec("x"), spec("z")],
        outputs: vec![spec("x")],
        batched: true,
    }
}

#[async_trait]
impl Dispatch for Pairs {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let bound = signature().bind(query.inputs);
        let (mut inputs, rows) =
            bound.map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        inputs.truncate(1);
        Ok(Answer {
            variant: "pairs-b1".parse().expect("a name"),
            model: "pairs".parse().expect("a name"),
            outputs: inputs,
            rows,
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

#[tokio::test]
async fn rows_beside_none_are_refused_and_not_lost() {
    let definition = json!({"name": "p", "steps": [{"name": "a", "application": "pairs"}]});
    let graph = graph_over(&definition, None, |_| Ok(signature()));
    let graph = graph.unwrap_or_else(|error| panic!("{error}"));
    let name = graph.definition.application().expect("a name");
    let loaded = Arc::new(LoadedPipeline::new(graph, 1).expect("names"));
    let pairs = Arc::new(Pairs::default());
    let pipelines = Pipelines::over(Arc::clone(&pairs) as _, Arc::new(UnboundedMemory));
    pipelines.set(HashMap::from([(name, loaded)]));
    let of = |name: &str, rows: usize| {
        let tensor = Tensor::from_elements(vec![rows, 1], &vec![1f32; rows]);
        NamedTensor::new(name, tensor.expect("a tensor"))
    };
    let asked = |x: usize, z: usize| pipelines.query(query(vec![of("x", x), of("z", z)]));
    let nothing = asked(0, 0).await.expect("an answer of no rows");
    assert_eq!(nothing.outputs[0].tensor.shape(), [0, 1]);
    assert_eq!(pairs.0.load(Ordering::Relaxed), 0);
    for (x, z) in [(0, 3), (3, 0)] {
        let refused = asked(x, z).await.expect_err("the rows do not fit");
        assert_eq!(refused.code, Code::InvalidTensor, "{x} and {z}: {refused}");
    }
}
