//! A dispatcher over workers with one slot each, whose devices take as long as a profile says.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use sextant_baselines::Options;
use sextant_dispatcher::{Config, Dispatcher};
use sextant_engine::{
    Engine,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_metadata::{
    Count, DesiredState, DesiredVariant, InProcessStore, Instance, MetadataStore,
};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{DispatcherClient, WorkerClient};
use sextant_schedule::{Delay, LatencyTable};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, DeviceType, DeviceTypeName, EngineName,
    Metric, ModelId, Optimization, Precision, Profile, Signature, TensorSpec, Variant, VariantId,
    VariantSpec, WorkerId,
};
use sextant_worker::Worker;

use crate::{
    fleet::{self, Port},
    load::wait_until,
};

/// The application of the one variant.
pub const APPLICATION: &str = "agreement";
const VARIANT: &str = "emulated-variant";
const MEMORY_BYTES: u64 = 1 << 30;

/// Devices of a type.
pub struct Kind {
    /// The type's name.
    pub name: String,
    /// How many there are, each a worker with one slot.
    pub devices: u16,
    /// Price of one, US dollars an hour.
    pub hour_usd: f64,
    /// How long batches run there: a line over the rows.
    pub latency: Arc<LatencyTable>,
}

/// How the parts reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// In one process.
    Process,
    /// Over gRPC.
    Fleet,
}

impl Shape {
    /// The second argument of the command line: `fleet`, or nothing for one process.
    pub fn from_arguments() -> Result<Self> {
        match std::env::args().nth(2).as_deref() {
            None => Ok(Self::Process),
            Some("fleet") => Ok(Self::Fleet),
            Some(other) => {
                anyhow::bail!("`{other}` is not a shape: `fleet`, or nothing for one process")
            }
        }
    }

    /// The end of a cell's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Process => "",
            Self::Fleet => "-fleet",
        }
    }
}

/// The running parts; they end when this is dropped.
pub struct Service {
    /// Takes queries for [`APPLICATION`].
    pub dispatcher: DispatcherClient,
    _folder: tempfile::TempDir,
    _stop: tokio::sync::watch::Sender<bool>,
}

impl Service {
    /// Starts all parts and loads the variant on every worker. The variant counts as registered on the first kind and
    /// as measured on the others.
    pub async fn start(options: Options, kinds: &[Kind], shape: Shape) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let objects: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(folder.path().join("objects"), None)?);
        let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
        let variant = variant(&objects, kinds).await?;
        let mut workers: Vec<WorkerClient> = Vec::new();
        for kind in kinds {
            let device_type = Arc::new(kind.device_type()?);
            for _ in 0..kind.devices {
                let name = WorkerId::new(format!("emulated-worker-{}", workers.len()))?;
                let port = match shape {
                    Shape::Process => None,
                    Shape::Fleet => Some(Port::open(&metadata).await?),
                };
                let config = sextant_worker::Config {
                    lease_ms: 600_000,
                    endpoint: port.as_ref().map(|port| Arc::clone(&port.endpoint)),
                    device_type: Some(Arc::clone(&device_type)),
                    ..sextant_worker::Config::new(name, 1, MEMORY_BYTES)
                };
                let (objects, metadata) = (Arc::clone(&objects), Arc::clone(&metadata));
                let engines = vec![kind.engine(&variant)];
                let (worker, mut service) = Worker::start(config, engines, objects, metadata)?;
                service.announce().await;
                if let Some(port) = port {
                    port.offer_worker(worker.clone());
                }
                workers.push(worker);
            }
        }
        let devices = workers.len();
        let (network, known) = match shape {
            Shape::Process => (Delay::default(), workers.clone()),
            Shape::Fleet => (fleet::network(), Vec::new()),
        };
        let config = Config {
            network,
            ..Config::default()
        };
        let (dispatcher, service) =
            Dispatcher::start_by(&options, config, known, Arc::clone(&metadata));
        let stop = tokio::sync::watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        tokio::spawn(service.run(async move { drop(stopped.wait_for(|stop| *stop).await) }));
        metadata.publish_variant(Arc::clone(&variant)).await?;
        let client: DispatcherClient = match shape {
            Shape::Process => dispatcher,
            Shape::Fleet => fleet::join(&dispatcher, &metadata, devices).await?,
        };
        let everywhere = DesiredVariant {
            variant: VariantId::new(VARIANT)?,
            workers: Count::Everywhere,
            pinned: false,
            needed: 0,
        };
        let wanted = DesiredState::new(1, vec![everywhere], u64::MAX);
        metadata.set_desired(wanted).await?;
        let is_serving = |of: &Instance| of.state.is_serving();
        let ready = async {
            loop {
                let snapshot = metadata.snapshot().await?;
                let serving = snapshot.instances.iter().filter(|of| is_serving(of));
                if serving.count() == devices {
                    return anyhow::Ok(());
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ready)
            .await
            .context("the variant does not become ready")??;
        Ok(Self {
            dispatcher: client,
            _folder: folder,
            _stop: stop,
        })
    }
}

impl Kind {
    fn device_type(&self) -> Result<DeviceType> {
        Ok(DeviceType {
            name: DeviceTypeName::new(&self.name)?,
            engines: vec![EngineName(sextant_engine::emulated::NAME.to_owned())],
            slots: 1,
            memory_bytes: MEMORY_BYTES,
            price_per_hour_usd: self.hour_usd,
            start_ms: 0,
        })
    }

    fn ms(&self, rows: u32) -> f64 {
        self.latency.of(rows) as f64 / 1e6
    }

    fn profile(&self) -> Profile {
        let most = self.latency.measured_rows();
        let batch = |rows| BatchLatency {
            batch: rows,
            p50_ms: self.ms(rows),
            p99_ms: self.ms(rows),
            mean_ms: self.ms(rows),
            samples: 1,
        };
        let alpha_ms = self.ms(2) - self.ms(1);
        Profile {
            load_ms: 0.0,
            first_load_ms: None,
            batches: (1..=most).map(batch).collect(),
            alpha_ms,
            beta_ms: self.ms(1) - alpha_ms,
            residual_ms: 0.0,
            saturation_rps: f64::from(most) / self.ms(most) * 1e3,
            peak_memory_bytes: 100,
            weights_bytes: 10,
            sizes: Default::default(),
            concurrent: Vec::new(),
        }
    }

    /// An engine that takes exactly as long as the profile says.
    fn engine(&self, variant: &Variant) -> Arc<dyn Engine> {
        let (signature, profile) = (variant.signature.clone(), self.profile());
        let engine = EmulatedEngine::new(move |_| {
            Ok(EmulatedModel {
                signature: signature.clone(),
                alpha_ms: profile.alpha_ms,
                beta_ms: profile.beta_ms,
                load_ms: 0.0,
                weights_bytes: 10,
            })
        });
        Arc::new(engine.with_sleep(|time| wait_until(Instant::now() + time)))
    }
}

async fn variant(objects: &Arc<dyn ObjectStore>, kinds: &[Kind]) -> Result<Arc<Variant>> {
    let artefact = objects.put_blob(Bytes::from_static(b"emulated")).await?;
    let (first, others) = kinds.split_first().context("a fleet has devices")?;
    let most = first.latency.measured_rows();
    let profile = |kind: &Kind| Ok((DeviceTypeName::new(&kind.name)?, kind.profile()));
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(1)],
    };
    let mut variant = Variant {
        id: VariantId::new(VARIANT)?,
        application: ApplicationId::new(APPLICATION)?,
        model: ModelId::new("emulated")?,
        spec: VariantSpec {
            engine: EngineName(sextant_engine::emulated::NAME.to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: u16::try_from(most)?,
        },
        artefact,
        signature: Signature {
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            batched: true,
        },
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 1.0,
            lower: 1.0,
            upper: 1.0,
            records: 1,
            evaluation_batch: 1,
        },
        profile: first.profile(),
        cost_per_hour_usd: 0.0,
        cost_per_1k_usd: 0.0,
        measured_on: None,
        profiles: others.iter().map(profile).collect::<Result<_>>()?,
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    };
    variant.price(&first.device_type()?);
    Ok(Arc::new(variant))
}
