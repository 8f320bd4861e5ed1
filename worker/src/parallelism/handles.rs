//! One model, loaded once for each number of threads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Barrier},
    thread,
};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_policies::parallelism::Random;
use sextant_types::{DataType, NamedTensor, Signature, Tensor, TensorSpec};

use super::{
    Error,
    affinity::{helper_cores, keep_to},
};

/// Runs of each thread that settle caches and have the engine make as many sessions as can run side
/// by side.
const WARM_UPS: usize = 3;

/// A model that can run on different numbers of threads at once; the engine shares its weights.
#[derive(Clone)]
pub struct Handles {
    by_intra: BTreeMap<u16, Arc<dyn LoadedModel>>,
}

impl Handles {
    /// Loads the model for 1 up to as many threads as there are `cores`, and runs it with `inputs`
    /// as often side by side as fits.
    ///
    /// # Errors
    /// What the engine says.
    pub fn load(
        engine: &dyn Engine,
        request: &LoadRequest,
        cores: &[usize],
        inputs: &[NamedTensor],
    ) -> Result<Self, Error> {
        let most = u16::try_from(cores.len()).unwrap_or(u16::MAX);
        let one = |intra: u16| {
            let request = LoadRequest {
                threads: intra,
                ..request.clone()
            };
            let helpers = helper_cores(cores, intra);
            let side_by_side = cores.len() / usize::from(intra);
            let load = || {
                keep_to(&helpers);
                let model = engine.load(&request)?;
                warm_up(&model, inputs, side_by_side)?;
                Ok((intra, model))
            };
            on_a_thread(load)
        };
        let by_intra = (1..=most.max(1)).map(one).collect::<Result<_, Error>>()?;
        Ok(Self { by_intra })
    }

    /// From models that are loaded.
    pub fn new(by_intra: BTreeMap<u16, Arc<dyn LoadedModel>>) -> Self {
        Self { by_intra }
    }

    /// The model on `intra` threads.
    pub fn get(&self, intra: u16) -> Option<&Arc<dyn LoadedModel>> {
        self.by_intra.get(&intra)
    }
}

/// Sessions that the engine makes on the way inherit the cores of the threads that ask for them.
fn warm_up(
    model: &Arc<dyn LoadedModel>,
    inputs: &[NamedTensor],
    side_by_side: usize,
) -> Result<(), sextant_engine::Error> {
    let barrier = Barrier::new(side_by_side);
    let run = || {
        // A failed run must not leave the others waiting.
        let one = |_| {
            barrier.wait();
            model.run(inputs).map(drop)
        };
        let all: Vec<_> = (0..WARM_UPS).map(one).collect();
        all.into_iter().collect()
    };
    thread::scope(|scope| {
        // All of them run before any is waited for.
        let threads: Vec<_> = (0..side_by_side).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(ended())))
    })
}

/// The affinity of a thread ends with it.
fn on_a_thread<R: Send>(work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(ended().into()))
}

pub(super) fn ended() -> sextant_engine::Error {
    sextant_engine::Error::Failed("the engine panicked".to_owned())
}

/// Inputs that a model takes: `rows` where the batch is free, 1 where another dimension is; floats
/// in -1..1, integers 0 or 1. `seed` decides them.
///
/// # Errors
/// When a dimension is too large for this machine.
pub fn sample_inputs(
    signature: &Signature,
    rows: usize,
    seed: u64,
) -> Result<Vec<NamedTensor>, Error> {
    let mut random = Random::new(seed);
    let inputs = signature.inputs.iter();
    inputs
        .map(|spec| {
            let tensor = tensor(spec, signature.batched, rows, &mut random);
            tensor.map(|tensor| NamedTensor::new(spec.name.clone(), tensor))
        })
        .collect()
}

fn tensor(
    spec: &TensorSpec,
    batched: bool,
    rows: usize,
    random: &mut Random,
) -> Result<Tensor, Error> {
    /// Larger inputs are a mistake in the file rather than something to measure.
    const MOST_ELEMENTS: usize = 1 << 28;
    let size = |(axis, size): (usize, &Option<u64>)| match size {
        Some(size) => usize::try_from(*size).unwrap_or(usize::MAX),
        None if axis == 0 && batched => rows,
        None => 1,
    };
    let shape: Vec<usize> = spec.shape.iter().enumerate().map(size).collect();
    let count = shape
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))
        .filter(|count| *count <= MOST_ELEMENTS)
        .ok_or_else(|| Error::Invalid(format!("input `{}` is too large to measure", spec.name)))?;
    let tensor = match spec.data_type {
        DataType::Bytes => Tensor::from_strings(shape, vec![Bytes::from_static(b"a"); count]),
        data_type => {
            let mut bytes = Vec::with_capacity(count * data_type.size().unwrap_or(8));
            (0..count).for_each(|_| push(&mut bytes, data_type, random));
            Tensor::from_bytes(data_type, shape, bytes.into())
        }
    };
    tensor.map_err(|error| Error::Invalid(format!("input `{}`: {error}", spec.name)))
}

fn push(bytes: &mut Vec<u8>, data_type: DataType, random: &mut Random) {
    let unit = 2.0 * random.unit() - 1.0;
    match data_type {
        DataType::Fp32 => bytes.extend_from_slice(&(unit as f32).to_le_bytes()),
        DataType::Fp64 => bytes.extend_from_slice(&unit.to_le_bytes()),
        // Half and quarter of the mantissa: positive and below 1 in either format.
        DataType::Fp16 => bytes.extend_from_slice(&((unit.abs() * 15_000.0) as u16).to_le_bytes()),
        DataType::Bf16 => bytes.extend_from_slice(&((unit.abs() * 16_000.0) as u16).to_le_bytes()),
        whole => {
            let value = u64::from(unit > 0.0).to_le_bytes();
            bytes.extend_from_slice(&value[..whole.size().unwrap_or(8)]);
        }
    }
}
