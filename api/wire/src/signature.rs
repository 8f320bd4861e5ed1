//! Inputs and outputs on the wire.

use serde::Serialize;
use sextant_types::{Signature, TensorSpec};
use utoipa::ToSchema;

/// Inputs and outputs of a model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Signature)]
pub struct SignatureBody {
    /// In the graph's order.
    pub inputs: Vec<SpecBody>,
    /// In the graph's order.
    pub outputs: Vec<SpecBody>,
    /// Whether the first dimension is a batch dimension, so that queries can share a batch.
    pub batched: bool,
}

/// One input or output.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TensorSpec)]
pub struct SpecBody {
    /// Its name in the graph.
    pub name: String,
    /// Element type.
    #[schema(example = "FP32")]
    pub datatype: &'static str,
    /// Dimensions, -1 where any size is accepted.
    #[schema(example = json!([-1, 64]))]
    pub shape: Vec<i64>,
}

impl From<&Signature> for SignatureBody {
    fn from(signature: &Signature) -> Self {
        Self {
            inputs: signature.inputs.iter().map(SpecBody::from).collect(),
            outputs: signature.outputs.iter().map(SpecBody::from).collect(),
            batched: signature.batched,
        }
    }
}

impl From<&TensorSpec> for SpecBody {
    fn from(spec: &TensorSpec) -> Self {
        let dimension = |dim: &Option<u64>| dim.and_then(|dim| i64::try_from(dim).ok());
        Self {
            name: spec.name.clone(),
            datatype: spec.data_type.name(),
            shape: spec
                .shape
                .iter()
                .map(|dim| dimension(dim).unwrap_or(-1))
                .collect(),
        }
    }
}
