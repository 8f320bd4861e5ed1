//! A dispatcher over workers with one slot each, whose devices take as long as a profile says.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use sextant_dispatcher::{Config, Dispatcher};
use sextant_engine::{
    Engine,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_metadata::{Count, InProcessStore, Instance, MetadataStore, Wanted, WantedVariant};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_policies::schedule::{LatencyTable, Options};
use sextant_rpc::WorkerClient;
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, EngineName, Metric, ModelId, Optimization,
    Precision, Profile, Signature, TensorSpec, Variant, VariantId, VariantSpec, WorkerId,
};
use sextant_worker::Worker;

/// The application of the one variant.
pub const APPLICATION: &str = "agreement";
const VARIANT: &str = "emulated-variant";

/// The running parts; they end with it.
pub struct Service {
    /// Takes queries for [`APPLICATION`].
    pub dispatcher: Arc<Dispatcher>,
    _folder: tempfile::TempDir,
    _stop: tokio::sync::watch::Sender<bool>,
}

/// Threads are woken this much early and wait out the rest awake.
const AWAKE: Duration = Duration::from_micros(150);

/// Returns at `instant`, a few microseconds late at most while a core is free.
pub fn wait_until(instant: Instant) {
    if let Some(left) = instant.checked_duration_since(Instant::now() + AWAKE) {
        thread::sleep(left);
    }
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

impl Service {
    /// Starts everything and loads the variant on `devices` workers.
    pub async fn start(options: Options, latency: &LatencyTable, devices: u16) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let objects: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(folder.path().join("objects"), None)?);
        let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
        let variant = variant(&objects, latency).await?;
        let mut workers = Vec::new();
        for number in 0..devices {
            let name = WorkerId::new(format!("emulated-worker-{number}"))?;
            let config = sextant_worker::Config {
                lease_ms: 600_000,
                ..sextant_worker::Config::new(name, 1, 1 << 30)
            };
            let (objects, metadata) = (Arc::clone(&objects), Arc::clone(&metadata));
            let engines = vec![engine(&variant)];
            let (worker, mut service) = Worker::start(config, engines, objects, metadata)?;
            service.announce().await;
            workers.push(worker as WorkerClient);
        }
        let config = Config {
            schedule: options,
            ..Config::default()
        };
        let (dispatcher, service) = Dispatcher::start(config, workers, Arc::clone(&metadata));
        let stop = tokio::sync::watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        tokio::spawn(service.run(async move { drop(stopped.wait_for(|stop| *stop).await) }));
        metadata.publish_variant(Arc::clone(&variant)).await?;
        let everywhere = WantedVariant {
            variant: VariantId::new(VARIANT)?,
            workers: Count::Everywhere,
            pinned: false,
        };
        let wanted = Wanted::new(1, vec![everywhere], u64::MAX);
        metadata.set_wanted(wanted).await?;
        let is_serving = |of: &Instance| of.state.is_serving();
        let ready = async {
            loop {
                let snapshot = metadata.snapshot().await?;
                let serving = snapshot.instances.iter().filter(|of| is_serving(of));
                if serving.count() == usize::from(devices) {
                    return anyhow::Ok(());
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ready)
            .await
            .context("the variant does not become ready")??;
        Ok(Self {
            dispatcher,
            _folder: folder,
            _stop: stop,
        })
    }
}

/// An engine that takes as long as the variant's profile says, exactly.
fn engine(variant: &Variant) -> Arc<dyn Engine> {
    let (signature, profile) = (variant.signature.clone(), variant.profile.clone());
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

async fn variant(objects: &Arc<dyn ObjectStore>, latency: &LatencyTable) -> Result<Arc<Variant>> {
    let artefact = objects.put_blob(Bytes::from_static(b"emulated")).await?;
    let most = latency.measured_rows();
    let ms = |rows: u32| latency.of(rows) as f64 / 1e6;
    let batches = (1..=most)
        .map(|rows| BatchLatency {
            batch: rows as _,
            p50_ms: ms(rows),
            p99_ms: ms(rows),
            mean_ms: ms(rows),
            samples: 1,
        })
        .collect();
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(1)],
    };
    let alpha_ms = ms(2) - ms(1);
    Ok(Arc::new(Variant {
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
        accuracy: Accuracy {
            metric: Metric::Top1,
            value: 1.0,
            lower: 1.0,
            upper: 1.0,
            records: 1,
            evaluation_batch: 1,
        },
        profile: Profile {
            load_ms: 0.0,
            batches,
            alpha_ms,
            beta_ms: ms(1) - alpha_ms,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: 100,
            weights_bytes: 10,
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 0.1,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
    }))
}
