//! Checks of the setting with one process: a backup of it is restored in another place and answers, and a store loses
//! nothing beside a registry that is not its own.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{Stage, blocking, client, pace::Patience, service::Service};
use crate::{
    Settings, TestCluster,
    chaos::{history::Event, plan::Setting},
    cluster::files,
    process::command,
};

/// Longest time until a restored service answers.
const ANSWERING: std::time::Duration = std::time::Duration::from_secs(30);
/// Time between two attempts.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(200);
/// Lists of what must be in a backup, and the member of their documents.
const LISTS: [(&str, &str); 3] = [
    ("/v1/applications", "applications"),
    ("/v1/models", "models"),
    ("/v1/jobs?limit=1000", "jobs"),
];

/// A restored service, used like the one of the stage.
struct RestoredService {
    service: TestCluster,
    _folder: TempDir,
}

/// Takes a backup, restores it, and separates its registry from its store. `tests/tests/fleet/stores.rs` tests the same
/// for a fleet.
pub async fn keep(stage: &Arc<Stage>) -> Result<(), String> {
    if stage.plan.setting != Setting::One {
        return Ok(());
    }
    let front_end = &stage.plan.front_ends()[0];
    let address = stage.address(front_end).ok_or("it is down")?;
    let known = listed(stage, &address).await?;
    let from = Arc::clone(stage);
    let restored = blocking(move || restore(&from)).await?;
    let (missing, data) = match restored {
        Ok(restored) => {
            let missing = missing(stage, &restored, known).await?;
            (missing, Some(restored))
        }
        Err(cause) => (vec![cause], None),
    };
    stage.history.note(Event::Restored { missing });
    match data {
        Some(restored) => estrange(stage, restored).await,
        None => Ok(()),
    }
}

/// The registered things and the jobs, as kinds and names.
async fn listed(stage: &Stage, address: &str) -> Result<BTreeSet<String>, String> {
    let mut all = BTreeSet::new();
    for (path, member) in LISTS {
        let reply = ask(stage, (Method::GET, &format!("{address}{path}")), None).await?;
        let entries = reply.json()[member].as_array().cloned();
        let entries = entries.ok_or_else(|| format!("`{path}`: {}", reply.say()))?;
        let name = |it: &Value| Some(it["id"].as_str().or(it["name"].as_str())?.to_owned());
        let named = entries.iter().filter_map(name);
        all.extend(named.map(|name| format!("`{name}` of {member}")));
    }
    Ok(all)
}

async fn ask(
    stage: &Stage,
    (method, url): (Method, &str),
    body: Option<Vec<u8>>,
) -> Result<client::Reply, String> {
    let request = stage.http.request(method, url);
    let request = request.header("content-type", "application/json");
    client::receive(match body {
        Some(body) => request.body(body),
        None => request,
    })
    .await
}

/// Takes a backup of the running service and starts another one with it. Blocks.
fn restore(stage: &Stage) -> Result<RestoredService, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let beside = stage.with(|service| match service {
        Service::One(cluster) => Some(cluster.beside()),
        Service::Fleet(_) => None,
    });
    let (binary, data) = beside.flatten().ok_or("the service has ended")?;
    let (backup, other) = (folder.path().join("backup"), folder.path().join("data"));
    done(binary, ("backup", &backup), &data)?;
    done(command(), ("restore", &backup), &other)?;
    Ok(RestoredService {
        service: TestCluster::start_with(&other, settings()),
        _folder: folder,
    })
}

fn done(mut order: Command, (what, backup): (&str, &Path), data: &Path) -> Result<(), String> {
    order.arg(what).arg(backup).arg("--data-dir").arg(data);
    let output = order.stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{what}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn settings() -> Settings {
    Settings {
        set: ["variants.engines=emulated", "worker.cores=1"]
            .map(str::to_owned)
            .to_vec(),
        faults: true,
        ..Settings::default()
    }
}

/// What existed before the backup and is not in it, including answers.
async fn missing(
    stage: &Stage,
    restored: &RestoredService,
    mut known: BTreeSet<String>,
) -> Result<Vec<String>, String> {
    let address = restored.service.address();
    let found = listed(stage, address).await?;
    known.retain(|it| !found.contains(it));
    let mut missing: Vec<String> = known.into_iter().collect();
    let url = format!("{address}/v1/queries");
    for application in &stage.plan.applications {
        let mut patience = Patience::new(ANSWERING);
        loop {
            let body = client::query(stage, application, 0);
            let reply = ask(stage, (Method::POST, &url), Some(body)).await?;
            if reply.is_success() {
                break;
            }
            if patience.is_over(stage) {
                missing.push(format!(
                    "answers of `{}`: {}",
                    application.name,
                    reply.say()
                ));
                break;
            }
            sleep(AGAIN).await;
        }
    }
    Ok(missing)
}

/// Starts the restored service with an empty registry, and tells it to sweep the store that it does not know.
async fn estrange(stage: &Arc<Stage>, mut restored: RestoredService) -> Result<(), String> {
    let stranger = blocking(move || {
        restored.service.stop();
        let data = restored.service.data();
        for end in ["", "-wal", "-shm"] {
            // The files beside it do not always exist.
            fs::remove_file(data.join(format!("registry.sqlite{end}"))).ok();
        }
        restored.service.launch();
        restored
    });
    let stranger = stranger.await?;
    let blobs = || files(&stranger.service.data().join("objects/blobs")).len();
    let before = blobs();
    let address = stranger.service.address();
    let url = format!("{address}/health/ready");
    let health = ask(stage, (Method::GET, &url), None).await?.json();
    let url = format!("{address}/v1/storage/sweep");
    let sweep = br#"{"grace_s": 0}"#.to_vec();
    let swept = ask(stage, (Method::POST, &url), Some(sweep)).await?;
    stage.history.note(Event::Estranged {
        is_warned: !health["warnings"][0].is_null(),
        code: swept.json()["code"].as_str().unwrap_or("").to_owned(),
        lost: before.saturating_sub(blobs()),
    });
    // Its end blocks.
    blocking(move || drop(stranger)).await
}
