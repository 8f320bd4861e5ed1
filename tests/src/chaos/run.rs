//! A plan carried out: real processes, real stores, a load that does not wait, faults by the clock.

mod artefacts;
mod client;
mod faults;
mod jobs;
mod load;
mod service;
mod stage;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};

use super::{
    Plan, Violation,
    check::check,
    history::{Event, History},
};
use stage::Stage;

/// Time without faults in which shares are looked at, after everything has come back.
const CALM: Duration = Duration::from_secs(4);

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What must not be, and was.
    pub violations: Vec<Violation>,
    /// The folder of the history and the logs.
    pub folder: PathBuf,
    /// Queries that were answered, refused and broken.
    pub queries: [usize; 3],
}

/// Carries out a plan; its history and, where something is wrong, its logs are left in a folder of its own
/// below `folder`.
///
/// # Panics
/// When the folder cannot be written.
pub async fn run(plan: Plan, folder: &Path) -> Outcome {
    let folder = folder.join(format!("seed-{}", plan.seed));
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).expect("the folder can be made");
    let history = History::new(&folder.join("history.jsonl")).expect("a file can be written");
    history.note(Event::Planned { plan: plan.clone() });
    let history = Arc::new(history);
    // In a task of its own: what panics there is part of the history.
    let acted = tokio::spawn(act(plan, Arc::clone(&history), folder.clone()));
    if let Some(cause) = ended(acted).await {
        history.note(Event::Trouble { cause });
    }
    let entries = history.entries();
    let count = |is_so: fn(&Event) -> bool| entries.iter().filter(|it| is_so(&it.event)).count();
    Outcome {
        violations: check(&entries),
        folder,
        queries: [
            count(|event| matches!(event, Event::Answered { .. })),
            count(|event| matches!(event, Event::Refused { .. })),
            count(|event| matches!(event, Event::Broken { .. })),
        ],
    }
}

async fn act(plan: Plan, history: Arc<History>, folder: PathBuf) -> Result<(), String> {
    let stage = blocking(move || Stage::set(plan, history)).await?;
    let stage = Arc::new(stage);
    let played = play(&stage).await;
    if let Err(cause) = &played {
        let cause = cause.clone();
        stage.history.note(Event::Trouble { cause });
    }
    let last = Arc::clone(&stage);
    blocking(move || last.end(&folder)).await
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
    let watch = tokio::spawn(stage::watch(Arc::clone(stage)));
    faults::carry_out(stage, begun).await;
    stage.history.note(Event::Healed);
    client::ready(stage, true).await?;
    stage.history.note(Event::Calm);
    sleep(CALM).await;
    changes.abort();
    load.stop().await;
    stage.history.note(Event::Rest);
    jobs::finish(stage, jobs).await?;
    artefacts::audit(stage).await?;
    watch.abort();
    Ok(())
}

/// Why a task did not end well, if it did not.
async fn ended(task: JoinHandle<Result<(), String>>) -> Option<String> {
    match task.await {
        Ok(result) => result.err(),
        Err(error) => Some(said(error)),
    }
}

/// What a task that panicked said.
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

/// Does what blocks elsewhere.
async fn blocking<T: Send + 'static>(
    action: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(action).await.map_err(said)
}
