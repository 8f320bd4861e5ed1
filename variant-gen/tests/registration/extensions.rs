//! Models that are ready, and engines that come later.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sextant_engine::{Capabilities, Engine, Error as EngineError, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_registry::{Job, JobFilter, JobKind, JobState, ModelStatus};
use sextant_types::{EngineName, ModelId, Optimization, Precision, Variant};
use sextant_variant_gen::{
    Config, Error, Generator, RegistrationService,
    checkpoint::{Checkpoint, NoWatch, Phase},
    frontier,
};
use tokio::sync::watch;

use crate::bed::{Action, Bed, Trap, model, ort, quick, unmeasured, validation};

const SEED: u64 = 11;

/// Longest time for anything; only a failing test takes it.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the later engine adds, in order.
const STEPS: [&str; 4] = [
    "generate:int8d",
    "measure:later-gpu-fp32-all-t1",
    "measure:later-gpu-int8d-all-t1",
    "publish",
];

/// What happens at a load.
type Load = fn(usize) -> Result<(), EngineError>;

/// ONNX Runtime under another name.
pub struct RenamedEngine {
    inner: OrtEngine,
    name: &'static str,
    precisions: Vec<Precision>,
    loads: AtomicUsize,
    load: Load,
    reads: bool,
}

impl RenamedEngine {
    fn new(name: &'static str, precisions: &[Precision]) -> Self {
        Self {
            inner: ort(),
            name,
            precisions: precisions.to_vec(),
            loads: AtomicUsize::new(0),
            load: |_| Ok(()),
            reads: true,
        }
    }

    /// The engine that was there at first.
    fn first() -> Arc<dyn Engine> {
        Arc::new(Self::new("ort", &[Precision::Fp32]))
    }

    /// The one that comes later.
    pub fn second() -> Self {
        Self::new("later-gpu", &[Precision::Fp32, Precision::Int8Dynamic])
    }

    fn that(load: Load) -> Arc<Self> {
        Arc::new(Self {
            load,
            ..Self::second()
        })
    }
}

impl Engine for RenamedEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: self.precisions.clone(),
            optimizations: vec![Optimization::All],
            threads: false,
            ..self.inner.capabilities()
        }
    }

    fn reads(&self, _: &Bytes) -> bool {
        self.reads
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, EngineError> {
        (self.load)(self.loads.fetch_add(1, Ordering::SeqCst))?;
        self.inner.load(request)
    }
}

/// Remembers the steps whose result was stored.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

#[async_trait]
impl Checkpoint for Recorder {
    async fn reached(&self, step: &str, phase: Phase) -> Result<(), Error> {
        if phase == Phase::Stored {
            self.0.lock().expect("sound").push(step.to_owned());
        }
        Ok(())
    }
}

/// Does not register, as on a machine that is there for its device.
pub fn extending() -> Config {
    Config {
        registers: false,
        extension_back_off: Duration::from_millis(1),
        ..quick()
    }
}

fn later(bed: &Bed, engine: Arc<dyn Engine>, checkpoint: Arc<dyn Checkpoint>) -> Generator {
    Generator::watched(bed.stores(), vec![engine], extending(), checkpoint)
}

fn plain(bed: &Bed, engine: Arc<dyn Engine>) -> Generator {
    later(bed, engine, Arc::new(NoWatch))
}

/// A bed with a model that was registered with the first engine.
async fn registered() -> (Bed, Vec<Variant>) {
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    let first = Generator::new(bed.stores(), vec![RenamedEngine::first()], quick());
    let job = bed.run_to_end(first, &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("m").await;
    assert_eq!(variants.len(), 3);
    (bed, variants)
}

/// The jobs that extended the model by the later engine, oldest first.
async fn extensions(bed: &Bed) -> Vec<Job> {
    let model = ModelId::new("m").expect("valid");
    let engine = EngineName("later-gpu".to_owned());
    let jobs = bed.registry.extensions(&model, &engine);
    jobs.await.expect("reads")
}

async fn note(bed: &Bed) -> Option<String> {
    let id = ModelId::new("m").expect("valid");
    let steps = bed.registry.steps(&id).await.expect("reads");
    let mut steps = steps.into_iter();
    let step = steps.find(|step| step.name == "extend:later-gpu")?;
    step.result["outcome"].as_str().map(str::to_owned)
}

/// Runs a service until the model has been looked at for the last time.
async fn run_until_settled(bed: &Bed, generator: Generator) -> Vec<Job> {
    let service = RegistrationService::new(generator, "later");
    let (stop, mut stopped) = watch::channel(false);
    let running = service.run(async move {
        stopped.wait_for(|stopped| *stopped).await.ok();
    });
    let waiting = async {
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        while note(bed).await.is_none() {
            looks.tick().await;
        }
        stop.send_replace(true);
    };
    let both = async { tokio::join!(running, waiting) };
    let settled = tokio::time::timeout(PATIENCE, both).await;
    settled.expect("it is settled");
    extensions(bed).await
}

fn of_engine(variants: &[Variant], engine: &str) -> Vec<Variant> {
    let of_engine = |it: &&Variant| it.spec.engine.0 == engine;
    variants.iter().filter(of_engine).cloned().collect()
}

fn unmarked(variants: &[Variant]) -> Vec<Variant> {
    let unmarked = |variant: &Variant| Variant {
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
        ..variant.clone()
    };
    variants.iter().map(unmarked).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_later_engine_adds_stands_beside_what_was_there() {
    let (bed, before) = registered().await;
    let recorder = Arc::new(Recorder::default());
    let generator = later(&bed, Arc::new(RenamedEngine::second()), recorder.clone());
    let jobs = run_until_settled(&bed, generator).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].state, JobState::Succeeded, "{:?}", jobs[0].error);
    let result = jobs[0].result.clone().expect("a summary");
    assert_eq!(result["variants"], 6);
    assert_eq!(jobs[0].progress_done, jobs[0].progress_total);
    // Nothing that was stored has been done again.
    assert_eq!(*recorder.0.lock().expect("sound"), STEPS);
    let mut after = bed.variants("m").await;
    assert_eq!(unmarked(&of_engine(&after, "ort")), unmarked(&before));
    assert_eq!(of_engine(&after, "later-gpu").len(), 6);
    assert!(frontier::mark(&mut after).is_empty(), "judged over all");
    let visible = bed.metadata.variants().await.expect("reads");
    let visible: Vec<Variant> = visible.iter().map(|it| it.as_ref().clone()).collect();
    assert_eq!(visible, after);
    assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
    assert_eq!(note(&bed).await.as_deref(), Some("done"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_killed_at_any_moment_is_completed_by_the_next_process() {
    let (whole, _) = registered().await;
    run_until_settled(&whole, plain(&whole, Arc::new(RenamedEngine::second()))).await;
    let wanted: Vec<_> = whole.variants("m").await;
    let wanted: Vec<_> = wanted.into_iter().map(unmeasured).collect();
    for (step, phase) in STEPS
        .into_iter()
        .flat_map(|step| Phase::ALL.map(|phase| (step, phase)))
    {
        let (mut bed, before) = registered().await;
        let trap = Trap::new(step, phase, Action::Hang);
        let engine = Arc::new(RenamedEngine::second());
        let service = RegistrationService::new(later(&bed, engine, trap.clone()), "killed");
        tokio::select! {
            () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
            () = trap.reached.notified() => {}
        }
        let ended = step == "publish" && phase == Phase::Stored;
        assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
        if !ended {
            assert_eq!(bed.variants("m").await, before, "{step} {phase:?}");
        }
        bed.restart().await;
        let generator = plain(&bed, Arc::new(RenamedEngine::second()));
        let published = generator.publisher().publish_all().await;
        let wanted_now = if ended { 9 } else { 3 };
        assert_eq!(
            published.expect("publishes"),
            wanted_now,
            "{step} {phase:?}"
        );
        let jobs = run_until_settled(&bed, generator).await;
        assert_eq!(jobs.len(), 1, "{step} {phase:?}");
        assert_eq!(jobs[0].state, JobState::Succeeded, "{step} {phase:?}");
        let after = bed.variants("m").await;
        assert_eq!(unmarked(&of_engine(&after, "ort")), unmarked(&before));
        let after: Vec<_> = after.into_iter().map(unmeasured).collect();
        assert_eq!(after, wanted, "{step} {phase:?}");
        assert_eq!(bed.visible().await.len(), 9, "{step} {phase:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_cannot_run_the_model_is_tried_once() {
    let (bed, before) = registered().await;
    let refusing = || RenamedEngine::that(|_| Err(EngineError::Unsupported("`Gemm`".to_owned())));
    let jobs = run_until_settled(&bed, plain(&bed, refusing())).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].state, JobState::Succeeded);
    let result = jobs[0].result.clone().expect("a summary");
    assert_eq!(result["variants"], 0);
    let reason = result["skipped"]["later-gpu-fp32-all-t1"].as_str();
    assert!(reason.expect("a reason").contains("Gemm"), "{result}");
    assert_eq!(bed.variants("m").await, before);
    let again = refusing();
    let generator = plain(&bed, again.clone());
    assert_eq!(generator.plan().await.expect("plans"), None);
    assert_eq!(extensions(&bed).await.len(), 1);
    assert_eq!(again.loads.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_of_other_files_is_left_out() {
    let (bed, before) = registered().await;
    let engine = RenamedEngine {
        reads: false,
        ..RenamedEngine::second()
    };
    let jobs = run_until_settled(&bed, plain(&bed, Arc::new(engine))).await;
    assert!(jobs.is_empty());
    assert_eq!(note(&bed).await.as_deref(), Some("not_read"));
    assert_eq!(bed.variants("m").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_not_there_at_first_is_tried_again() {
    let (bed, _) = registered().await;
    // Both configurations twice, each in a job of its own.
    let engine = RenamedEngine::that(|load| match load < 4 {
        true => Err(EngineError::OutOfMemory("for now".into())),
        false => Ok(()),
    });
    let jobs = run_until_settled(&bed, plain(&bed, engine)).await;
    let states: Vec<_> = jobs.iter().map(|job| job.state).collect();
    let [failed, done] = [JobState::Failed, JobState::Succeeded];
    assert_eq!(states, [failed, failed, done]);
    assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
    assert_eq!(bed.visible().await.len(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_is_published_although_something_else_failed() {
    let (bed, _) = registered().await;
    let engine = RenamedEngine::that(|load| match load {
        0 => Err(EngineError::OutOfMemory("of the large one".into())),
        _ => Ok(()),
    });
    let jobs = run_until_settled(&bed, plain(&bed, engine)).await;
    assert_eq!(jobs.len(), 1);
    let result = jobs[0].result.clone().expect("a summary");
    assert_eq!(result["variants"], 3);
    let reason = result["skipped"]["later-gpu-fp32-all-t1"].as_str();
    assert!(reason.expect("a reason").contains("large one"), "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_panics_again_and_again_is_left_out() {
    let (bed, before) = registered().await;
    let jobs = run_until_settled(
        &bed,
        plain(&bed, RenamedEngine::that(|_| panic!("on purpose"))),
    )
    .await;
    let failed = jobs.iter().filter(|job| job.state == JobState::Failed);
    // Three times for each of the two configurations.
    assert_eq!((failed.count(), jobs.len()), (6, 7));
    let result = jobs[6].result.clone().expect("a summary");
    let reason = result["skipped"]["later-gpu-int8d-all-t1"].as_str();
    let reason = reason.expect("a reason");
    assert!(reason.contains("ended `3` times"), "{reason}");
    assert_eq!(bed.variants("m").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_is_cancelled_changes_nothing_and_is_not_begun_again() {
    for step in ["measure:later-gpu-fp32-all-t1", "publish"] {
        let (bed, before) = registered().await;
        let trap = Trap::new(step, Phase::Worked, Action::Hang);
        let generator = later(&bed, Arc::new(RenamedEngine::second()), trap.clone());
        let cancelling = async {
            trap.reached.notified().await;
            assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
            let job = extensions(&bed).await.remove(0);
            bed.registry.cancel(&job.id, 3).await.expect("cancels");
        };
        let (jobs, ()) = tokio::join!(run_until_settled(&bed, generator), cancelling);
        assert_eq!(jobs.len(), 1, "{step}");
        assert_eq!(jobs[0].state, JobState::Cancelled, "{step}");
        assert_eq!(note(&bed).await.as_deref(), Some("cancelled"));
        assert_eq!(bed.variants("m").await, before, "{step}");
        let names: Vec<_> = before.iter().map(|it| it.id.to_string()).collect();
        assert_eq!(bed.visible().await, names, "{step}");
        assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_the_work_by_their_engines() {
    let bed = Bed::new().await;
    let first = Generator::new(bed.stores(), vec![RenamedEngine::first()], quick());
    let first = RegistrationService::new(first, "first");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(first.run(async move {
        stopped.await.ok();
    }));
    // The second is there before the model, and leaves its registration to the first.
    let second = plain(&bed, Arc::new(RenamedEngine::second()));
    let (file, set) = (model(SEED), validation(SEED));
    let submitting = bed.submit("m", &file, &set);
    let (jobs, submitted) = tokio::join!(run_until_settled(&bed, second), submitting);
    stop.send(()).expect("runs");
    running.await.expect("ends");
    let registration = bed.registry.job(&submitted.job.id).await.expect("exists");
    assert_eq!(registration.state, JobState::Succeeded);
    assert_eq!((registration.attempts, jobs.len()), (1, 1));
    assert_eq!(bed.visible().await.len(), 9);
    let all = bed.registry.jobs(&JobFilter::default()).await;
    let kinds: Vec<_> = all.expect("reads").iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Extend, JobKind::Register]);
}

/// Whoever goes on with a registration may have other engines than who began it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_that_another_engine_ends_is_extended_by_the_first() {
    let mut bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    let trap = Trap::new("publish", Phase::Begin, Action::Hang);
    let first = Generator::watched(
        bed.stores(),
        vec![RenamedEngine::first()],
        quick(),
        trap.clone(),
    );
    tokio::select! {
        () = RegistrationService::new(first, "killed").run(std::future::pending()) => {}
        () = trap.reached.notified() => {}
    }
    bed.restart().await;
    let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(RenamedEngine::second())];
    let second = Generator::new(bed.stores(), engines, quick());
    let job = bed.run_to_end(second, &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    assert_eq!(bed.variants("m").await.len(), 6);
    let recorder = Arc::new(Recorder::default());
    let generator = later(&bed, RenamedEngine::first(), recorder.clone());
    generator.plan().await.expect("plans");
    let name = EngineName("ort".to_owned());
    let id = ModelId::new("m").expect("valid");
    let jobs = bed.registry.extensions(&id, &name).await.expect("reads");
    let done = bed.run_to_end(generator, &jobs[0].id).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    // It had been measured.
    assert_eq!(*recorder.0.lock().expect("sound"), ["publish"]);
    assert_eq!(bed.visible().await.len(), 9);
}
