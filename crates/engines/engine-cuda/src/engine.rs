//! The engine: one device, its memory, and the models on it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{
    Capabilities, Device as DeviceKind, DeviceMemory, Engine, Error, LiveMap, LoadRequest,
    LoadedModel,
};
use sextant_types::{DataType, Digest, Optimization, Precision};

use crate::{
    NAME,
    device::{Device, Images, pinned_bytes},
    driver::Driver,
    lower::Target,
    model::{CudaModel, Resident},
    prepared::{Limits, Places, PreparedModel},
};

/// Types of inputs and outputs.
const DATA_TYPES: [DataType; 8] = [
    DataType::Bool,
    DataType::Uint8,
    DataType::Int8,
    DataType::Int32,
    DataType::Int64,
    DataType::Fp16,
    DataType::Bf16,
    DataType::Fp32,
];

/// How the engine divides the device's memory, and what it keeps ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Size of a page, bytes; a multiple of 256. Larger weights are stored in several pages. Where the device maps
    /// memory in larger pieces, a page is as many of these pieces as are needed; pieces are usually 2 MiB.
    pub page_bytes: u64,
    /// Pages of the cache; `None` takes nine tenths of the memory that the other parts leave.
    pub pages: Option<u64>,
    /// Memory for activations, bytes.
    pub workspace_bytes: u64,
    /// Memory for inputs and outputs of batches, bytes, on the device and, pinned, on the host.
    pub io_bytes: u64,
    /// Memory for the libraries, bytes.
    pub scratch_bytes: u64,
    /// Largest batch for which a graph is captured before it comes.
    pub largest_batch: u64,
    /// Pinned host memory for models, bytes. A model in it is loaded as fast as the device can copy, without being read
    /// or planned again. When the memory is full, the model used longest ago makes room.
    pub host_bytes: u64,
}

/// A device behind the engine trait. Cheap to clone; clones share the device.
#[derive(Clone)]
pub struct CudaEngine {
    shared: Arc<Shared>,
}

/// An artefact at a precision.
type Key = (Digest, Precision);

struct Shared {
    device: Arc<Device>,
    config: Config,
    residents: LiveMap<Key, Resident>,
    /// Prepared models; the one used last is at the end.
    prepared: Mutex<Vec<(Key, Arc<PreparedModel>)>>,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            page_bytes: 16 << 20,
            pages: None,
            workspace_bytes: 1 << 30,
            io_bytes: 512 << 20,
            scratch_bytes: 128 << 20,
            largest_batch: 64,
            host_bytes: 4 << 30,
        }
    }
}

// === impl CudaEngine ===

impl CudaEngine {
    /// Takes all the memory on a device that the engine will ever use.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the device does not have the configured memory.
    pub fn new(driver: Arc<dyn Driver>, config: Config) -> Result<Self, Error> {
        let shared = Shared {
            device: Device::start(driver, &config)?,
            config,
            residents: LiveMap::default(),
            prepared: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Number of pages that no model holds.
    pub fn free_pages(&self) -> u64 {
        self.shared.device.pages.free() as u64
    }

    /// Whether models read their pages in windows. Then a load into other pages than the last time needs no new graphs.
    pub fn has_windows(&self) -> bool {
        self.shared.device.has_windows()
    }

    /// Total time that mapping pages took.
    pub fn mapping_time(&self) -> Duration {
        self.shared.device.mapping_time()
    }

    /// Current clock of the device's multiprocessors, MHz.
    pub fn clock_mhz(&self) -> Result<u32, Error> {
        self.shared.device.driver.clock_mhz()
    }

    fn target(&self, precision: Precision) -> Result<Target, Error> {
        let driver = &self.shared.device.driver;
        let page_bytes = self.shared.device.layout.page_bytes;
        Target::new(precision, driver.abilities(), page_bytes)
            .filter(|_| self.capabilities().precisions.contains(&precision))
            .ok_or_else(|| {
                let name = &driver.properties().name;
                Error::Unsupported(format!("precision `{}` on `{name}`", precision.name()))
            })
    }

    fn prepared(&self, request: &LoadRequest) -> Result<Arc<PreparedModel>, Error> {
        let key = (request.artefact, request.precision);
        let mut kept = self.shared.prepared.lock();
        if let Some(index) = kept.iter().position(|(known, _)| *known == key) {
            let entry = kept.remove(index);
            kept.push(entry.clone());
            return Ok(entry.1);
        }
        drop(kept);
        let limits = Limits {
            largest_batch: self.shared.config.largest_batch,
            workspace_bytes: self.shared.config.workspace_bytes,
        };
        let target = self.target(request.precision)?;
        let place = |images: Vec<Bytes>| Places {
            window: self.shared.device.window(images.len()),
            images: self.place(images),
        };
        let prepared = PreparedModel::new(&request.model.whole()?, target, limits, place)?;
        let prepared = Arc::new(prepared);
        let mut kept = self.shared.prepared.lock();
        // Of the models in ordinary memory, only the last is kept.
        kept.retain(|(_, other)| matches!(other.places.images, Images::Pinned { .. }));
        kept.push((key, Arc::clone(&prepared)));
        Ok(prepared)
    }

    /// Pins page images if it can make room. It forgets nothing for images that exceed all pinned memory.
    fn place(&self, images: Vec<Bytes>) -> Images {
        if pinned_bytes(&images) > self.shared.config.host_bytes {
            return Images::Ordinary(images);
        }
        loop {
            match self.shared.device.pin(&images) {
                Ok(pinned) => return pinned,
                Err(Error::OutOfMemory(_)) if self.forget_one() => {}
                Err(_) => return Images::Ordinary(images),
            }
        }
    }

    /// Forgets the model used longest ago of those that are not on the device; returns `false` where there is none. A
    /// model on the device would keep its memory.
    fn forget_one(&self) -> bool {
        let mut kept = self.shared.prepared.lock();
        let unused = kept.iter().position(|(_, it)| Arc::strong_count(it) == 1);
        unused.map(|index| kept.remove(index)).is_some()
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let properties = self.shared.device.driver.properties();
        let mut precisions = vec![Precision::Fp32, Precision::Fp16];
        if properties.compute_capability >= (8, 0) {
            precisions.extend([Precision::Tf32, Precision::Bf16]);
        }
        Capabilities {
            precisions,
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: DATA_TYPES.to_vec(),
        }
    }

    fn device(&self) -> DeviceKind {
        let device = &self.shared.device;
        DeviceKind::Dedicated {
            name: format!("{NAME}:{}", device.driver.properties().ordinal),
            memory: DeviceMemory {
                page_bytes: device.layout.page_bytes,
                pages: device.layout.pages,
            },
        }
    }

    fn device_model(&self) -> Option<String> {
        Some(self.shared.device.driver.properties().name.clone())
    }

    fn keeps_prepared(&self) -> bool {
        self.shared.config.host_bytes > 0
    }

    fn has_prepared(&self, artefact: &Digest, precision: Precision) -> bool {
        let kept = self.shared.prepared.lock();
        kept.iter()
            .any(|(known, _)| *known == (*artefact, precision))
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let key = (request.artefact, request.precision);
        let resident = self.shared.residents.get_or_make(key, || {
            let prepared = self.prepared(request)?;
            Resident::load(&self.shared.device, prepared)
        })?;
        Ok(Arc::new(CudaModel::new(resident)))
    }

    fn resident_weights_bytes(&self) -> u64 {
        let residents = self.shared.residents.values();
        residents.iter().map(|it| it.weights_bytes()).sum()
    }
}
