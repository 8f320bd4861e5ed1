//! The pure-Rust engine rten behind the engine trait.
//!
//! Entry point: [`RtenEngine::new`].
//!
//! It needs no library and loads several times faster than ONNX Runtime in less memory, at about
//! half the speed: it is the variant for cold starts and rarely used models.
//!
//! rten knows four element types. 64-bit integers and booleans are passed as 32-bit integers:
//! inputs that do not fit are refused. It also converts 64-bit floats to 32 bits, which would
//! silently lose digits, so models with such inputs or outputs are refused here.
//!
//! **Invariant:** a run computes only on the threads of its handle's pool, while the caller waits;
//! a panic of the library becomes an error of that load or run.

use std::{ops::RangeInclusive, panic::AssertUnwindSafe, sync::Arc};

use rten::{LoadErrorKind, Model, ModelOptions, ThreadPool};
use sextant_engine::{
    Capabilities, Engine, Error, LiveMap, LoadRequest, LoadedModel, check_integers,
};
use sextant_onnx::ModelInfo;
use sextant_types::{DataType, Digest, Optimization, Precision, Signature};

mod model;
mod values;

use model::RtenModel;

/// The engine's name in variant ids.
pub const NAME: &str = "rten";

/// Longest text that is kept of a message.
const MAX_MESSAGE: usize = 400;

/// rten. Cheap to clone; clones share the weights of what they load.
#[derive(Clone, Default)]
pub struct RtenEngine {
    models: Arc<LiveMap<Digest, Shared>>,
}

/// What all handles of an artefact share.
struct Shared {
    model: Model,
    signature: Signature,
    /// The allowed values of inputs that are looked up in tables.
    indices: Vec<(String, RangeInclusive<i64>)>,
    weights_bytes: u64,
}

impl RtenEngine {
    /// An engine without models.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for RtenEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32, Precision::Int8Dynamic],
            optimizations: vec![Optimization::All],
            threads: true,
            data_types: values::DATA_TYPES.to_vec(),
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let shared = self
            .models
            .get_or_make(request.artefact, || Shared::open(request))?;
        let pool = ThreadPool::with_num_threads(usize::from(request.threads.max(1)));
        Ok(Arc::new(RtenModel::new(shared, Arc::new(pool))?))
    }

    fn resident_weights_bytes(&self) -> u64 {
        let models = self.models.values();
        models.iter().map(|model| model.weights_bytes).sum()
    }
}

// === impl Shared ===

impl Shared {
    fn open(request: &LoadRequest) -> Result<Self, Error> {
        let info = sextant_onnx::inspect(&request.model.graph)
            .map_err(|error| Error::InvalidModel(error.to_string()))?;
        refuse_types(&info.signature)?;
        check_integers(info.wide_output.as_deref())?;
        let file = request.model.whole()?;
        let load = || {
            let mut options = ModelOptions::with_all_ops();
            options.prepack_weights(packs(&info));
            options.load(file.to_vec())
        };
        let model = guarded("load", load)?.map_err(|error| load_error(&error))?;
        Ok(Self {
            model,
            indices: info.indices,
            signature: info.signature,
            weights_bytes: info.weights_bytes,
        })
    }
}

/// Packed weights cost a second copy. Measured on one thread with three matrices of 1024x1024,
/// that makes batches of 8-bit models up to five times as fast (239 us against 1,482 us for 8
/// rows) and those of 32-bit floats no faster.
fn packs(info: &ModelInfo) -> bool {
    let integer = |operator: &String| operator.ends_with("Integer");
    info.op_types.iter().any(integer)
}

fn refuse_types(signature: &Signature) -> Result<(), Error> {
    let mut specs = signature.inputs.iter().chain(&signature.outputs);
    let known = |data_type: &DataType| values::DATA_TYPES.contains(data_type);
    match specs.find(|spec| !known(&spec.data_type)) {
        Some(spec) => Err(Error::Unsupported(format!(
            "`{}` is of type {}",
            spec.name, spec.data_type
        ))),
        None => Ok(()),
    }
}

fn load_error(error: &rten::LoadError) -> Error {
    let message = shorten(&error.to_string());
    match error.kind() {
        LoadErrorKind::OperatorInvalid | LoadErrorKind::OptimizeError => {
            Error::Unsupported(message)
        }
        _ => Error::InvalidModel(message),
    }
}

/// Calls `work`; a panic inside becomes an error.
fn guarded<R>(what: &str, work: impl FnOnce() -> R) -> Result<R, Error> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        let text = shorten(text.unwrap_or("without a message"));
        Error::Failed(format!("rten panicked in {what}: {text}"))
    })
}

fn shorten(message: &str) -> String {
    let line = message.trim().replace('\n', " ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}
