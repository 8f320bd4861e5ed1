//! Carries out a plan: real processes, real stores, an open-loop load, and timed faults.

mod artefacts;
mod aside;
mod client;
mod faults;
mod hooks;
mod jobs;
mod keeping;
mod leaving;
mod load;
mod losses;
mod pace;
mod queueing;
mod registrations;
mod rest;
mod service;
mod stage;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::{JoinHandle, JoinSet},
    time::{sleep_until, timeout},
};

use super::{
    Plan, Violation,
    check::check,
    history::{Event, History},
};
use stage::Stage;

/// Longest time without faults in which shares are measured after everything has come back. Short runs have half their
/// length.
const CALM: Duration = Duration::from_secs(4);

/// Longest time of a run in addition to its faults: clients that are never answered wait for longer.
const LONGEST: Duration = Duration::from_secs(180);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The violations.
    pub violations: Vec<Violation>,
    /// The folder of the history and the logs.
    pub folder: PathBuf,
    /// Queries that were answered, refused and broken.
    pub queries: [usize; 3],
}

/// Carries out a plan. Its history and, if something is wrong, its logs are in a folder of its own below `folder`,
/// which no later run replaces if something is wrong.
///
/// # Panics
/// If the folder cannot be written.
pub async fn run(plan: Plan, folder: &Path) -> Outcome {
    let folder = folder.join(format!("seed-{}", plan.seed));
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).expect("the folder can be made");
    let history = History::new(&folder.join("history.jsonl")).expect("a file can be written");
    history.note(Event::Planned { plan: plan.clone() });
    let history = Arc::new(history);
    // In a task of its own, so that a panic in it becomes part of the history.
    let acted = tokio::spawn(act(plan, Arc::clone(&history), folder.clone()));
    if let Some(cause) = ended(acted).await {
        history.note(Event::Trouble { cause });
    }
    let entries = history.entries();
    let count = |is_so: fn(&Event) -> bool| entries.iter().filter(|it| is_so(&it.event)).count();
    let violations = check(&entries);
    Outcome {
        folder: match violations.is_empty() {
            true => folder,
            false => kept(folder),
        },
        violations,
        queries: [
            count(|event| matches!(event, Event::Answered { .. })),
            count(|event| matches!(event, Event::Refused { .. })),
            count(|event| matches!(event, Event::Broken { .. })),
        ],
    }
}

/// Renames the folder of a wrong run, so that no later run of its seed replaces it.
fn kept(folder: PathBuf) -> PathBuf {
    let named = |number: u32| PathBuf::from(format!("{}-wrong-{number}", folder.display()));
    let free = (1..).map(named).find(|it| !it.exists());
    let moved = free.filter(|free| fs::rename(&folder, free).is_ok());
    moved.unwrap_or(folder)
}

async fn act(plan: Plan, history: Arc<History>, folder: PathBuf) -> Result<(), String> {
    let stage = Arc::new(blocking(move || Stage::set(plan, history)).await?);
    let pace = tokio::spawn(pace::watch(Arc::clone(&stage)));
    let first = Arc::clone(&stage);
    blocking(move || first.start_all()).await?;
    let most = LONGEST + Duration::from_millis(stage.plan.length_ms);
    let played = timeout(most, play(&stage)).await;
    let played = played.unwrap_or_else(|_| Err(format!("the run did not end within {most:?}")));
    pace.abort();
    if let Err(cause) = &played {
        let cause = cause.clone();
        stage.history.note(Event::Trouble { cause });
    }
    let last = Arc::clone(&stage);
    blocking(move || last.end(&folder)).await
}

/// Starts one task at each of these times, in milliseconds.
fn at<F>(
    begun: Instant,
    times: impl Iterator<Item = u64>,
    task: impl Fn(usize) -> F,
) -> JoinSet<Result<(), String>>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (number, at_ms) in times.enumerate() {
        let task = task(number);
        tasks.spawn(async move {
            sleep_until((begun + Duration::from_millis(at_ms)).into()).await;
            task.await
        });
    }
    tasks
}

async fn play(stage: &Arc<Stage>) -> Result<(), String> {
    let learnt = tokio::spawn({
        let stage = Arc::clone(stage);
        async move { client::learn(&stage).await }
    });
    ended(learnt).await.map_or(Ok(()), Err)?;
    client::ready(stage, false).await?;
    let begun = Instant::now();
    stage.history.begin(begun);
    let load = load::Load::start(stage, begun);
    let changes = tokio::spawn(artefacts::change(Arc::clone(stage)));
    let jobs = jobs::submit(stage, begun);
    let registrations = registrations::submit(stage, begun);
    let aside = aside::SideLoad::start(stage, begun);
    let watch = tokio::spawn(stage::watch(Arc::clone(stage)));
    faults::carry_out(stage, begun).await;
    stage.history.note(Event::Healed);
    client::ready(stage, true).await?;
    stage.history.note(Event::Calm);
    let calm = CALM.min(Duration::from_millis(stage.plan.length_ms) / 2);
    rest::look_in_peace(stage, calm).await;
    changes.abort();
    load.stop().await;
    stage.history.note(Event::Rest);
    rest::after_load(stage).await;
    keeping::keep(stage).await?;
    jobs::finish(stage, jobs).await?;
    registrations::finish(stage, registrations).await?;
    aside.finish().await?;
    queueing::queue(stage).await?;
    artefacts::audit(stage).await?;
    rest::settle(stage).await?;
    losses::carry_out(stage).await?;
    watch.abort();
    leaving::leave(stage).await;
    Ok(())
}

/// The error of a task, if it has failed.
async fn ended(task: JoinHandle<Result<(), String>>) -> Option<String> {
    match task.await {
        Ok(result) => result.err(),
        Err(error) => Some(said(error)),
    }
}

/// The message of a task that panicked.
fn said(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let word = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned());
            text.or(word).unwrap_or_else(|| "a panic".to_owned())
        }
        Err(error) => error.to_string(),
    }
}

/// Runs a blocking function on another thread.
async fn blocking<T: Send + 'static>(
    action: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(action).await.map_err(said)
}
