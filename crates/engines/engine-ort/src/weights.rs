//! One copy of a model's weights for all of its sessions.
//!
//! By default, every ONNX Runtime session owns its weights, and the optimisation of the graph makes further copies
//! (convolutions are laid out again in blocks of channels). So the optimisation is done once: a first session writes
//! the optimised graph to a file in memory and is dropped. The weights are taken out of that file. All sessions,
//! whatever their number of threads, are made from the rest with optimisations switched off, and borrow the weights. So
//! nothing can change a weight under a name that another session reads.
//!
//! ONNX Runtime's matrix products are about twice as fast in batches if a weight matrix is packed beforehand, which
//! costs a copy in another order. Measured with seven matrices of 2048x2048 (100 MB) on one thread: batch 8 in 11 ms
//! against 22 ms, batch 64 in 27 ms against 39 ms, batch 1 the same; loading 120 ms against 65 ms.
//! [`Optimization::All`] packs, once for all sessions of the model; [`Optimization::Basic`] does not, and costs exactly
//! one copy.
//!
//! The weights of a large model stay in their file, which each session maps. With [`Optimization::Basic`] a session
//! holds nothing else of them; with [`Optimization::All`] each session holds the matrices that it has packed.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::Arc,
};

use bytes::Bytes;
use ort::{
    environment::Environment,
    ep,
    session::{
        Session,
        builder::{GraphOptimizationLevel, PrepackedWeights, SessionBuilder},
    },
    value::DynValue,
};
use sextant_engine::{Error, LoadRequest, MemoryFiles, ModelFile, WeightsFolder};
use sextant_onnx::{Weight, split_weights, stored_weights};
use sextant_types::Optimization;

use crate::{failure, tensors};

/// Smaller weights stay in the graph: ONNX Runtime reads small ones while it prepares a session.
const MIN_WEIGHT_BYTES: usize = 1024;

/// Models with fewer bytes of weights are not split: a session costs as much memory as such weights do, and loading
/// would take 4 ms instead of 1 ms.
const MIN_MODEL_BYTES: u64 = 1 << 20;

/// Option of a session: the file beside the optimised graph that takes the weights.
const WEIGHTS_FILE: &str = "session.optimized_model_external_initializers_file_name";

/// Option of a session: the folder of the files that a graph in memory names.
pub(crate) const WEIGHTS_FOLDER: &str = "session.model_external_initializers_file_folder_path";

/// Option of a session: smaller weights stay in the optimised graph.
const LEAST_BYTES: &str = "session.optimized_model_external_initializers_min_size_in_bytes";

/// What all sessions of an artefact at one optimisation level are made from.
pub(crate) struct Weights {
    environment: Environment,
    optimization: Optimization,
    source: Source,
    bytes: u64,
}

enum Source {
    /// The optimised graph, and the weights that it leaves out.
    Shared {
        skeleton: Bytes,
        tensors: Vec<Shared>,
        packed: Option<PrepackedWeights>,
    },
    /// The unchanged file: each session has its own copy.
    Whole(Bytes),
    /// A graph whose large weights are in a file of this folder.
    Laid {
        graph: Bytes,
        folder: Arc<WeightsFolder>,
    },
}

/// A weight that sessions borrow.
#[derive(Clone)]
struct Shared {
    name: String,
    value: Arc<DynValue>,
    bytes: u64,
}

impl Weights {
    /// Prepares the request's model and makes its first session. `bytes` is the size of its weights. `sibling` is the
    /// same artefact at another level, whose unchanged weights are reused.
    pub(crate) fn open(
        environment: &Environment,
        request: &LoadRequest,
        bytes: u64,
        sibling: Option<&Weights>,
    ) -> Result<(Self, Session), Error> {
        let threads = usize::from(request.threads);
        let mut weights = Self {
            environment: environment.clone(),
            optimization: request.optimization,
            source: Source::of(&request.model)?,
            bytes,
        };
        if let Source::Whole(model) = &weights.source
            && bytes >= MIN_MODEL_BYTES
        {
            match weights.share(model, sibling, threads) {
                Ok((source, session)) => {
                    weights.source = source;
                    return Ok((weights, session));
                }
                // The model itself may be at fault, which opening the whole file will show.
                Err(reason) => tracing::info!(%reason, "weights are not shared"),
            }
        }
        let session = weights.session(threads);
        let session = session.map_err(|error| failure::load(&error))?;
        Ok((weights, session))
    }

    /// Makes a session that runs on `threads` threads, the caller's included.
    pub(crate) fn session(&self, threads: usize) -> Result<Session, ort::Error> {
        self.source
            .session(self.builder(threads)?, self.optimization)
    }

    /// Bytes of the weights, counted once.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the held weights to `held`, by address, so that each occurs once.
    pub(crate) fn collect(&self, held: &mut HashMap<usize, u64>) {
        match &self.source {
            Source::Shared { tensors, .. } => held.extend(tensors.iter().map(Shared::address)),
            Source::Whole(model) => {
                held.insert(model.as_ptr() as usize, self.bytes);
            }
            Source::Laid { folder, .. } => {
                held.insert(Arc::as_ptr(folder) as usize, self.bytes);
            }
        }
    }

    fn share(
        &self,
        model: &Bytes,
        sibling: Option<&Weights>,
        threads: usize,
    ) -> Result<(Source, Session), String> {
        let known = sibling.map(Weights::by_name).unwrap_or_default();
        let (skeleton, tensors) = self.optimize(model, &known)?;
        let source = Source::Shared {
            skeleton,
            tensors,
            packed: (self.optimization == Optimization::All).then(PrepackedWeights::new),
        };
        let session = self
            .builder(threads)
            .and_then(|builder| source.session(builder, self.optimization))
            .map_err(|error| error.message().to_owned())?;
        Ok((source, session))
    }

    /// The optimised graph without its weights, and the weights, through two files: ONNX Runtime offers no other way.
    /// The files are in memory and have no name, so nothing is left of them whatever happens here.
    ///
    /// The optimisation borrows the weights, too. Weights that it leaves unchanged, in most models most of them, are
    /// those that sessions share afterwards; the others are read one by one.
    fn optimize(
        &self,
        model: &Bytes,
        known: &HashMap<&str, &Shared>,
    ) -> Result<(Bytes, Vec<Shared>), String> {
        let split = split_weights(model, MIN_WEIGHT_BYTES).map_err(|error| error.to_string())?;
        let lent = split
            .weights
            .iter()
            .map(|weight| Shared::new(weight, known.get(weight.name.as_str()).copied()))
            .collect::<Result<Vec<_>, _>>()?;
        let files = MemoryFiles::take().map_err(|error| format!("no file in memory: {error}"))?;
        let (graph, data) = files.files();
        let write = || -> Result<Session, ort::Error> {
            let builder = self
                .builder(1)?
                .with_optimization_level(level(self.optimization))?
                .with_prepacking(false)?
                .with_optimized_model_path(path(graph))?
                .with_config_entry(WEIGHTS_FILE, data.as_raw_fd().to_string())?
                .with_config_entry(LEAST_BYTES, MIN_WEIGHT_BYTES.to_string())?;
            lend(builder, &lent)?.commit_from_memory(&split.skeleton)
        };
        write().map_err(|error| error.message().to_owned())?;
        let mut known = known.clone();
        known.extend(lent.iter().map(|shared| (shared.name.as_str(), shared)));
        read_back(graph, data, &known)
    }

    /// No spinning and no arena. The arena keeps the memory of the largest batch (88 MB for ResNet-18 in batches of
    /// 16), in every session; the process's allocator keeps it for all of them together, for a while. Memory patterns
    /// are kept for every shape ever seen, and made no measurable difference to speed.
    fn builder(&self, threads: usize) -> Result<SessionBuilder, ort::Error> {
        Ok(Session::builder(&self.environment)?
            .with_intra_threads(threads)?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?
            .with_memory_pattern(false)?
            .with_execution_providers([ep::CPU::default().with_arena_allocator(false).build()])?)
    }

    fn by_name(&self) -> HashMap<&str, &Shared> {
        match &self.source {
            Source::Shared { tensors, .. } => tensors
                .iter()
                .map(|shared| (shared.name.as_str(), shared))
                .collect(),
            Source::Whole(_) | Source::Laid { .. } => HashMap::new(),
        }
    }
}

// === impl Source ===

impl Source {
    fn of(model: &ModelFile) -> Result<Self, Error> {
        Ok(match model.located()? {
            None => Self::Whole(model.graph.clone()),
            Some((graph, folder)) => Self::Laid {
                graph,
                folder: Arc::clone(folder),
            },
        })
    }

    fn session(
        &self,
        builder: SessionBuilder,
        optimization: Optimization,
    ) -> Result<Session, ort::Error> {
        let builder = builder.with_prepacking(optimization == Optimization::All)?;
        match self {
            Self::Whole(model) => builder
                .with_optimization_level(level(optimization))?
                .commit_from_memory(model),
            Self::Laid { graph, folder } => builder
                .with_optimization_level(level(optimization))?
                .with_config_entry(WEIGHTS_FOLDER, folder.path().to_string_lossy())?
                .commit_from_memory(graph),
            Self::Shared {
                skeleton,
                tensors,
                packed,
            } => {
                let builder = builder.with_optimization_level(GraphOptimizationLevel::Disable)?;
                let mut builder = lend(builder, tensors)?;
                if let Some(packed) = packed {
                    builder = builder.with_prepacked_weights(packed)?;
                }
                builder.commit_from_memory(skeleton)
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// A weight in memory of its own, unless `known` has the same content.
    fn new(weight: &Weight, known: Option<&Shared>) -> Result<Self, String> {
        if let Some(known) = known.filter(|known| tensors::equals(&known.value, weight)) {
            return Ok(known.clone());
        }
        Ok(Self {
            name: weight.name.clone(),
            value: Arc::new(tensors::own(weight)?),
            bytes: weight.bytes.len() as u64,
        })
    }

    fn address(&self) -> (usize, u64) {
        (Arc::as_ptr(&self.value) as usize, self.bytes)
    }
}

/// Completes a graph with weights from elsewhere.
fn lend(mut builder: SessionBuilder, tensors: &[Shared]) -> Result<SessionBuilder, ort::Error> {
    for Shared { name, value, .. } in tensors {
        // The first call completes the graph; the second makes the session read the lent memory instead of a copy, and
        // share what it packs.
        builder = builder
            .with_external_initializer(name, Arc::clone(value))?
            .with_initializer(name, Arc::clone(value))?;
    }
    Ok(builder)
}

/// An optimised graph without its weights, and the weights; a known weight with the same content is reused.
fn read_back(
    graph: &File,
    data: &File,
    known: &HashMap<&str, &Shared>,
) -> Result<(Bytes, Vec<Shared>), String> {
    let optimized =
        fs::read(path(graph)).map_err(|error| format!("cannot read it back: {error}"))?;
    let read = |offset, length| {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        data.read_exact_at(&mut bytes, offset).ok()?;
        Some(Bytes::from(bytes))
    };
    let mut tensors = Vec::new();
    let skeleton = stored_weights(&optimized.into(), read, |weight| {
        let known = known.get(weight.name.as_str()).copied();
        tensors.push(Shared::new(&weight, known));
    });
    let skeleton = skeleton.map_err(|error| error.to_string())?;
    let tensors = tensors.into_iter().collect::<Result<_, _>>()?;
    Ok((skeleton, tensors))
}

fn path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn level(optimization: Optimization) -> GraphOptimizationLevel {
    match optimization {
        Optimization::Basic => GraphOptimizationLevel::Level1,
        Optimization::All => GraphOptimizationLevel::All,
    }
}
