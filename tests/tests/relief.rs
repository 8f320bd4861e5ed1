//! Other processes take a core from an instance. The service moves the instance to another core or worker, says why,
//! and answers meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sextant_tests::{
    Api, Fleet, FleetSettings, Settings, TestCluster, Upload,
    hog::{self, Hog},
    onnx::HostileModel,
    steps::is_serving,
    until,
};
use tokio::task::JoinHandle;

const APPLICATION: &str = "long";

/// Turns of the model's loop. They take at least some ten milliseconds, far more than a time slice.
const TURNS: u64 = 60_000;

/// Threads that take a core. A run there takes several times the measured time, even if that was measured on a busy
/// machine.
const HOGS: usize = 16;

/// The longest answer after which the client rests for the same time.
const REST_MOST: Duration = Duration::from_secs(1);

/// The names of engines' threads in the worker's process. In a process of its own, each thread is an engine's.
const ENGINE_THREADS: [(&str, &str); 2] = [("none", "sextant-exec"), ("process", "")];

/// Queries one after the other, with rests between them. A worker is never full of them, and has one at each look.
struct QueryLoop {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    /// The time that the last answer took, and the longest so far, us.
    times: Arc<[AtomicU64; 2]>,
    task: JoinHandle<()>,
}

// === impl QueryLoop ===

impl QueryLoop {
    fn start(api: Api) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&answered));
        let times = Arc::<[AtomicU64; 2]>::default();
        let taken = Arc::clone(&times);
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                ask(&api).await;
                let took = begun.elapsed();
                let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                let [last, longest] = &*taken;
                last.store(took_us, Ordering::Relaxed);
                longest.fetch_max(took_us, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(took.min(REST_MOST)).await;
            }
        });
        Self {
            stop,
            answered,
            times,
            task,
        }
    }

    /// Waits until `more` queries have been answered from now on.
    async fn answers(&self, more: u64) {
        let before = self.answered.load(Ordering::Relaxed);
        until("queries are answered", async || {
            let failed = self.task.is_finished();
            assert!(!failed, "a query was not answered");
            (self.answered.load(Ordering::Relaxed) >= before + more).then_some(())
        })
        .await;
    }

    /// Waits for an answer that takes less than a third of the longest so far.
    async fn recovers(&self) {
        until("answers come sooner again", async || {
            let [last, longest] = &*self.times;
            let last = last.load(Ordering::Relaxed);
            (last.saturating_mul(3) < longest.load(Ordering::Relaxed)).then_some(())
        })
        .await;
    }

    /// Stops, and checks that every query was answered.
    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("every query is answered");
    }
}

async fn ask(api: &Api) {
    let query = json!({"application": APPLICATION, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], json!([3.0, 0.0]), "{answer}");
}

/// Registers the model and waits until it answers.
async fn learn(api: &Api) {
    api.create_application(APPLICATION).await;
    let upload = Upload {
        application: APPLICATION,
        name: APPLICATION,
        model: HostileModel::Long(TURNS).bytes(),
        validation: HostileModel::RECORDS.into(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    until("an instance is active", async || {
        let active = |of: &Value| of["state"] == "active";
        instances(api).await.iter().any(active).then_some(())
    })
    .await;
    ask(api).await;
}

async fn instances(api: &Api) -> Vec<Value> {
    let body = api.get("/v1/instances").await.json(200);
    body["instances"].as_array().expect("a list").clone()
}

/// The value of a counter without labels.
async fn counter(api: &Api, name: &str) -> f64 {
    let text = api.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|value| value.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no `{name}`: {text}"))
}

/// Waits until an instance reports that other processes slow it down.
async fn is_interfered(api: &Api) -> Value {
    until("an instance is interfered", async || {
        let instances = instances(api).await;
        instances.into_iter().find(|it| it["state"] == "interfered")
    })
    .await
}

/// Two cores, one of which the test takes.
fn two_cores() -> [usize; 2] {
    let cores = hog::cores();
    assert!(cores.len() >= 2, "this test needs two cores");
    [cores[0], cores[1]]
}

/// With default settings a worker has all cores. Here, an operator has put its threads on one core, which other
/// processes take.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_core_others_take_is_moved_to_one_that_they_leave_alone() {
    let [taken, free] = two_cores();
    for (isolation, name) in ENGINE_THREADS {
        let cluster = TestCluster::start(Settings {
            set: vec![format!("worker.isolation={isolation}")],
            ..Settings::default()
        });
        let api = cluster.api();
        learn(&api).await;
        let asking = QueryLoop::start(api.clone());
        asking.answers(3).await;
        let processes = || match isolation {
            "process" => cluster.children("host"),
            _ => vec![cluster.process_id()],
        };
        let threads = || processes().into_iter();
        let moved = threads().map(|process| hog::move_threads(process, name, taken));
        assert!(moved.sum::<usize>() > 0, "engines have threads");
        let hog = Hog::on(taken, HOGS);
        is_interfered(&api).await;
        let kept = until("the worker has looked for another core", async || {
            let log = cluster.log();
            let said = |of: &str| log.lines().any(|line| line.contains(of));
            assert!(!said("keeps to other cores") || said(&format!("[{free}]")));
            match said("an interfered worker keeps to other cores") {
                true => Some(true),
                false => {
                    said("none of the cores that it may use are much less used").then_some(false)
                }
            }
        })
        .await;
        assert!(counter(&api, "sextant_dispatcher_repins_total").await >= 1.0);
        assert!(cluster.log().contains("times what was measured"));
        // If other processes use that core too, as on a busy machine, no core is better.
        if kept {
            until("its threads keep to the other core", async || {
                let mut kept = threads().flat_map(|process| hog::cores_of_threads(process, name));
                kept.all(|cores| !cores.contains(&taken)).then_some(())
            })
            .await;
            // Cores of a virtual machine may be threads of one core of the machine. Then the instance is much faster on
            // the other core, and may still count as interfered.
            asking.recovers().await;
        }
        asking.answers(3).await;
        drop(hog);
        asking.stop().await;
    }
}

const ROLES: &str = "api,dispatcher,autoscaler,variant-gen";

/// Two identical workers, each bound to a core, one of which other processes take.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_only_core_others_take_leaves_for_a_worker_that_has_time() {
    two_cores();
    for (isolation, _) in ENGINE_THREADS {
        let mut fleet = Fleet::over_stores(FleetSettings::default());
        let isolation = format!("worker.isolation={isolation}");
        let pool = [
            &isolation,
            // The measurements at registration hold for the pool.
            "worker.device_type=alike",
            "autoscaler.pools.alike.least=2",
            "autoscaler.pools.alike.most=2",
            "autoscaler.pools.alike.cores=1",
            "autoscaler.pools.alike.end_s=20",
        ];
        fleet.spawn("api", ROLES, &pool);
        let api = fleet.api();
        learn(&api).await;
        until("both workers have the variant that answers", async || {
            let of = serving(&api).await;
            (of.len() == 2).then_some(())
        })
        .await;
        let asking = QueryLoop::start(api.clone());
        asking.answers(3).await;
        // Of two identical workers, one gets all the queries that it has time for.
        let worker = busiest(&api).await;
        let process = process_of(&fleet, &worker);
        let own = hog::cores_of_threads(process, "").concat();
        let hog = Hog::on(own[0], HOGS);
        let slowed = is_interfered(&api).await;
        until("it has left its worker for the other", async || {
            let same = |of: &Value, key: &str| of[key] == slowed[key];
            let instances = instances(&api).await;
            let mut all = instances.iter().filter(|it| same(it, "variant"));
            let is_there = all.any(|it| same(it, "worker") && it["state"] != "inactive");
            let moved = counter(&api, "sextant_dispatcher_relocations_total").await >= 1.0;
            (moved && !is_there).then_some(())
        })
        .await;
        assert!(counter(&api, "sextant_dispatcher_repins_total").await >= 1.0);
        asking.answers(3).await;
        drop(hog);
        asking.stop().await;
    }
}

/// The worker that has run the most batches.
async fn busiest(api: &Api) -> String {
    let mut ran = Vec::new();
    for worker in serving(api).await {
        let stats = api.get(&format!("/v1/workers/{worker}/stats")).await;
        let batches = stats.json(200)["actions"]["infer"]["succeeded"].as_u64();
        ran.push((batches, worker));
    }
    let busiest = ran.into_iter().max();
    busiest.expect("a worker").1
}

/// The process of a worker that the process `api` has started.
fn process_of(fleet: &Fleet, worker: &str) -> u32 {
    let folder = fleet.folder_of("api").join("workers");
    let files = std::fs::read_dir(folder).expect("a folder");
    let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
    let mut machines = texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok());
    let machine = machines.find(|machine| machine["worker"] == worker);
    let process = machine.and_then(|machine| machine["process"]["pid"].as_u64());
    let process = process.and_then(|process| u32::try_from(process).ok());
    process.unwrap_or_else(|| panic!("`{worker}` has no process"))
}

/// The workers on which the variant that answers serves.
async fn serving(api: &Api) -> Vec<String> {
    let query = json!({"application": APPLICATION, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    let instances = instances(api).await.into_iter();
    let own = instances.filter(|it| it["variant"] == answer["variant"] && is_serving(it));
    own.filter_map(|it| it["worker"].as_str().map(str::to_owned))
        .collect()
}
