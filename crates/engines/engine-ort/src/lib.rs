//! ONNX Runtime behind the engine trait.
//!
//! Entry points: [`OrtEngine::find_library`], [`OrtEngine::new`]; [`GpuEngine::new`] for its providers of NVIDIA GPUs.
//!
//! The library is loaded at run time, so that the service builds and starts without it. There is one ONNX Runtime
//! environment per process, with telemetry off and its log sent to `tracing`.
//!
//! **Invariant:** one thread at a time uses an `ort` session (ONNX Runtime's `Run` is not safe to enter twice, whatever
//! its documentation says). Concurrent runs get sessions of their own from a pool whose weights are shared. Threads
//! never spin while they wait for work.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel};
use sextant_types::{DataType, Optimization, Precision};

mod failure;
mod gpu;
mod library;
mod model;
mod tensors;
mod weights;

pub use gpu::{Gpu, GpuEngine, Provider};
pub use library::{LIBRARY_FILE, LIBRARY_VERSION};

/// The engine's name in variant ids.
pub const NAME: &str = "ort";

/// ONNX Runtime. Cheap to clone; clones share the weights of what they load, and every value of a process uses the same
/// environment.
#[derive(Clone)]
pub struct OrtEngine {
    environment: ort::environment::Environment,
    models: Arc<model::Models>,
}

impl OrtEngine {
    /// Loads the library at `library` and starts the process-wide environment.
    ///
    /// The first call in a process decides which library is used; later ones share it.
    pub fn new(library: &Path) -> Result<Self, Error> {
        Ok(Self {
            environment: library::environment(library)?,
            models: Arc::default(),
        })
    }

    /// The path of the library: `configured`, else `ORT_DYLIB_PATH`, else the package `onnxruntime` of the Python
    /// environment that this program was installed into, else the cache folder that `cargo xtask provision` fills
    /// (`$SEXTANT_CACHE`, or `sextant` in the user's cache folder).
    ///
    /// Only existing files are returned. A configured path that does not exist gives `None`: another library never
    /// silently replaces it.
    pub fn find_library(configured: Option<&Path>) -> Option<PathBuf> {
        library::find(configured)
    }
}

impl Engine for OrtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![
                Precision::Fp32,
                Precision::Int8Dynamic,
                Precision::Int8Static,
                Precision::Int8Weights,
                Precision::Int4Weights,
            ],
            optimizations: vec![Optimization::Basic, Optimization::All],
            threads: true,
            data_types: DataType::ALL.to_vec(),
        }
    }

    fn maps_weights(&self) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.models.load(&self.environment, request)
    }

    fn resident_weights_bytes(&self) -> u64 {
        self.models.resident_weights_bytes()
    }
}
