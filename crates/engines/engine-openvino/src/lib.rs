//! OpenVINO behind the engine trait.
//!
//! Entry points: [`OpenvinoEngine::find_library`], [`OpenvinoEngine::new`].
//!
//! The library is loaded at run time, so that the service builds and starts without it. If the processor multiplies
//! 16-bit floats, it offers [`Precision::Bf16`] (or [`Precision::Fp16`]) without another artefact: the weights are
//! converted while they are loaded, and inputs and outputs stay as the model declares them.
//!
//! Its kernels know no 64-bit elements. It converts 64-bit integers to 32 bits inside, so inputs that do not fit are
//! refused, and models with 64-bit floats as inputs or outputs are refused. It accepts no strings.
//!
//! **Invariant:** a session runs on the caller's thread and `threads - 1` others, for one thread at a time. OpenVINO's
//! own way of running several batches at once passes each of them to another thread, which costs a small model 30 us a
//! batch. Here concurrent runs get sessions of their own, which share the weights as they were read.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use openvino::{Core, DeviceType, PropertyKey};
use openvino_sys::library::load_from;
use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel, find_library};
use sextant_types::{Optimization, Precision};

mod failure;
mod model;
mod session;
mod tensors;

/// The engine's name in variant ids.
pub const NAME: &str = "openvino";

/// The version of OpenVINO that is provisioned and tested.
pub const LIBRARY_VERSION: &str = "2026.4.1";

/// The library's file name inside the cache folder's `openvino-{LIBRARY_VERSION}`, beside those that it
/// loads itself.
pub const LIBRARY_FILE: &str = "libopenvino_c.so.2641";

/// OpenVINO. Cheap to clone; clones share the weights of what they load.
#[derive(Clone)]
pub struct OpenvinoEngine {
    models: Arc<model::Models>,
    precisions: Vec<Precision>,
}

impl OpenvinoEngine {
    /// Loads the library at `library`, and asks it for the abilities of this machine's processor.
    ///
    /// The first call in a process decides which library is used; later ones share it.
    pub fn new(library: &Path) -> Result<Self, Error> {
        let unavailable = |reason: String| Error::Unavailable {
            engine: NAME,
            reason: format!(
                "`{}` is not a usable OpenVINO {LIBRARY_VERSION} library: {reason}; run `cargo xtask \
                 provision`",
                library.display()
            ),
        };
        load_from(library.to_path_buf()).map_err(unavailable)?;
        let core = Core::new().map_err(|error| unavailable(error.to_string()))?;
        let able = core.get_property(&DeviceType::CPU, &PropertyKey::DeviceCapabilities);
        let able = able.map_err(|error| unavailable(failure::message(&error)))?;
        Ok(Self {
            models: Arc::default(),
            precisions: precisions(&able),
        })
    }

    /// The path of the library: `configured`, else the package `openvino` of the Python environment that this program
    /// was installed into, else in the cache folder that `cargo xtask provision` fills, see [`find_library`].
    pub fn find_library(configured: Option<&Path>) -> Option<PathBuf> {
        let place = Path::new(&format!("openvino-{LIBRARY_VERSION}")).join(LIBRARY_FILE);
        let packaged = Path::new("openvino/libs").join(LIBRARY_FILE);
        find_library(configured, None, &packaged, &place)
    }
}

/// The precisions in which a processor with these abilities, in OpenVINO's words, computes at full speed.
fn precisions(able: &str) -> Vec<Precision> {
    let is_able = |word: &str| able.split_whitespace().any(|it| it == word);
    let mut precisions = vec![Precision::Fp32, Precision::Int8Static];
    for (word, precision) in [("BF16", Precision::Bf16), ("FP16", Precision::Fp16)] {
        if is_able(word) {
            precisions.push(precision);
        }
    }
    precisions
}

impl Engine for OpenvinoEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: self.precisions.clone(),
            optimizations: vec![Optimization::All],
            threads: true,
            data_types: tensors::DATA_TYPES.to_vec(),
        }
    }

    fn maps_weights(&self) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let precision = request.precision;
        if matches!(precision, Precision::Bf16 | Precision::Fp16)
            && !self.precisions.contains(&precision)
        {
            return Err(Error::Unsupported(format!(
                "this processor does not compute in {}",
                precision.name()
            )));
        }
        self.models.load(request)
    }

    fn resident_weights_bytes(&self) -> u64 {
        self.models.resident_weights_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_asked_for_what_it_computes_in() {
        let plain = [Precision::Fp32, Precision::Int8Static];
        assert_eq!(precisions("WINOGRAD FP32 INT8 BIN EXPORT_IMPORT"), plain);
        let all = precisions("BF16 WINOGRAD FP32 FP16 INT8");
        assert_eq!(all[2..], [Precision::Bf16, Precision::Fp16]);
    }
}
