//! The cost of registering models with 1 and 3 GB of weights in a separate file: time, and memory of the service and of
//! the processes that measure, as a multiple of the size of the weights.
//!
//! Memory is measured in two ways: the memory that belongs to no file, which the system cannot take back while the
//! processes run, and the resident memory at its peak, which includes pages of mapped files that the system may drop.

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

const NAMES: [&str; 2] = ["large", "huge"];

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(50);

/// Registers both models.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    NAMES.iter().try_for_each(|name| one(bench, report, name))
}

fn one(bench: &Bench<'_>, report: &mut Report, name: &str) -> Result<()> {
    let folder = models::write(&bench.provisioned.python, &[name])?;
    let weights = folder.join(format!("{name}.onnx.data")).metadata()?.len() as f64;
    // Variants that are loaded for queries afterwards do not count.
    let server = bench.sextant(name, &["autoscaler.warm_memory_share=0"])?;
    let begun = Instant::now();
    let peaks = watched(&server, || {
        shell::run(
            shell::command(&bench.binary)
                .args(["--server", &format!("http://{}", server.address)])
                .args(["register", "--application", name, "--name", name, "--model"])
                .arg(folder.join(format!("{name}.onnx")))
                .arg("--validation")
                .arg(folder.join(format!("{name}-validation.npz"))),
        )
    })?;
    let took_s = begun.elapsed().as_secs_f64();
    let mut figure = |metric: &str, value: f64, unit, goal| {
        report.add(Figure::new("models", metric, value, unit, goal).of(name));
    };
    figure("registration_s", took_s, "s", None);
    for (metric, peak) in [
        ("held", &peaks.held),
        ("service_resident", &peaks.service),
        ("measuring_resident", &peaks.measuring),
    ] {
        let share = peak.load(Ordering::Relaxed) as f64 / weights;
        let metric = format!("{metric}_over_weights");
        figure(&metric, share, "ratio", Some("<= 1.2"));
    }
    Ok(())
}

/// The highest values that were seen, bytes.
#[derive(Default)]
struct Peaks {
    /// Memory of the service and of all processes that it has started, together, without pages of files.
    held: AtomicU64,
    /// Memory of the service, including pages of files.
    service: AtomicU64,
    /// Memory of one of the processes that it has started, including pages of files.
    measuring: AtomicU64,
}

/// Calls `act` and watches the memory of `server` and of the processes that it has started meanwhile.
fn watched(server: &Server, act: impl FnOnce() -> Result<()>) -> Result<Peaks> {
    let (is_over, peaks) = (AtomicBool::new(false), Peaks::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peaks.look(server.id());
                shell::pause(LOOK);
            }
        });
        let acted = act();
        is_over.store(true, Ordering::Relaxed);
        acted
    })?;
    Ok(peaks)
}

impl Peaks {
    fn look(&self, service: u32) {
        let read = |process, field| memory_bytes(process, field).unwrap_or_default();
        let held = |process| read(process, "RssAnon:") + read(process, "RssShmem:");
        let children = children(service);
        let all: u64 = children.iter().copied().chain([service]).map(held).sum();
        self.held.fetch_max(all, Ordering::Relaxed);
        let peak = read(service, "VmHWM:");
        self.service.fetch_max(peak, Ordering::Relaxed);
        for child in children {
            let peak = read(child, "VmHWM:");
            self.measuring.fetch_max(peak, Ordering::Relaxed);
        }
    }
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
