//! A few cases for each operator, with seeded shapes and attributes.

use sextant_engine::Engine;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::{DataType, Precision};

use super::{Case, Comparison, compare, random::Random};

mod attention;
mod elementwise;
mod images;
mod moves;
mod products;
mod reductions;

/// Largest error that is allowed: the rounding of storage and factors, and some room for sums in another order.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 => 2e-5,
        Precision::Tf32 => 3e-3,
        Precision::Fp16 => 4e-3,
        _ => 3e-2,
    }
}

/// Compares every case at every precision of the engine. `reference` is ONNX Runtime or another engine that knows the
/// operators.
pub fn all(engine: &dyn Engine, reference: &dyn Engine, seed: u64) -> Vec<Comparison> {
    let cases = cases(seed);
    let each = |case: &Case| compare(engine, reference, case, tolerance);
    cases.iter().flat_map(each).collect()
}

/// Every case; at least one for each operator of [`crate::lower::OPERATORS`].
pub fn cases(seed: u64) -> Vec<Case> {
    let mut random = Random(seed);
    let mut cases = elementwise::cases(&mut random);
    cases.extend(products::cases(&mut random));
    cases.extend(images::cases(&mut random));
    cases.extend(reductions::cases(&mut random));
    cases.extend(moves::cases(&mut random));
    cases.extend(attention::cases(&mut random));
    for (index, case) in cases.iter_mut().enumerate() {
        case.seed = seed.wrapping_add(index as u64);
    }
    cases
}

/// A model under construction: input `x` `[batch, ..]`, output `y`.
struct Model {
    operator: &'static str,
    detail: String,
    builder: ModelBuilder,
    rows: usize,
}

// === impl Model ===

impl Model {
    /// A model with an input of 32-bit floats.
    fn new(operator: &'static str, detail: impl Into<String>, dims: &[u64]) -> Self {
        let mut model = Self {
            operator,
            detail: detail.into(),
            builder: ModelBuilder::new(operator, 1),
            rows: 3,
        };
        model.input("x", DataType::Fp32, dims);
        model
    }

    fn input(&mut self, name: &str, data_type: DataType, dims: &[u64]) -> &mut Self {
        let inner = dims.iter().map(|dim| Dim::Fixed(*dim));
        let dims: Vec<Dim> = [BATCH].into_iter().chain(inner).collect();
        self.builder.input(name, data_type, &dims);
        self
    }

    fn opset(&mut self, version: i64) -> &mut Self {
        self.builder.opset(version);
        self
    }

    fn node(&mut self, op_type: &str, inputs: &[&str], output: &str) -> &mut Self {
        self.builder.node(op_type, inputs, &[output]);
        self
    }

    /// The operator itself, from `inputs` to `y`.
    fn call(&mut self, inputs: &[&str], attributes: Vec<AttributeProto>) -> &mut Self {
        let operator = self.operator;
        self.builder.node_with(operator, inputs, &["y"], attributes);
        self
    }

    fn integers(&mut self, name: &str, values: &[i64]) -> &mut Self {
        self.builder.constant(name, &[values.len()], values);
        self
    }

    fn number(&mut self, name: &str, value: f32) -> &mut Self {
        self.builder.constant(name, &[], &[value]);
        self
    }

    fn weights(&mut self, name: &str, dims: &[u64]) -> &mut Self {
        let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
        self.builder.random(name, &dims, 0.5);
        self
    }

    /// Declares `y` as a batch of 32-bit floats with `rank` dimensions.
    fn finish(&mut self, rank: usize) -> Case {
        self.finish_as(DataType::Fp32, rank)
    }

    fn finish_as(&mut self, data_type: DataType, rank: usize) -> Case {
        self.output("y", data_type, rank);
        Case {
            operator: self.operator,
            detail: self.detail.clone(),
            model: self.builder.build(),
            dynamic: vec![self.rows],
            seed: 0,
        }
    }

    fn output(&mut self, name: &str, data_type: DataType, rank: usize) -> &mut Self {
        const SYMBOLS: [&str; 6] = ["batch", "d1", "d2", "d3", "d4", "d5"];
        let dims: Vec<Dim> = SYMBOLS[..rank].iter().map(|it| Dim::Dynamic(it)).collect();
        self.builder.output(name, data_type, &dims);
        self
    }
}
