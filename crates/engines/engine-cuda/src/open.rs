//! The engine on a device of this machine.

use std::sync::Arc;

use sextant_engine::Error;

use crate::{Config, CudaEngine, driver::cuda::CudaDriver};

impl CudaEngine {
    /// Opens device `ordinal` of this machine, 0 for the first, and takes the device's memory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no such device or a library is missing, saying what to do;
    /// else as [`Self::new`].
    pub fn open(ordinal: u32, config: Config) -> Result<Self, Error> {
        Self::new(Arc::new(CudaDriver::open(ordinal)?), config)
    }
}
