//! What the registration of a model with 1 GB of weights beside it takes: time, and memory of the service and of the
//! process that measures, over the size of the weights.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::super::bed::Bench;
use super::super::report::{Figure, Report};
use crate::{
    models,
    server::{Server, memory_bytes},
    shell,
};

const NAME: &str = "large";

/// Time between two looks at the processes that the service has started.
const LOOK: Duration = Duration::from_millis(100);

/// Registers it.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let folder = models::write(&bench.provisioned.python, &[NAME])?;
    let weights = folder.join(format!("{NAME}.onnx.data")).metadata()?.len() as f64;
    let server = bench.sextant(NAME, &[])?;
    let begun = Instant::now();
    let measuring = watched(&server, || {
        shell::run(
            shell::command(&bench.binary)
                .args(["--server", &format!("http://{}", server.address)])
                .args(["register", "--application", NAME, "--name", NAME, "--model"])
                .arg(folder.join(format!("{NAME}.onnx")))
                .arg("--validation")
                .arg(folder.join(format!("{NAME}-validation.npz"))),
        )
    })?;
    let took_s = begun.elapsed().as_secs_f64();
    let service = memory_bytes(server.id(), "VmHWM:").unwrap_or_default();
    let mut figure = |metric: &str, value: f64, unit, goal| {
        report.add(Figure::new("models", metric, value, unit, goal).of(NAME));
    };
    figure("registration_s", took_s, "s", None);
    for (metric, bytes) in [("service_memory", service), ("measuring_memory", measuring)] {
        let share = bytes as f64 / weights;
        figure(
            &format!("{metric}_over_weights"),
            share,
            "ratio",
            Some("<= 1.2"),
        );
    }
    Ok(())
}

/// Does something; the most memory that one of the processes that `server` has started took meanwhile, bytes.
fn watched(server: &Server, act: impl FnOnce() -> Result<()>) -> Result<u64> {
    let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let taken = children(server.id()).into_iter();
                let taken = taken
                    .filter_map(|child| memory_bytes(child, "VmHWM:"))
                    .max();
                most.fetch_max(taken.unwrap_or_default(), Ordering::Relaxed);
                shell::pause(LOOK);
            }
        });
        let acted = act();
        is_over.store(true, Ordering::Relaxed);
        acted
    })?;
    Ok(most.into_inner())
}

fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let listed =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|it| it.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}
