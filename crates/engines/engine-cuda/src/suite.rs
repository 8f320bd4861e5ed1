//! Compares the engine with another one, operator by operator and for whole networks.
//!
//! Entry points: [`operators::all`], [`networks::all`]; [`loads`] measures loads onto a device. The same functions run
//! over the recording driver in this crate's tests and over a real device in the GPU suite. The caller passes in the
//! other engine, ONNX Runtime.

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest, conformance::random_inputs};
use sextant_types::{Digest, Optimization, Precision, Tensor};

pub mod loads;
pub mod networks;
pub mod operators;
mod random;
pub mod times;

/// The distance of an answer from the other engine's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Operator or network.
    pub operator: String,
    /// What was varied.
    pub detail: String,
    /// Precision of the engine; the other engine computes in 32-bit floats.
    pub precision: Precision,
    /// Largest difference of any element, divided by the largest magnitude in the expected output. It is infinite if
    /// the engine failed, or if shapes or values that are not floats differ.
    pub max_error: f64,
    /// Largest error that is allowed.
    pub tolerance: f64,
    /// Why the engine failed.
    pub failure: Option<Error>,
}

/// A model with inputs to run.
#[derive(Debug, Clone)]
pub struct Case {
    /// Operator or network.
    pub operator: &'static str,
    /// What is special about it.
    pub detail: String,
    /// The file.
    pub model: Bytes,
    /// Sizes of dynamic dimensions.
    pub dynamic: Vec<usize>,
    /// Seed of the inputs.
    pub seed: u64,
}

// === impl Comparison ===

impl Comparison {
    /// Whether the error is within the tolerance.
    pub fn passed(&self) -> bool {
        self.max_error <= self.tolerance
    }
}

/// Runs a case on both engines at every precision that the engine has. `tolerance` gives the largest error that is
/// allowed.
pub fn compare(
    engine: &dyn Engine,
    reference: &dyn Engine,
    case: &Case,
    tolerance: fn(Precision) -> f64,
) -> Vec<Comparison> {
    let wanted = answer(reference, case, Precision::Fp32);
    let compare = |precision: Precision| {
        let given = match &wanted {
            Ok(wanted) => answer(engine, case, precision).map(|given| max_error(&given, wanted)),
            Err(error) => Err(Error::Failed(format!("the other engine: {error}"))),
        };
        let (max_error, failure) = match given {
            Ok(error) => (error, None),
            Err(error) => (f64::INFINITY, Some(error)),
        };
        Comparison {
            operator: case.operator.to_owned(),
            detail: case.detail.clone(),
            precision,
            max_error,
            tolerance: tolerance(precision),
            failure,
        }
    };
    let precisions = engine.capabilities().precisions.into_iter();
    precisions.map(compare).collect()
}

fn answer(engine: &dyn Engine, case: &Case, precision: Precision) -> Result<Vec<Tensor>, Error> {
    let request = LoadRequest {
        artefact: digest(&case.model),
        model: case.model.clone().into(),
        precision,
        optimization: Optimization::All,
        threads: 1,
    };
    let model = engine.load(&request)?;
    let inputs = random_inputs(model.signature(), &case.dynamic, case.seed);
    model.run(&inputs)
}

/// The digest of a file, different for every file here.
fn digest(model: &Bytes) -> Digest {
    let mut bytes = [0u8; 32];
    for (at, byte) in model.iter().enumerate() {
        let place = &mut bytes[at % 32];
        *place = place.wrapping_mul(31).wrapping_add(*byte) ^ (at >> 5) as u8;
    }
    Digest::from_bytes(bytes)
}

fn max_error(given: &[Tensor], wanted: &[Tensor]) -> f64 {
    if given.len() != wanted.len() {
        return f64::INFINITY;
    }
    let errors = given.iter().zip(wanted).map(|(given, wanted)| {
        let alike = given.shape() == wanted.shape() && given.data_type() == wanted.data_type();
        match (given.to_vec::<f32>(), wanted.to_vec::<f32>()) {
            (Some(given), Some(wanted)) if alike => float_error(&given, &wanted),
            _ if given == wanted => 0.0,
            _ => f64::INFINITY,
        }
    });
    errors.fold(0.0, f64::max)
}

fn float_error(given: &[f32], wanted: &[f32]) -> f64 {
    let finite = wanted.iter().filter(|value| value.is_finite());
    let scale = finite.fold(1e-6f64, |scale, value| scale.max(f64::from(value.abs())));
    let errors = given.iter().zip(wanted).map(|(given, wanted)| {
        let same = given == wanted || given.is_nan() && wanted.is_nan();
        match f64::from(given - wanted).abs() / scale {
            _ if same => 0.0,
            error if error.is_nan() => f64::INFINITY,
            error => error,
        }
    });
    errors.fold(0.0, f64::max)
}
