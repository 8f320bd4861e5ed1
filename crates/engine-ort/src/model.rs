//! Loaded models: sessions and what they share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
};

use ort::{
    environment::Environment,
    session::{
        Session, SessionInputValue,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
    value::{Outlet, ValueType},
};
use sextant_engine::{Error, LoadRequest, LoadedModel};
use sextant_types::{Digest, NamedTensor, Optimization, Signature, Tensor, TensorSpec};

use crate::{failure, pool::Pool, tensors};

/// What tells one set of sessions from another. Variants that differ in their largest batch only
/// have the same key and share everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    artefact: Digest,
    optimization: Optimization,
    threads: u16,
}

/// The models that are loaded now.
#[derive(Default)]
pub(crate) struct Models {
    loaded: Mutex<HashMap<Key, Arc<Slot>>>,
}

/// Held while its model loads, so that two loads of one model do not load it twice.
type Slot = Mutex<Weak<OrtModel>>;

impl Models {
    /// The live model of the request's key, or a new one.
    pub(crate) fn load(
        &self,
        environment: &Environment,
        request: &LoadRequest,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let slot = self.slot(request);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = slot.upgrade() {
            return Ok(model);
        }
        let model = Arc::new(OrtModel::open(environment, request)?);
        *slot = Arc::downgrade(&model);
        Ok(model)
    }

    fn slot(&self, request: &LoadRequest) -> Arc<Slot> {
        let key = Key {
            artefact: request.artefact,
            optimization: request.optimization,
            threads: request.threads.max(1),
        };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.retain(|_, slot| {
            Arc::strong_count(slot) > 1
                || slot
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .strong_count()
                    > 0
        });
        Arc::clone(loaded.entry(key).or_default())
    }
}

struct OrtModel {
    signature: Signature,
    pool: Arc<Pool>,
    weights_bytes: u64,
}

impl OrtModel {
    fn open(environment: &Environment, request: &LoadRequest) -> Result<Self, Error> {
        let threads = usize::from(request.threads.max(1));
        let recipe = Recipe {
            environment: environment.clone(),
            model: request.model.clone(),
            optimization: request.optimization,
            threads,
        };
        let first = recipe.open().map_err(|error| failure::load(&error))?;
        let signature = signature(&first)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            signature,
            pool: Arc::new(Pool::new(
                first,
                (cores / threads).max(1),
                Box::new(move || recipe.open()),
            )),
            weights_bytes: request.model.len() as u64,
        })
    }
}

impl LoadedModel for OrtModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        check(&self.signature, inputs)?;
        let aligned: Vec<Option<Vec<u64>>> = inputs.iter().map(tensors::realign).collect();
        let values = inputs
            .iter()
            .zip(&aligned)
            .map(|(input, aligned)| tensors::borrow(input, aligned.as_deref()))
            .collect::<Result<Vec<SessionInputValue<'_>>, Error>>()?;
        self.pool.with(|session| {
            let outputs = session
                .run(values.as_slice())
                .map_err(|error| failure::run(&error))?;
            outputs
                .iter()
                .map(|(name, value)| tensors::extract(name, &value))
                .collect()
        })
    }

    fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }
}

/// How a session of a model is made.
struct Recipe {
    environment: Environment,
    model: bytes::Bytes,
    optimization: Optimization,
    threads: usize,
}

impl Recipe {
    fn open(&self) -> Result<Session, ort::Error> {
        self.builder()?.commit_from_memory(&self.model)
    }

    fn builder(&self) -> Result<SessionBuilder, ort::Error> {
        let level = match self.optimization {
            Optimization::Basic => GraphOptimizationLevel::Level1,
            Optimization::All => GraphOptimizationLevel::All,
        };
        Ok(Session::builder(&self.environment)?
            .with_optimization_level(level)?
            .with_intra_threads(self.threads)?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?)
    }
}

/// What `run` needs of its inputs, so that ONNX Runtime is never entered with others.
fn check(signature: &Signature, inputs: &[NamedTensor]) -> Result<(), Error> {
    if inputs.len() != signature.inputs.len() {
        return Err(Error::InvalidInput(format!(
            "{} inputs are given, the model takes {}",
            inputs.len(),
            signature.inputs.len()
        )));
    }
    for (input, spec) in inputs.iter().zip(&signature.inputs) {
        let (tensor, name) = (&input.tensor, &spec.name);
        if input.name != *name {
            let given = &input.name;
            return Err(Error::InvalidInput(format!(
                "input `{given}` is given where the model takes `{name}`"
            )));
        }
        if tensor.data_type() != spec.data_type || !spec.accepts(tensor.shape()) {
            return Err(Error::InvalidInput(format!(
                "input `{name}` is {} {:?}, the model takes {} {}",
                tensor.data_type(),
                tensor.shape(),
                spec.data_type,
                spec.shape_text()
            )));
        }
    }
    Ok(())
}

fn signature(session: &Session) -> Result<Signature, Error> {
    let specs = |outlets: &[Outlet]| outlets.iter().map(spec).collect::<Result<Vec<_>, _>>();
    let inputs = specs(session.inputs())?;
    let outputs = specs(session.outputs())?;
    let batched = !inputs.is_empty()
        && inputs
            .iter()
            .chain(&outputs)
            .all(|spec| spec.shape.first() == Some(&None));
    Ok(Signature {
        inputs,
        outputs,
        batched,
    })
}

fn spec(outlet: &Outlet) -> Result<TensorSpec, Error> {
    let name = outlet.name();
    let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
        return Err(Error::Unsupported(format!("`{name}` is not a tensor")));
    };
    let data_type = tensors::data_type(*ty)
        .ok_or_else(|| Error::Unsupported(format!("`{name}` has element type {ty}")))?;
    Ok(TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: shape.iter().map(|dim| u64::try_from(*dim).ok()).collect(),
    })
}
