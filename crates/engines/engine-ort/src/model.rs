//! Loaded models: sessions and what they share.

use std::{collections::HashMap, sync::Arc, thread};

use ort::{
    environment::Environment,
    session::{RunOptions, Session, SessionInputValue},
};
use sextant_engine::{
    Error, Interrupt, LiveMap, LoadRequest, LoadedModel, Pool, blame_empty, check_inputs,
};
use sextant_types::{Digest, NamedTensor, Optimization, Signature, Tensor};

use crate::{failure, tensors, weights::Weights};

/// The models that are loaded now. Loads that differ only in the largest batch have the same keys,
/// and share their sessions, too.
#[derive(Default)]
pub(crate) struct Models {
    models: LiveMap<(Digest, Optimization, u16), OrtModel>,
    weights: LiveMap<(Digest, Optimization), Weights>,
}

impl Models {
    /// The live model of the request, or a new one.
    pub(crate) fn load(
        &self,
        environment: &Environment,
        request: &LoadRequest,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let request = LoadRequest {
            threads: request.threads.max(1),
            ..request.clone()
        };
        let key = (request.artefact, request.optimization, request.threads);
        let model = self
            .models
            .get_or_make(key, || self.open(environment, &request))?;
        Ok(model)
    }

    fn open(&self, environment: &Environment, request: &LoadRequest) -> Result<OrtModel, Error> {
        let info = sextant_onnx::inspect(&request.model.graph)
            .map_err(|error| Error::InvalidModel(error.to_string()))?;
        let mut first = None;
        let key = (request.artefact, request.optimization);
        let weights = self.weights.get_or_make(key, || {
            let other = match request.optimization {
                Optimization::Basic => Optimization::All,
                Optimization::All => Optimization::Basic,
            };
            let sibling = self.weights.get(&(request.artefact, other));
            let (weights, session) =
                Weights::open(environment, request, info.weights_bytes, sibling.as_deref())?;
            first = Some(session);
            Ok(weights)
        })?;
        let threads = usize::from(request.threads);
        let first = match first {
            Some(session) => session,
            None => weights
                .session(threads)
                .map_err(|error| failure::load(&error))?,
        };
        OrtModel::new(info.signature, weights, first, threads)
    }

    /// Bytes of the weights that are held now, each copy counted once.
    pub(crate) fn resident_weights_bytes(&self) -> u64 {
        let mut held = HashMap::new();
        for weights in self.weights.values() {
            weights.collect(&mut held);
        }
        held.values().sum()
    }
}

struct OrtModel {
    sessions: Sessions,
    weights: Arc<Weights>,
}

impl OrtModel {
    fn new(
        signature: Signature,
        weights: Arc<Weights>,
        first: Session,
        threads: usize,
    ) -> Result<Self, Error> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let source = Arc::clone(&weights);
        let limit = (cores / threads).max(1);
        let sessions = Sessions::new(signature, first, limit, move || {
            let session = source.session(threads);
            session.map_err(|error| failure::load(&error))
        })?;
        Ok(Self { sessions, weights })
    }
}

impl LoadedModel for OrtModel {
    fn signature(&self) -> &Signature {
        self.sessions.signature()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        self.run_interruptible(inputs, &Interrupt::default())
    }

    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        self.sessions.run(inputs, interrupt)
    }

    fn weights_bytes(&self) -> u64 {
        self.weights.bytes()
    }
}

/// The sessions of a model, each used by one run at a time.
pub(crate) struct Sessions {
    signature: Signature,
    pool: Arc<Pool<Session>>,
}

impl Sessions {
    /// One session, and up to `limit` of them if runs wait for each other.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the session's inputs or outputs are not those of the signature.
    pub(crate) fn new(
        signature: Signature,
        first: Session,
        limit: usize,
        open: impl Fn() -> Result<Session, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        same_names(&signature, &first)?;
        Ok(Self {
            signature,
            pool: Arc::new(Pool::new(first, limit, open)),
        })
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Runs one batch.
    pub(crate) fn run(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        check_inputs(&self.signature, inputs)?;
        let aligned: Vec<Option<Vec<u64>>> = inputs.iter().map(tensors::realign).collect();
        let values = inputs
            .iter()
            .zip(&aligned)
            .map(|(input, aligned)| tensors::borrow(input, aligned.as_deref()))
            .collect::<Result<Vec<SessionInputValue<'_>>, Error>>()?;
        let options = RunOptions::new().map_err(|error| failure::run(&error))?;
        let options = Arc::new(options);
        let end = {
            let options = Arc::clone(&options);
            move || {
                if let Err(error) = options.terminate() {
                    tracing::error!(%error, "a run cannot be ended");
                }
            }
        };
        // The interrupt also covers the wait for a session, which lasts as long as the runs of
        // others.
        let ran: Result<_, Error> = interrupt.over(end, || {
            self.pool.with(|session| {
                let outputs = session
                    .run_with_options(values.as_slice(), &options)
                    .map_err(|error| blame_empty(failure::run(&error), inputs))?;
                outputs
                    .iter()
                    .map(|(name, value)| tensors::extract(name, &value))
                    .collect()
            })
        });
        // Whatever error it reports when it is ended.
        ran.map_err(|error| match interrupt.is_raised() {
            true => Error::Interrupted,
            false => error,
        })
    }
}

/// Inputs are passed by position, so the session must list them as the file does.
fn same_names(signature: &Signature, session: &Session) -> Result<(), Error> {
    let inputs = session.inputs().iter().map(ort::value::Outlet::name);
    let outputs = session.outputs().iter().map(ort::value::Outlet::name);
    let declared = |specs: &[sextant_types::TensorSpec]| -> Vec<String> {
        specs.iter().map(|spec| spec.name.clone()).collect()
    };
    if inputs.eq(declared(&signature.inputs)) && outputs.eq(declared(&signature.outputs)) {
        return Ok(());
    }
    Err(Error::InvalidModel(
        "its inputs and outputs are not those that the file declares".to_owned(),
    ))
}
