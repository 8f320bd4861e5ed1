//! Run times of queries side by side, each on threads of its own (SERF, section V: tuples). They are the basis for
//! choosing parallelism by load.
//!
//! A number of threads run one query each in a closed loop. A run counts only if as many others ran beside it all the
//! time: those that ended before the first thread was done.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use sextant_engine::LoadedModel;
use sextant_types::{ConcurrentRun, NamedTensor};

use super::{MeasureError, ScoreError, milliseconds, run, sweep::Sweep};

/// Runs of each query (SERF's Table II uses ten).
const RUNS: u32 = 10;

impl Sweep<'_> {
    /// The run times for each number of queries that fill the cores with their threads. Only for lone queries: if rows
    /// share batches, batching shortens the waiting.
    pub(super) fn concurrent(&self) -> Result<Vec<ConcurrentRun>, MeasureError> {
        let threads = self.subject.request.threads.max(1);
        let most = self.effort.concurrent_cores / threads;
        let inputs = self.subject.validation.repeated(1);
        let inputs = inputs.map_err(ScoreError::from)?;
        let measured = (2..=most).map(|running| {
            self.cancel.check()?;
            let times = side_by_side(self.model, &inputs, running)?;
            Ok(ConcurrentRun::of(running, &times))
        });
        let measured: Result<Vec<_>, MeasureError> = measured.collect();
        Ok(measured?.into_iter().flatten().collect())
    }
}

/// Times of the runs with `running` queries side by side all the time, ms.
fn side_by_side(
    model: &dyn LoadedModel,
    inputs: &[NamedTensor],
    running: u16,
) -> Result<Vec<f64>, MeasureError> {
    run(model, inputs, 1)?;
    let start = Barrier::new(usize::from(running));
    let one = || {
        start.wait();
        let mut runs: Vec<(Instant, Duration)> = Vec::new();
        for _ in 0..RUNS {
            let began = Instant::now();
            run(model, inputs, 1)?;
            runs.push((Instant::now(), began.elapsed()));
        }
        Ok(runs)
    };
    let all: Result<Vec<Vec<(Instant, Duration)>>, MeasureError> = thread::scope(|scope| {
        let threads: Vec<_> = (0..running).map(|_| scope.spawn(one)).collect();
        let joined = threads.into_iter().map(|thread| {
            // A panic of an engine ends this measurement as it does on the caller's thread.
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    });
    let all = all?;
    let ends = all.iter().filter_map(|runs| runs.last());
    let first_done = ends.map(|(end, _)| *end).min();
    let beside = all.iter().flatten();
    let counted = beside.filter(|(end, _)| first_done.is_none_or(|done| *end <= done));
    Ok(counted.map(|(_, took)| milliseconds(*took)).collect())
}
