//! Room for models that are measured on the device that serves.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use sextant_engine::{
    Capabilities, Error, Interrupt, LoadRequest, LoadedModel, Shortage, StagedBatch,
    pages::PageShortage,
};
use sextant_types::Signature;

use super::*;

mod limits;

/// Pages of the device.
const PAGES: u64 = 1000;

/// The engine of the tests on a device that counts its pages itself.
struct PagedEngine {
    inner: Double,
    free: Arc<AtomicU64>,
    /// Number of loads that were tried.
    tried: Arc<AtomicU64>,
}

struct Paging {
    inner: Arc<dyn LoadedModel>,
    pages: u64,
    free: Arc<AtomicU64>,
}

/// Pages of a model, according to its file.
fn pages(model: &[u8]) -> u64 {
    match model {
        b"vast 1" | b"untold 2" => PAGES + 200,
        b"whole 1" => PAGES,
        b"half 1" | b"half 2" | b"half 3" => 600,
        b"untold 1" => 400,
        _ => 200,
    }
}

impl Engine for PagedEngine {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.tried.fetch_add(1, Ordering::SeqCst);
        let needed = pages(&request.model.graph);
        if request.model.graph.starts_with(b"fixed") {
            let shortage = Shortage::fixed("the workspace is small".to_owned());
            return Err(Error::OutOfMemory(shortage));
        }
        let take = |free: u64| free.checked_sub(needed);
        let order = Ordering::SeqCst;
        if let Err(free) = self.free.fetch_update(order, order, take) {
            let reason = format!("{needed} of {free}");
            if request.model.graph.starts_with(b"untold") {
                return Err(Error::OutOfMemory(reason.into()));
            }
            let short = PageShortage { needed, free };
            return Err(Error::OutOfMemory(Shortage::of_pages(reason, short)));
        }
        Ok(Arc::new(Paging {
            inner: self.inner.load(request)?,
            pages: needed,
            free: Arc::clone(&self.free),
        }))
    }
}

impl LoadedModel for Paging {
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        self.inner.run(inputs)
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        self.inner.stage(inputs)
    }

    fn weights_bytes(&self) -> u64 {
        self.pages
    }

    fn working_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl Drop for Paging {
    fn drop(&mut self) {
        self.free.fetch_add(self.pages, Ordering::SeqCst);
    }
}

/// A worker whose device is full with five models; its engine, and the engine for measuring.
pub struct FullWorker {
    pub world: World,
    engine: Arc<dyn Engine>,
    host: Arc<dyn Engine>,
    pub variants: Vec<Arc<Variant>>,
    /// Number of loads that were tried.
    tried: Arc<AtomicU64>,
}

impl FullWorker {
    async fn new(kind: Kind) -> Self {
        Self::over(kind, Arc::new(InProcessStore::new())).await
    }

    pub async fn over(kind: Kind, metadata: Arc<dyn MetadataStore>) -> Self {
        let record = Arc::<Record>::default();
        let tried = Arc::<AtomicU64>::default();
        let engine: Arc<dyn Engine> = Arc::new(PagedEngine {
            inner: Double {
                device: kind.device(),
                staged: kind == Kind::Staged,
                is_isolated: false,
                record: Arc::clone(&record),
            },
            free: Arc::new(AtomicU64::new(PAGES)),
            tried: Arc::clone(&tried),
        });
        let world = World::over(Arc::clone(&engine), record, config(), metadata).await;
        let host = world.worker.host(&engine).expect("an engine of the worker");
        let mut variants = Vec::new();
        for name in ["m-1", "m-2", "m-3", "m-4", "m-5"] {
            variants.push(world.loaded(name).await);
        }
        assert_eq!(world.used(), PAGES);
        Self {
            world,
            engine,
            host,
            variants,
            tried,
        }
    }

    /// Waits until one more load was tried than before the call.
    fn tries(&self) -> impl Future<Output = ()> {
        let (before, tried) = (self.tried.load(Ordering::SeqCst), Arc::clone(&self.tried));
        until(move || tried.load(Ordering::SeqCst) > before)
    }

    /// The numbers of the loaded variants.
    pub fn loaded(&self) -> Vec<usize> {
        let usage = self.world.worker.usage();
        let is_loaded = |of: &Variant| usage.iter().any(|it| it.variant == of.id);
        let numbers = 1..=self.variants.len();
        let numbers = numbers.zip(&self.variants);
        let loaded = numbers.filter(|(_, of)| is_loaded(of));
        loaded.map(|(number, _)| number).collect()
    }

    /// Loads a model with an engine on a thread of its own, as registration does.
    pub fn measure(&self, file: &'static str) -> Measuring {
        measure(&self.host, file)
    }
}

pub type Measuring = mpsc::Receiver<Result<Arc<dyn LoadedModel>, Error>>;

fn measure(engine: &Arc<dyn Engine>, file: &'static str) -> Measuring {
    measure_until(engine, file, Interrupt::default())
}

fn measure_until(engine: &Arc<dyn Engine>, file: &'static str, interrupt: Interrupt) -> Measuring {
    let (sender, loaded) = mpsc::channel();
    let engine = Arc::clone(engine);
    thread::spawn(move || sender.send(engine.load_interruptible(&request(file), &interrupt)));
    loaded
}

fn request(file: &'static str) -> LoadRequest {
    let mut digest = [0; 32];
    digest[..file.len()].copy_from_slice(file.as_bytes());
    LoadRequest {
        artefact: Digest::from_bytes(digest),
        model: Bytes::from_static(file.as_bytes()).into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// Waits for a load without blocking the runtime's thread.
pub async fn loaded(loading: Measuring) -> Result<Arc<dyn LoadedModel>, Error> {
    let wait = move || loading.recv_timeout(PATIENCE).unwrap();
    tokio::task::spawn_blocking(wait).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_longest_ago_makes_room_for_what_is_measured() {
    for kind in [Kind::Dedicated, Kind::Staged] {
        let full = FullWorker::new(kind).await;
        let world = &full.world;
        for name in ["m-2", "m-1", "m-3", "m-4", "m-5"] {
            world.infer(name, 1, now()).ok();
        }
        let model = loaded(full.measure("m-6")).await.unwrap();
        assert_eq!(full.loaded(), [1, 3, 4, 5]);
        assert_eq!(
            world.state(&full.variants[1]).await,
            Some(InstanceState::Inactive)
        );
        // The measured model keeps its room: another instance is unloaded for a variant that is loaded again.
        world.load(&full.variants[1]).await.unwrap();
        assert_eq!(full.loaded(), [2, 3, 4, 5]);
        assert_eq!(
            model.run(&row(7, 2)).unwrap()[0].to_vec::<f32>().unwrap(),
            [14.0; 2]
        );
        // If the model is loaded again, as often as its loads are measured, it needs no further room.
        drop(model);
        let again = loaded(full.measure("m-6")).await.unwrap();
        assert_eq!(full.loaded(), [2, 3, 4, 5]);
        drop(again);
        until(|| world.worker.info().pages.free == 200).await;
        world.load(&full.variants[0]).await.unwrap();
        for name in ["m-1", "m-2", "m-3", "m-4", "m-5"] {
            world.infer(name, 1, now()).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_or_waits_stays_where_it_is() {
    for kind in [Kind::Dedicated, Kind::Staged] {
        let full = FullWorker::new(kind).await;
        let world = &full.world;
        // Of the variants used longest ago, one has a running batch and one a waiting batch.
        world.record.hold(Step::Exec, Some(1));
        let running = world.infer("m-1", 1, now());
        world.record.begun(Step::Exec, 1).await;
        let waiting = world.infer("m-2", 2, now());
        for name in ["m-3", "m-4"] {
            let id = VariantId::new(name).unwrap();
            world.worker.unload(&id).await.unwrap();
        }
        let half = loaded(full.measure("half 1")).await.unwrap();
        assert_eq!(full.loaded(), [1, 2], "the last one went");
        // Busy instances are not unloaded for other variants either, nor for a variant that would not fit without the
        // model.
        let short = world.load(&full.variants[2]).await.unwrap_err();
        assert_eq!(short.code(), "no_memory");
        drop(half);
        let second = loaded(full.measure("half 2")).await.unwrap();
        assert!(running.is_pending() && waiting.is_pending());
        world.record.release(Step::Exec);
        running.ok();
        waiting.ok();
        drop(second);
        assert_eq!(full.loaded(), [1, 2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_batches_that_are_under_way() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let world = &full.world;
    world.record.hold(Step::Exec, None);
    let sent: Vec<Outcome> = (1..=5)
        .map(|key| world.infer(&format!("m-{key}"), key, now()))
        .collect();
    world.record.begun(Step::Exec, 1).await;
    let loading = full.measure("m-6");
    world.record.count(Step::Load, 5).await;
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    world.record.release(Step::Exec);
    for outcome in sent {
        outcome.ok();
    }
    loaded(loading).await.unwrap();
    assert_eq!(full.loaded().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_for_what_is_larger_than_the_device() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let refused = loaded(full.measure("vast 1")).await.err().unwrap();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    let text = refused.to_string();
    for part in ["`1200` pages", "`1000` in all", "smaller model"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    assert_eq!(full.world.used(), PAGES);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_for_memory_that_no_unload_frees() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let refused = loaded(full.measure("fixed 1")).await.err().unwrap();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("the workspace is small"), "{text}");
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    assert_eq!(full.world.used(), PAGES);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_cannot_tell_what_it_needs_gets_more_than_the_file() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let model = loaded(full.measure("untold 1")).await.unwrap();
    assert_eq!(full.loaded().len(), 3);
    drop(model);
    let refused = loaded(full.measure("untold 2")).await.err().unwrap();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    assert!(refused.to_string().contains("1200 of 1000"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_waits_for_room_can_be_called_off() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let world = &full.world;
    world.record.hold(Step::Exec, None);
    let sent: Vec<Outcome> = (1..=5)
        .map(|key| world.infer(&format!("m-{key}"), key, now()))
        .collect();
    world.record.begun(Step::Exec, 1).await;
    let interrupt = Interrupt::default();
    let loading = measure_until(&full.host, "m-6", interrupt.clone());
    until(|| full.tried.load(Ordering::SeqCst) == 6).await;
    interrupt.raise();
    let ended = loaded(loading).await.err().unwrap();
    assert_eq!(ended, Error::Interrupted);
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    world.record.release(Step::Exec);
    for outcome in sent {
        outcome.ok();
    }
    // Nobody holds the turn of the load that was called off.
    loaded(full.measure("m-7")).await.unwrap();
    assert_eq!(full.loaded().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_for_a_load_that_would_still_not_fit() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let world = &full.world;
    world.record.hold(Step::Exec, Some(1));
    let running = world.infer("m-1", 1, now());
    world.record.begun(Step::Exec, 1).await;
    for variant in &full.variants[2..] {
        world.worker.unload(&variant.id).await.unwrap();
    }
    let _half = loaded(full.measure("half 1")).await.unwrap();
    assert_eq!(full.loaded(), [1, 2]);
    // One of the two is idle, and both would have to be unloaded.
    let large = world.variant("large", "large 7", 400).await;
    let short = world.load(&large).await.unwrap_err();
    assert_eq!(short.code(), "no_memory");
    assert_eq!(full.loaded(), [1, 2]);
    world.record.release(Step::Exec);
    running.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn models_that_do_not_fit_together_are_measured_one_after_the_other() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let (first, second) = (full.measure("half 1"), full.measure("half 2"));
    let other = |loading: Measuring| async move { drop(loaded(loading).await.unwrap()) };
    tokio::join!(other(first), other(second));
    until(|| full.world.worker.info().pages.free >= 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_finds_the_pages_taken_is_refused_and_not_broken() {
    let full = FullWorker::new(Kind::Dedicated).await;
    let world = &full.world;
    let first = &full.variants[0];
    world.worker.unload(&first.id).await.unwrap();
    // The worker does not know of this model.
    let guest = loaded(measure(&full.engine, "m-6")).await.unwrap();
    let short = world.load(first).await.unwrap_err();
    assert_eq!(short.code(), "no_memory");
    assert_eq!(world.state(first).await, Some(InstanceState::Inactive));
    drop(guest);
    world.load(first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_engines_of_divided_devices_are_hosted() {
    let world = World::new().await;
    let engine = |kind: Kind| -> Arc<dyn Engine> {
        Arc::new(Double {
            device: kind.device(),
            staged: false,
            is_isolated: false,
            record: Arc::default(),
        })
    };
    let other = engine(Kind::Dedicated);
    assert!(world.worker.host(&other).is_none(), "of no worker");
    let own = engine(Kind::Cpu);
    let world = World::on(Arc::clone(&own), Arc::default(), config()).await;
    assert!(world.worker.host(&own).is_none(), "of the processor");
}
