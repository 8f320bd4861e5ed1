//! Workers that the autoscaler starts and ends as child processes.

use std::collections::BTreeSet;

use super::*;
use sextant_tests::Load;

/// All roles except the worker in one process, and a pool of emulated devices, each of which answers about fifty
/// queries a second.
const SETTINGS: [&str; 9] = [
    "worker.emulated.types.small.speed=0.01",
    "worker.emulated.delays=false",
    "variants.engines=emulated",
    "prices.devices.small.hour_usd=0.5",
    "prices.devices.small.start_s=1",
    "autoscaler.hold_s=2",
    "autoscaler.pools.small.least=1",
    "autoscaler.pools.small.most=3",
    "autoscaler.pools.small.end_s=20",
];

const ROLES: &str = "api,dispatcher,autoscaler,variant-gen";

fn fleet_of_one() -> Fleet {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn("api", ROLES, &SETTINGS);
    fleet
}

/// The pool in the answer to `GET /v1/scaling`.
async fn pool(api: &Api) -> Value {
    let body = api.get("/v1/scaling").await.json(200);
    let pools = body["pools"].as_array().expect("a list");
    let pool = pools.iter().find(|it| it["device_type"] == "small");
    pool.cloned().unwrap_or_default()
}

/// Waits until `count` workers are ready and no others are desired.
async fn settles(api: &Api, count: u64) {
    until(&format!("{count} workers are up"), || async {
        let pool = pool(api).await;
        (pool["up"] == count && pool["desired"] == count).then_some(())
    })
    .await;
}

/// The process ids of the workers.
fn children(fleet: &Fleet) -> Vec<u32> {
    let folder = fleet.folder_of("api").join("workers");
    let files = std::fs::read_dir(folder).expect("a folder");
    let names = files.filter_map(|file| Some(file.ok()?.path()));
    let machines = names.filter(|path| path.extension().is_some_and(|it| it == "json"));
    let read = machines.filter_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        let machine: Value = serde_json::from_str(&text).ok()?;
        u32::try_from(machine["process"]["pid"].as_u64()?).ok()
    });
    let mut ids: Vec<u32> = read.collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn workers_come_with_the_load_and_leave_with_it() {
    let fleet = fleet_of_one();
    let api = fleet.api();
    settles(&api, 1).await;
    api.create_application("digits").await;
    let job = api
        .register(digits::upload("digits", "cnn-large", "cnn-large"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    answers(&api).await;
    // Until then, plans use measurements from elsewhere, where it runs a hundred times as fast.
    until("a variant is measured on the pool's devices", || async {
        let body = api.get("/v1/models/cnn-large/variants").await.json(200);
        let variants = body["variants"].as_array().expect("a list");
        let mut profiles = variants
            .iter()
            .flat_map(|it| it["profiles"].as_array().into_iter().flatten());
        let measured = |of: &Value| of["device_type"] == "small" && of["estimated"] == false;
        profiles.any(measured).then_some(())
    })
    .await;
    let load = Load::start(api.clone(), 64, None).await;
    until("more workers are up", || async {
        (pool(&api).await["up"].as_u64() >= Some(2)).then_some(())
    })
    .await;
    let tally = load.stop().await;
    let refused: u64 = tally.refused.values().sum();
    assert_eq!(tally.sent, tally.answered + refused, "{tally:?}");
    // A rate is measured over the last minute.
    until("one worker is desired", || async {
        (pool(&api).await["desired"] == 1).then_some(())
    })
    .await;
    settles(&api, 1).await;
    answers(&api).await;
    let body = api.get("/v1/scaling/decisions").await.json(200);
    let decisions = body["decisions"].as_array().expect("a list");
    for action in ["add_workers", "remove_workers", "replicate"] {
        let of = decisions.iter().find(|it| it["action"] == action);
        let decision = of.unwrap_or_else(|| panic!("no `{action}`: {body:#}"));
        assert!(decision["reason"].as_str().is_some_and(|it| !it.is_empty()));
    }
}

/// Each child of a pool of processors once assumed that it had the whole machine.
#[tokio::test]
async fn children_share_the_cores_and_the_memory_of_their_machine() {
    let settings = [
        "variants.engines=emulated",
        "autoscaler.pools.shared.least=2",
        "autoscaler.pools.shared.most=2",
        "autoscaler.pools.shared.end_s=20",
    ];
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn("api", ROLES, &settings);
    let api = fleet.api();
    let workers = until("two workers are up", || async {
        let body = api.get("/v1/workers").await.json(200);
        let workers = body["workers"].as_array().expect("a list").clone();
        (workers.len() == 2).then_some(workers)
    })
    .await;
    let all = std::thread::available_parallelism()
        .expect("this machine's cores")
        .get();
    let half = (all / 2).max(1);
    let memory: Vec<u64> = workers
        .iter()
        .filter_map(|worker| worker["memory_bytes"].as_u64())
        .collect();
    for worker in &workers {
        assert_eq!(worker["cores"], half, "{worker:#}");
    }
    // Half of the machine's memory is for models, and each child has a share of it.
    let machine = std::fs::read_to_string("/proc/meminfo").expect("this machine's memory");
    let total = machine
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|it| it.parse::<u64>().ok());
    let total = total.expect("kibibytes") * 1024;
    assert_eq!(memory.len(), 2, "{workers:#?}");
    assert!(
        memory.iter().sum::<u64>() <= total / 2,
        "{memory:?} of {total}"
    );
    let held: BTreeSet<String> = children(&fleet).into_iter().map(cores_of).collect();
    let expected = if all >= 2 { 2 } else { 1 };
    assert_eq!(held.len(), expected, "held to other cores: {held:?}");
}

/// The cores that a process may use, in the format of the system.
fn cores_of(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("its cores").trim().to_owned()
}

#[tokio::test]
async fn workers_outlive_a_crash_of_their_autoscaler_and_end_with_it_when_it_is_told_to() {
    let mut fleet = fleet_of_one();
    settles(&fleet.api(), 1).await;
    let before = children(&fleet);
    assert_eq!(before.len(), 1, "{before:?}");
    fleet.kill("api");
    fleet.launch("api");
    settles(&fleet.api(), 1).await;
    assert_eq!(children(&fleet), before, "no worker was started twice");
    fleet.stop("api");
    assert_eq!(children(&fleet), Vec::<u32>::new(), "no worker is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_a_pool_that_is_taken_out_is_replaced_first() {
    let fleet = fleet_of_one();
    let api = fleet.api();
    settles(&api, 1).await;
    learn(&api).await;
    let before = children(&fleet);
    let names = workers(&api).await;
    let load = Load::start(api.clone(), 2, None).await;
    let path = format!("/v1/workers/{}/drain", names[0]);
    let worker = api.post(&path, &json!({})).await.json(200);
    assert_eq!(worker["leaving"], true, "{worker}");
    let after = until("another worker has replaced it", async || {
        let now = workers(&api).await;
        (now.len() == 1 && now != names).then_some(now)
    })
    .await;
    load.answers(20).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    until("its process has ended", async || {
        let now = children(&fleet);
        (now.len() == 1 && now != before).then_some(())
    })
    .await;
    settles(&api, 1).await;
    assert_eq!(workers(&api).await, after);
}
