//! The contract of every engine: one function per property.
//!
//! An engine binds the suite with [`bind_conformance!`](crate::bind_conformance). It gives models
//! as files (this crate cannot write ONNX) and their right answers. Every function panics if the
//! engine violates the property.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor};

use crate::{Engine, Error, LoadRequest, LoadedModel};

mod behaviour;
mod compare;
mod inputs;
mod refusal;
mod sharing;
mod staging;

pub use behaviour::{
    data_types_pass, devices_have_pages, optimizations_and_threads_agree, rows_are_independent,
    runs_are_concurrent, runs_equal_reference, shapes_are_dynamic, signatures_follow_the_file,
};
pub use compare::assert_close;
pub use inputs::random_inputs;
pub use refusal::{
    broken_files_are_refused, failed_runs_leave_the_model_usable, files_of_others_are_refused,
    interrupted_runs_leave_the_model_usable, unknown_operators_are_named, wrong_inputs_are_refused,
};
pub use sharing::{
    dropped_models_are_unloaded, dropped_models_give_memory_back, loads_are_concurrent,
    loads_share_weights,
};
pub use staging::{
    joined_parts_equal_reference, staged_batches_equal_reference, staged_batches_may_be_dropped,
    stages_overlap, staging_refuses_wrong_inputs,
};

/// The right answers of a model.
pub type Reference = Arc<dyn Fn(&[NamedTensor]) -> Vec<Tensor> + Send + Sync>;

/// A model with its known properties.
#[derive(Clone)]
pub struct Fixture {
    /// Key of the artefact; each fixture has its own.
    pub artefact: Digest,
    /// The file.
    pub model: Bytes,
    /// What the file declares.
    pub signature: Signature,
    /// Its right answers.
    pub reference: Reference,
}

/// The models that the suite needs.
#[derive(Clone)]
pub struct Fixtures {
    /// A batched network of fully connected layers, 32-bit floats, one input `[?, n]`, with 1 to
    /// 4 MiB of weights.
    pub dense: Fixture,
    /// A batched convolutional network, 32-bit floats. Its reference may be the engine itself.
    pub convolution: Fixture,
    /// One input and one output of shape `[?, ?]`, the output twice the input, 32-bit floats.
    pub dynamic: Fixture,
    /// For each type that the engine claims, a model of shape `[?, n]` that returns its input.
    pub identities: Vec<(DataType, Fixture)>,
    /// A model with an operator that no engine has, and the operator's name.
    pub unknown_operator: (Bytes, &'static str),
}

/// Binds the suite: one `#[test]` for each property. `$engine` and `$fixtures` are expressions
/// that give a new `Arc<dyn Engine>` and [`Fixtures`].
#[macro_export]
macro_rules! bind_conformance {
    ($engine:expr, $fixtures:expr) => {
        $crate::bind_conformance! { @each $engine, $fixtures,
            runs_equal_reference, rows_are_independent, runs_are_concurrent,
            optimizations_and_threads_agree, shapes_are_dynamic, data_types_pass,
            signatures_follow_the_file, wrong_inputs_are_refused,
            failed_runs_leave_the_model_usable, interrupted_runs_leave_the_model_usable,
            broken_files_are_refused,
            unknown_operators_are_named, loads_share_weights, loads_are_concurrent,
            dropped_models_are_unloaded, dropped_models_give_memory_back,
            files_of_others_are_refused, devices_have_pages, staged_batches_equal_reference, joined_parts_equal_reference,
            stages_overlap, staged_batches_may_be_dropped, staging_refuses_wrong_inputs,
        }
    };
    (@each $engine:expr, $fixtures:expr, $($property:ident),* $(,)?) => {
        $(#[test]
        fn $property() {
            let _alone = $crate::conformance::alone();
            let engine: ::std::sync::Arc<dyn $crate::Engine> = $engine;
            $crate::conformance::$property(&*engine, &$fixtures);
        })*
    };
}

/// Held while a property is checked: the process's memory says nothing while others run.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

/// A request for the fixture with one thread.
fn request(engine: &dyn Engine, fixture: &Fixture) -> LoadRequest {
    let optimizations = engine.capabilities().optimizations;
    LoadRequest {
        artefact: fixture.artefact,
        model: fixture.model.clone().into(),
        precision: Precision::Fp32,
        optimization: optimizations.last().copied().unwrap_or(Optimization::All),
        threads: 1,
    }
}

fn load(engine: &dyn Engine, fixture: &Fixture) -> Arc<dyn LoadedModel> {
    loaded(engine.load(&request(engine, fixture)))
}

fn loaded(result: Result<Arc<dyn LoadedModel>, Error>) -> Arc<dyn LoadedModel> {
    match result {
        Ok(model) => model,
        Err(error) => panic!("a good model is refused: {error}"),
    }
}

fn run(model: &dyn LoadedModel, inputs: &[NamedTensor]) -> Vec<Tensor> {
    match model.run(inputs) {
        Ok(outputs) => outputs,
        Err(error) => panic!("a good batch fails: {error}"),
    }
}
