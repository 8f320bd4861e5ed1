//! Queries that share batches, for counting instructions: `company QUERIES SHARE`.
//!
//! A dispatcher and a worker in one process answer this many queries, eight at a time, with an emulated engine that
//! takes no time. Of the queries that shared a batch, the share `SHARE` is run once more alone; 0 runs none. `cargo
//! xtask bench right` counts the instructions with and without.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::join_all;
use sextant_dispatcher::{Config, Dispatcher, Sampling};
use sextant_engine::emulated::{EmulatedEngine, EmulatedModel, NAME};
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{Dispatch, Load, Query, WorkerClient};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, EngineName, Metric, ModelId, NamedTensor,
    Optimization, Precision, Profile, Route, Signature, Tensor, TensorSpec, Variant, VariantId,
    VariantSpec, WorkerId,
};
use sextant_worker::Worker;

const NAME_OF_ALL: &str = "company";
const MEMORY_BYTES: u64 = 1 << 30;

/// Queries that are sent together.
const TOGETHER: usize = 8;

/// Rows of the largest batch, and numbers in a row.
const MOST: u16 = 8;
const WIDTH: usize = 64;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("`company QUERIES SHARE`");
    let (queries, share) = (next()?.parse::<usize>()?, next()?.parse::<f64>()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(queries, share))
}

async fn run(queries: usize, share: f64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let objects: Arc<dyn ObjectStore> = Arc::new(LocalStore::open(folder.path(), None)?);
    let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
    let artefact = objects.put_blob(Bytes::from_static(b"emulated")).await?;
    let variant = Arc::new(variant(artefact)?);
    let signature = variant.signature.clone();
    let engine = EmulatedEngine::new(move |_| {
        Ok(EmulatedModel {
            signature: signature.clone(),
            alpha_ms: 0.0,
            beta_ms: 0.0,
            load_ms: 0.0,
            weights_bytes: 10,
        })
    });
    let engine = Arc::new(engine.with_sleep(|_| {}));
    let config = sextant_worker::Config {
        lease_ms: 600_000,
        ..sextant_worker::Config::new(WorkerId::new(NAME_OF_ALL)?, 1, MEMORY_BYTES)
    };
    let stores = (objects, Arc::clone(&metadata));
    let (worker, mut service) = Worker::start(config, vec![engine], stores.0, stores.1)?;
    service.announce().await;
    let worker: WorkerClient = worker;
    let config = Config {
        agreement: Sampling {
            share,
            quiet_utilization: 1.0,
        },
        ..Config::default()
    };
    let (dispatcher, service) = Dispatcher::start(config, vec![worker.clone()], metadata.clone());
    tokio::spawn(service.run(std::future::pending()));
    metadata.publish_variant(Arc::clone(&variant)).await?;
    worker.load(Load::at_once(variant)).await?;
    let route = Route::Variant(VariantId::new(NAME_OF_ALL)?);
    while !dispatcher.is_loaded(&route) {
        tokio::task::yield_now().await;
    }
    let mut shared = 0;
    for _ in 0..queries / TOGETHER {
        let asked = (0..TOGETHER).map(|_| dispatcher.query(query(&route)));
        for answer in join_all(asked).await {
            shared += u32::from(answer?.timings.batch_rows > 1);
        }
    }
    ensure!(shared > 0, "no query shared a batch");
    Ok(())
}

fn query(route: &Route) -> Query {
    let row = Tensor::from_elements(vec![1, WIDTH], &[0.5f32; WIDTH]);
    let row = row.expect("as many elements as the shape has");
    Query::new(
        route.clone(),
        vec![NamedTensor::new("x", row)],
        Instant::now(),
    )
}

fn variant(artefact: sextant_types::Digest) -> Result<Variant> {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(WIDTH as u64)],
    };
    let batch = |batch| BatchLatency {
        batch,
        p50_ms: 0.01,
        p99_ms: 0.01,
        mean_ms: 0.01,
        samples: 1,
    };
    Ok(Variant {
        id: VariantId::new(NAME_OF_ALL)?,
        application: ApplicationId::new(NAME_OF_ALL)?,
        model: ModelId::new(NAME_OF_ALL)?,
        spec: VariantSpec {
            engine: EngineName(NAME.to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: MOST,
        },
        artefact,
        signature: Signature {
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            batched: true,
        },
        padding: None,
        accuracy: Accuracy {
            metric: Metric::Top1,
            kind: sextant_types::AccuracyKind::Accuracy,
            value: 1.0,
            lower: 1.0,
            upper: 1.0,
            records: 1,
            evaluation_batch: 1,
        },
        profile: Profile {
            first_load_ms: None,
            load_ms: 0.0,
            batches: vec![batch(1), batch(MOST.into())],
            alpha_ms: 0.0,
            beta_ms: 0.01,
            residual_ms: 0.0,
            saturation_rps: 1e5,
            peak_memory_bytes: 100,
            weights_bytes: 10,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 0.1,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    })
}
