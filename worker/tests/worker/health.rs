//! When a worker reports its instances as overloaded or interfered, on emulated cores.
//!
//! A test decides how long a run of the engine takes: as long as the device is to be busy, a
//! multiple of the profile's time, or no time.

use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use sextant_engine::emulated::{self, EmulatedEngine, EmulatedModel};
use sextant_metadata::{Command, Instance, Transition};
use sextant_types::{DeviceType, DeviceTypeName, time::unix_ms};

use super::*;

/// Cores of the worker.
const CORES: u16 = 8;

/// Time of a run, ms, also in the variants' profile.
const RUN_MS: f64 = 1.0;

/// The duration of runs.
#[derive(Default)]
struct Runs {
    held: Mutex<bool>,
    changed: Condvar,
    /// Runs take several times as long as profiled.
    slow: AtomicBool,
    under_way: AtomicUsize,
}

/// A worker with [`CORES`] emulated cores, and its running service.
struct Cores {
    world: World,
    runs: Arc<Runs>,
    /// Ends the service when dropped.
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// Batches of a variant, one after the other until this is dropped.
struct Stream(Arc<AtomicBool>);

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_cores_are_all_busy_overloads_its_instance_until_they_are_free() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    cores.hold("m-1", CORES, 0).await;
    cores
        .world
        .reaches(&variant, InstanceState::Overloaded)
        .await;
    cores.release();
    cores.world.reaches(&variant, InstanceState::Active).await;
    // The load is zero if nothing runs.
    cores.until(&variant, |it| it.load == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_half_of_its_cores_busy_is_not_overloaded() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    cores.hold("m-1", CORES / 2, 0).await;
    cores.until(&variant, |it| it.load > 0.49).await;
    for instance in cores.looks(&variant).await {
        assert_eq!(instance.state, InstanceState::Active, "{instance:?}");
        assert!(instance.load < 0.51, "{instance:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_fill_the_cores_together_are_overloaded_and_an_idle_one_is_not() {
    let cores = Cores::start().await;
    let first = cores.load("m-1").await;
    let second = cores.load("m-2").await;
    let idle = cores.load("m-3").await;
    cores.hold("m-1", CORES / 2, 0).await;
    cores.hold("m-2", CORES / 2, 0).await;
    for variant in [&first, &second] {
        cores
            .world
            .reaches(variant, InstanceState::Overloaded)
            .await;
    }
    let of_idle = cores.instance(&idle).await;
    assert_eq!(of_idle.state, InstanceState::Active);
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_batches_are_busy_time_and_no_load() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    cores.hold("m-1", 1, 0).await;
    cores.hold("m-1", CORES - 1, 1).await;
    until(|| cores.world.worker.info().utilization > 0.99).await;
    for instance in cores.looks(&variant).await {
        assert_eq!(instance.state, InstanceState::Active, "{instance:?}");
        assert!(instance.load < 0.13, "{instance:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_longer_than_profiled_interfere_with_an_instance_until_they_are_not() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    let stream = cores.stream("m-1");
    cores.runs.slow.store(true, Ordering::Relaxed);
    cores
        .world
        .reaches(&variant, InstanceState::Interfered)
        .await;
    cores.runs.slow.store(false, Ordering::Relaxed);
    cores.world.reaches(&variant, InstanceState::Active).await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_has_lost_an_instance_hears_again_that_it_is_interfered() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    let _stream = cores.stream("m-1");
    cores.runs.slow.store(true, Ordering::Relaxed);
    let interfered = InstanceState::Interfered;
    cores.world.reaches(&variant, interfered).await;
    let worker = WorkerId::new("w").unwrap();
    let removed = cores.world.metadata.remove_worker(&worker).await;
    assert!(removed.unwrap());
    cores.world.reaches(&variant, interfered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_what_is_loaded_corrects_the_record_of_an_idle_instance() {
    let cores = Cores::start().await;
    let variant = cores.load("m-1").await;
    let fail = Transition {
        key: InstanceKey::new(variant.id.clone(), WorkerId::new("w").unwrap()),
        application: variant.application.clone(),
        expected_version: None,
        command: Command::Fail {
            reason: "as older content says".to_owned(),
        },
    };
    let failed = cores.world.metadata.transition(&fail, unix_ms()).await;
    assert_eq!(failed.unwrap().state, InstanceState::Failed);
    cores.world.load(&variant).await.unwrap();
    cores.world.reaches(&variant, InstanceState::Active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_measured_on_another_type_of_device_is_no_measure_of_interference() {
    let cores = Cores::of_type("slow").await;
    // The variant was registered on a type that runs it much faster. It has no profile on the type
    // here.
    let elsewhere = DeviceTypeName::new("quick").unwrap();
    let here = DeviceTypeName::new("slow").unwrap();
    let measured = cores
        .load_with("m-1", |variant| {
            variant.measured_on = Some(elsewhere.clone());
            let profile = variant.profile.slowed(24.0).into_owned();
            variant.profiles = [(here.clone(), profile)].into();
        })
        .await;
    let unknown = cores
        .load_with("m-2", |variant| {
            variant.measured_on = Some(elsewhere.clone());
        })
        .await;
    let at_home = cores
        .load_with("m-3", |variant| variant.measured_on = Some(here.clone()))
        .await;
    cores.runs.slow.store(true, Ordering::Relaxed);
    let _streams = ["m-1", "m-2", "m-3"].map(|name| cores.stream(name));
    cores
        .world
        .reaches(&at_home, InstanceState::Interfered)
        .await;
    for variant in [&measured, &unknown] {
        for instance in cores.looks(variant).await {
            assert_eq!(instance.state, InstanceState::Active, "{instance:?}");
        }
    }
}

// === impl Cores ===

impl Cores {
    async fn start() -> Self {
        Self::with(config()).await
    }

    async fn of_type(name: &str) -> Self {
        let device_type = DeviceType {
            name: DeviceTypeName::new(name).unwrap(),
            engines: vec![EngineName(emulated::NAME.to_owned())],
            slots: CORES,
            memory_bytes: 1 << 30,
            price_per_hour_usd: 1.0,
            start_ms: 0,
        };
        let device_type = Some(Arc::new(device_type));
        Self::with(Config {
            device_type,
            ..config()
        })
        .await
    }

    async fn with(config: Config) -> Self {
        let runs = Arc::<Runs>::default();
        let told = Arc::clone(&runs);
        let engine = EmulatedEngine::new(|_| {
            Ok(EmulatedModel {
                signature: signature(),
                alpha_ms: 0.0,
                beta_ms: RUN_MS,
                load_ms: 0.0,
                weights_bytes: 100,
            })
        })
        .with_sleep(move |time| told.run(time));
        let thresholds = sextant_health::Thresholds {
            min_batches: 1,
            ..Default::default()
        };
        let config = Config {
            cores: CORES,
            thresholds,
            ..config
        };
        let mut world = World::on(Arc::new(engine), Arc::default(), config).await;
        let (stop, _running) = world.serve();
        Self {
            world,
            runs,
            _stop: stop,
        }
    }

    async fn load(&self, name: &str) -> Arc<Variant> {
        self.load_with(name, |_| {}).await
    }

    async fn load_with(&self, name: &str, change: impl FnOnce(&mut Variant)) -> Arc<Variant> {
        let mut variant = self.world.variant(name, name, 200).await.as_ref().clone();
        variant.spec.engine = EngineName(emulated::NAME.to_owned());
        change(&mut variant);
        let variant = Arc::new(variant);
        self.world.load(&variant).await.unwrap();
        variant
    }

    /// Keeps `cores` more cores busy, with batches of one row, until [`Self::release`].
    async fn hold(&self, name: &str, cores: u16, offline_rows: u32) {
        *self.runs.held.lock().unwrap() = true;
        let busy = self.runs.under_way.load(Ordering::Relaxed) + usize::from(cores);
        for _ in 0..cores {
            let outcome = Box::new(|outcome: InferOutcome| drop(outcome.unwrap()));
            self.world.worker.infer(batch(name, offline_rows, outcome));
        }
        until(|| self.runs.under_way.load(Ordering::Relaxed) == busy).await;
    }

    fn release(&self) {
        *self.runs.held.lock().unwrap() = false;
        self.runs.changed.notify_all();
    }

    /// Keeps one batch running until the stream is dropped; each batch ends by itself.
    fn stream(&self, name: &str) -> Stream {
        let ended = Arc::<AtomicBool>::default();
        next(&self.world.worker, name, &ended);
        Stream(ended)
    }

    async fn instance(&self, variant: &Variant) -> Instance {
        let key = InstanceKey::new(variant.id.clone(), WorkerId::new("w").unwrap());
        self.world.metadata.instance(&key).await.unwrap().unwrap()
    }

    async fn until(&self, variant: &Variant, state: impl Fn(&Instance) -> bool) {
        let reached = async {
            while !state(&self.instance(variant).await) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    }

    /// The instance at each look of its worker, for more looks than entering a state takes.
    async fn looks(&self, variant: &Variant) -> Vec<Instance> {
        let mut seen = vec![self.instance(variant).await];
        while seen.len() < 8 {
            // Each look renews the lease.
            let last = seen.last().map(|it| it.lease_until_ms);
            self.until(variant, |it| Some(it.lease_until_ms) != last)
                .await;
            seen.push(self.instance(variant).await);
        }
        seen
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a batch, and another one when it has ended.
fn next(worker: &Arc<Worker>, name: &str, ended: &Arc<AtomicBool>) {
    if ended.load(Ordering::Relaxed) {
        return;
    }
    let (of, variant, flag) = (Arc::downgrade(worker), name.to_owned(), Arc::clone(ended));
    let again = move |outcome: InferOutcome| {
        if let (Ok(_), Some(worker)) = (outcome, of.upgrade()) {
            next(&worker, &variant, &flag);
        }
    };
    worker.infer(batch(name, 0, Box::new(again)));
}

fn batch(name: &str, offline_rows: u32, done: Box<dyn FnOnce(InferOutcome) + Send>) -> Infer {
    Infer {
        variant: VariantId::new(name).unwrap(),
        parts: vec![sextant_rpc::Part::Inputs(row(1, 2))],
        earliest: Instant::now(),
        latest: None,
        expected: Duration::ZERO,
        offline_rows,
        done,
    }
}

// === impl Runs ===

impl Runs {
    #[expect(
        clippy::disallowed_methods,
        reason = "the emulated run is the passing of time itself, no state is waited for"
    )]
    fn run(&self, time: Duration) {
        // A load takes no time.
        if time.is_zero() {
            return;
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| *held).unwrap());
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(time * 8);
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
