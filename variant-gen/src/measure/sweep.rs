//! One pass over the batch sizes.

use std::time::{Duration, Instant};

use sextant_engine::LoadedModel;
use sextant_types::{BatchLatency, NamedTensor, Tensor};

use super::{Cancel, Effort, MeasureError, Point, Subject, milliseconds, run};
use crate::{
    configuration::batch_sizes,
    interval::quantile,
    memory::{Baseline, MemorySource, peak},
    score::ScoreError,
};

/// Part of a batch size's time that is enough if it had many runs.
const MANY: u32 = 5;

/// One pass over the batch sizes.
pub(super) struct Sweep<'a> {
    pub subject: &'a Subject<'a>,
    pub effort: &'a Effort,
    pub cancel: &'a Cancel,
    pub model: &'a dyn LoadedModel,
    pub baseline: Baseline,
}

/// The result for a batch size.
enum Outcome {
    Point(Point),
    /// Too slow to be offered.
    Slow(Duration),
}

impl Sweep<'_> {
    /// The measured batch sizes, and why there are no more.
    pub(super) fn points(&self) -> Result<(Vec<Point>, Option<String>), MeasureError> {
        let mut points: Vec<Point> = Vec::new();
        let batched = self.subject.signature.batched;
        let mut stopped = None;
        for batch in batch_sizes(batched, self.effort.largest_batch) {
            match self.point(batch) {
                Ok(Outcome::Point(point)) => {
                    points.push(point);
                    stopped = self.gains_nothing(&points);
                }
                Ok(Outcome::Slow(took)) => {
                    let took = milliseconds(took).round();
                    stopped = Some(format!("a batch of `{batch}` takes `{took}` ms"));
                }
                Err(MeasureError::Run { source, .. }) if batch > 1 => {
                    stopped = Some(format!("a batch of `{batch}` failed: {source}"));
                }
                Err(other) => return Err(other),
            }
            if stopped.is_some() {
                break;
            }
        }
        self.count_memory_of_quick(&mut points);
        Ok((points, stopped))
    }

    /// Whether the memory that a batch reuses is counted for it alone, which takes some milliseconds.
    fn is_counted(&self, point: &Point) -> bool {
        point.latency.batch == 1 || point.latency.p50_ms > milliseconds(self.effort.slow)
    }

    /// Counts the memory that the largest quick batch reuses; between the smallest batch and that one, memory grows
    /// with the rows.
    fn count_memory_of_quick(&self, points: &mut [Point]) {
        let Some((least, more)) = points.split_first_mut() else {
            return;
        };
        let is_quick =
            |point: &&Point| point.memory != MemorySource::Device && !self.is_counted(point);
        let quick = more.iter().take_while(is_quick);
        let (quick, slow) = more.split_at_mut(quick.count());
        let Some(last) = quick.last() else { return };
        let (rows, bytes) = match slow.first() {
            Some(slow) => (slow.latency.batch, slow.peak_memory_bytes),
            None => match self.baseline.growth() {
                Ok(bytes) => (last.latency.batch, bytes),
                Err(_) => return,
            },
        };
        grow_with_rows(least, quick, (rows, bytes));
    }

    /// Why larger batches are not worth their time: the last two are slow, and answer no more rows per second than a
    /// smaller one.
    fn gains_nothing(&self, points: &[Point]) -> Option<String> {
        let [before @ .., first, second] = points else {
            return None;
        };
        let rate = |point: &Point| rate(&point.latency);
        let smaller = before.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let is_slow = first.latency.p50_ms > milliseconds(self.effort.slow);
        let least = rate(smaller) * self.effort.least_gain;
        let gains = rate(first) >= least || rate(second) >= least;
        (is_slow && !gains).then(|| {
            format!(
                "batches of `{}` and `{}` answer no more rows per second than one of `{}`",
                first.latency.batch, second.latency.batch, smaller.latency.batch
            )
        })
    }

    fn point(&self, batch: u16) -> Result<Outcome, MeasureError> {
        let rows = usize::from(batch);
        let inputs = self.subject.validation.repeated(rows);
        let inputs = inputs.map_err(ScoreError::from)?;
        self.cancel.check()?;
        let started = Instant::now();
        let outputs = run(self.model, &inputs, rows)?;
        let first = started.elapsed();
        if first > self.effort.slowest && batch > 1 {
            return Ok(Outcome::Slow(first));
        }
        let times = self.times(&inputs, rows, first)?;
        let tensors = inputs.iter().map(|input| &input.tensor).chain(&outputs);
        let floor = self.model.weights_bytes() + tensors.map(held_bytes).sum::<u64>();
        let mut point = Point {
            latency: summarise(batch, times),
            peak_memory_bytes: floor,
            memory: MemorySource::Device,
        };
        (point.peak_memory_bytes, point.memory) = match self.model.working_bytes() {
            Some(working) => (self.model.weights_bytes() + working, MemorySource::Device),
            None if self.is_counted(&point) => peak(self.baseline.growth(), floor),
            None => peak(self.baseline.grown(), floor),
        };
        Ok(Outcome::Point(point))
    }

    /// Times of runs, ms. The first run warms up and is not counted, except in larger batches that are slow: smaller
    /// ones have warmed up for them, and they take most of a registration's time.
    fn times(
        &self,
        inputs: &[NamedTensor],
        rows: usize,
        first: Duration,
    ) -> Result<Vec<f64>, MeasureError> {
        let effort = self.effort;
        if first > effort.slowest {
            return Ok(vec![milliseconds(first)]);
        }
        let (least, mut times) = match first > effort.slow {
            true if rows > 1 => (effort.slow_runs, vec![milliseconds(first)]),
            true => (effort.slow_runs, Vec::new()),
            false => (effort.runs, Vec::new()),
        };
        let begun = Instant::now();
        let enough = |times: &[f64]| {
            let runs = times.len() as u64;
            let budget = match runs >= u64::from(effort.many_runs) {
                true => effort.budget / MANY,
                false => effort.budget,
            };
            runs >= u64::from(least.max(1)) && begun.elapsed() >= budget
        };
        while !enough(&times) {
            self.cancel.check()?;
            let started = Instant::now();
            run(self.model, inputs, rows)?;
            times.push(milliseconds(started.elapsed()));
        }
        Ok(times)
    }
}

/// Raises the memory of `between` to a straight line over the rows, from that of `least` to `bytes` for `rows`.
fn grow_with_rows(least: &Point, between: &mut [Point], (rows, bytes): (u32, u64)) {
    let (first, from) = (least.latency.batch, least.peak_memory_bytes);
    let per_row = bytes.saturating_sub(from) as f64 / f64::from(rows - first);
    for point in between {
        let bytes = from + (f64::from(point.latency.batch - first) * per_row) as u64;
        if bytes > point.peak_memory_bytes {
            point.peak_memory_bytes = bytes;
            point.memory = MemorySource::Measured;
        }
    }
}

/// Rows per millisecond.
pub(super) fn rate(of: &BatchLatency) -> f64 {
    f64::from(of.batch) / of.p50_ms
}

pub(super) fn summarise(batch: u16, mut times: Vec<f64>) -> BatchLatency {
    times.sort_by(f64::total_cmp);
    BatchLatency {
        batch: u32::from(batch),
        p50_ms: quantile(&times, 0.5),
        p99_ms: quantile(&times, 0.99),
        mean_ms: times.iter().sum::<f64>() / times.len().max(1) as f64,
        samples: u32::try_from(times.len()).unwrap_or(u32::MAX),
    }
}

fn held_bytes(tensor: &Tensor) -> u64 {
    tensor.held_bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summarised_by_order_statistics() {
        let latency = summarise(2, vec![3.0, 1.0, 2.0]);
        assert_eq!(
            (latency.p50_ms, latency.mean_ms, latency.samples),
            (2.0, 2.0, 3)
        );
        assert!((latency.p99_ms - 2.98).abs() < 1e-12);
    }

    #[test]
    fn memory_between_two_batches_grows_with_the_rows_and_never_falls() {
        let point = |batch, peak_memory_bytes| Point {
            latency: summarise(batch, vec![1.0]),
            peak_memory_bytes,
            memory: MemorySource::Estimated {
                reason: "too little growth".to_owned(),
            },
        };
        let mut between = [point(2, 100), point(4, 900), point(9, 100)];
        grow_with_rows(&point(1, 100), &mut between, (9, 900));
        let bytes = between.each_ref().map(|point| point.peak_memory_bytes);
        assert_eq!(bytes, [200, 900, 900]);
        assert_eq!(between[0].memory, MemorySource::Measured);
        assert_ne!(between[1].memory, MemorySource::Measured, "it was known");
        grow_with_rows(&point(1, 100), &mut between, (9, 50));
        assert_eq!(between[0].peak_memory_bytes, 200);
    }
}
