//! A handle: a model of a server's present life.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use sextant_engine::{Error, LoadedModel, StagedBatch, check_inputs};
use sextant_types::{NamedTensor, Signature, Tensor};

use crate::{
    client::{Payload, Reply},
    manifest::Manifest,
    metadata::ModelMetadata,
    server::Server,
    wire,
};

/// What all handles of an artefact share.
pub(crate) struct Weights {
    pub(crate) bytes: u64,
}

pub(crate) struct RemoteModel {
    handle: Arc<Handle>,
}

struct Handle {
    lease: Lease,
    manifest: Manifest,
    signature: Signature,
    weights: Arc<Weights>,
    path: String,
    binary: bool,
    /// Whether the server said that the model is ready, and can be asked again.
    knows_ready: bool,
    /// Why the handle is no longer usable.
    lost: OnceLock<String>,
}

/// A model that is loaded while it exists.
struct Lease {
    server: Arc<Server>,
    model: String,
}

/// A batch in progress: the request's body, then the answer.
struct Batch {
    handle: Arc<Handle>,
    /// Number of rows of its inputs, if they are a batch.
    rows: Option<usize>,
    state: State,
}

enum State {
    Ready(Payload),
    Done(Reply),
    Spent,
}

// === impl Weights ===

impl Weights {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            bytes: manifest.weights_bytes,
        }
    }
}

// === impl RemoteModel ===

impl RemoteModel {
    /// Loads the model into the server, if that is this engine's task, and asks for its
    /// description.
    pub(crate) fn load(
        server: Arc<Server>,
        manifest: &Manifest,
        weights: Arc<Weights>,
    ) -> Result<Self, Error> {
        server.acquire(manifest)?;
        let lease = Lease {
            server,
            model: manifest.model.clone(),
        };
        let described = match ModelMetadata::declared(manifest) {
            Some(declared) => declared,
            None => lease.server.metadata(manifest)?,
        };
        let signature = described.signature(manifest)?;
        let handle = Handle {
            binary: lease.server.binary()?,
            knows_ready: lease.server.is_ready(manifest),
            path: format!("{}/infer", manifest.path()),
            manifest: manifest.clone(),
            lost: OnceLock::new(),
            lease,
            signature,
            weights,
        };
        Ok(Self {
            handle: Arc::new(handle),
        })
    }

    fn batch(&self, inputs: &[NamedTensor]) -> Result<Batch, Error> {
        let handle = &self.handle;
        if let Some(lost) = handle.lost.get() {
            return Err(Error::Gone(lost.clone()));
        }
        check_inputs(&handle.signature, inputs)?;
        let rows = handle.rows(inputs)?;
        let outputs = &handle.signature.outputs;
        let payload = match handle.binary {
            true => wire::write::binary(inputs, outputs),
            false => wire::write::json(inputs, outputs)?,
        };
        Ok(Batch {
            handle: Arc::clone(handle),
            rows,
            state: State::Ready(payload),
        })
    }
}

impl LoadedModel for RemoteModel {
    fn signature(&self) -> &Signature {
        &self.handle.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let mut batch = Box::new(self.batch(inputs)?);
        batch.exec()?;
        batch.collect()
    }

    /// INPUT writes the request, EXEC is the exchange, OUTPUT reads the answer.
    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        Ok(Some(Box::new(self.batch(inputs)?)))
    }

    fn weights_bytes(&self) -> u64 {
        self.handle.weights.bytes
    }
}

// === impl Lease ===

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.release(&self.model);
    }
}

// === impl Handle ===

impl Handle {
    /// Number of rows of a batch that the runtime accepts; `None` if the model has no batch
    /// dimension.
    fn rows(&self, inputs: &[NamedTensor]) -> Result<Option<usize>, Error> {
        if !self.signature.batched {
            return Ok(None);
        }
        let rows = inputs.first().map_or(0, |input| input.tensor.rows());
        if inputs.iter().any(|input| input.tensor.rows() != rows) {
            let reason = "its inputs have different numbers of rows";
            return Err(Error::InvalidInput(reason.to_owned()));
        }
        let most = self.manifest.most_rows();
        if rows > most {
            return Err(Error::InvalidInput(format!(
                "it has {rows} rows, the manifest allows {most} in a batch"
            )));
        }
        Ok(Some(rows))
    }

    fn exchange(&self, payload: &Payload) -> Result<Reply, Error> {
        let server = &self.lease.server;
        let reply = server.infer(&self.path, payload).and_then(|reply| {
            if reply.is_success() {
                return Ok(reply);
            }
            let (runtime, model) = (&self.manifest.runtime, &self.manifest.model);
            let text = format!("runtime `{runtime}`, model `{model}`: {}", reply.refusal());
            // A server that was started again may no longer have the model.
            match self.knows_ready && !server.is_ready(&self.manifest) {
                true => Err(Error::Gone(text)),
                false => Err(Error::Failed(text)),
            }
        });
        if let Err(Error::Lost(reason) | Error::Gone(reason)) = &reply {
            self.lost.get_or_init(|| reason.clone());
        }
        reply
    }
}

// === impl Batch ===

impl StagedBatch for Batch {
    fn exec(&mut self) -> Result<Option<Duration>, Error> {
        let State::Ready(payload) = std::mem::replace(&mut self.state, State::Spent) else {
            return Err(Error::Failed("the batch was run before".to_owned()));
        };
        self.state = State::Done(self.handle.exchange(&payload)?);
        Ok(None)
    }

    fn collect(self: Box<Self>) -> Result<Vec<Tensor>, Error> {
        let State::Done(reply) = self.state else {
            return Err(Error::Failed("the batch has no answer".to_owned()));
        };
        wire::read::outputs(&reply, &self.handle.signature.outputs, self.rows).map_err(|reason| {
            let runtime = &self.handle.manifest.runtime;
            Error::Failed(format!("runtime `{runtime}`: {reason}"))
        })
    }
}
