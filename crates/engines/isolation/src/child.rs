//! The process that serves models for its parent.

use std::{
    collections::HashMap,
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sextant_engine::{Engine, Error, LoadRequest, LoadedModel, STACK_BYTES};
use sextant_types::Tensor;

use crate::{
    frame,
    link::{self, Link},
    message::{Loaded, Reply, Request, pack},
};

/// The state that the threads of the child share.
struct ChildState {
    engine: Arc<dyn Engine>,
    models: Mutex<HashMap<u32, Arc<dyn LoadedModel>>>,
    next: AtomicU32,
}

/// Serves models on an engine until the parent is gone.
///
/// # Errors
/// If standard input is not the socket of an [`crate::IsolatedEngine`].
pub fn serve(engine: Arc<dyn Engine>) -> io::Result<()> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let served = Arc::new(ChildState {
        engine,
        models: Mutex::default(),
        next: AtomicU32::new(0),
    });
    while let Some(stream) = link::receive(&control)? {
        let (served, mut link) = (Arc::clone(&served), Link::over(stream)?);
        thread::Builder::new()
            .name("sextant-serve".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = served.serve(&mut link) {
                    tracing::debug!(%error, "a connection ended");
                }
            })?;
    }
    Ok(())
}

impl ChildState {
    fn serve(&self, link: &mut Link) -> io::Result<()> {
        while let Some((request, from)) = link.next()? {
            let work: Box<dyn FnOnce() -> Result<Answer, Error> + '_> = match request {
                Request::Load {
                    artefact,
                    precision,
                    optimization,
                    threads,
                    model_bytes,
                } => {
                    let request = LoadRequest {
                        artefact,
                        model: frame::read_bytes(from, model_bytes)?.into(),
                        precision,
                        optimization,
                        threads,
                    };
                    Box::new(move || self.load(&request))
                }
                Request::Run { model, inputs } => {
                    let inputs = inputs.into_iter().map(|head| head.unpack(from));
                    let inputs = inputs.collect::<io::Result<Vec<_>>>()?;
                    Box::new(move || {
                        let model = self.models().get(&model).cloned();
                        let gone = || Error::Gone("it is not loaded".to_owned());
                        let model = model.ok_or_else(gone)?;
                        let begun = Instant::now();
                        let outputs = model.run(&inputs)?;
                        Ok(Answer::Ran(outputs, begun.elapsed()))
                    })
                }
                Request::Unload { model } => Box::new(move || {
                    let model = self.models().remove(&model);
                    drop(model);
                    Ok(Answer::Unloaded(self.engine.resident_weights_bytes()))
                }),
            };
            let panicked = |_| Err(Error::Failed("the engine panicked".to_owned()));
            match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
                Ok(answer) => answer.tell(link)?,
                Err(error) => link.answer(&Reply::Failed(error.into()), &[])?,
            }
        }
        Ok(())
    }

    fn load(&self, request: &LoadRequest) -> Result<Answer, Error> {
        let model = self.engine.load(request)?;
        let loaded = Loaded {
            resident_bytes: self.engine.resident_weights_bytes(),
            model: self.next.fetch_add(1, Ordering::Relaxed),
            signature: model.signature().clone(),
            weights_bytes: model.weights_bytes(),
            working_bytes: model.working_bytes(),
        };
        self.models().insert(loaded.model, model);
        Ok(Answer::Loaded(loaded))
    }

    fn models(&self) -> MutexGuard<'_, HashMap<u32, Arc<dyn LoadedModel>>> {
        self.models.lock()
    }
}

/// The outcome of a request.
enum Answer {
    Loaded(Loaded),
    Ran(Vec<Tensor>, Duration),
    Unloaded(u64),
}

impl Answer {
    fn tell(self, link: &mut Link) -> io::Result<()> {
        match self {
            Self::Loaded(loaded) => link.answer(&Reply::Loaded(loaded), &[]),
            Self::Unloaded(resident_bytes) => link.answer(&Reply::Unloaded { resident_bytes }, &[]),
            Self::Ran(outputs, took) => {
                let nanos = took.as_nanos() as u64;
                let packed = outputs.iter().map(|output| pack("", output));
                let (outputs, blobs): (Vec<_>, Vec<_>) = packed.unzip();
                link.answer(&Reply::Ran { outputs, nanos }, &blobs.concat())
            }
        }
    }
}
