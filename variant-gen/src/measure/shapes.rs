//! Run times at other sizes than that of the validation set's records, for models whose inputs have dynamic dimensions
//! beside the batch.
//!
//! The sizes are those of the records times powers of two, the same power for all dynamic dimensions; contents are
//! repeated or cut. Sizes are halved down to one element, but five times at most. They are doubled until the engine
//! refuses them, a run takes too long, or the inputs become too large; beyond that, times are estimated. Batches that would take too long, or
//! that are slow after one that gained nothing at a smaller size, are not run: they are assumed to grow with the rows
//! as at the size that was measured before, at which large batches of long rows cost more than in proportion.
//!
//! Memory grows with the length, too. Beyond the sizes that were run it is estimated by the power of the length that
//! the last sizes show. If the estimate exceeds the available memory, inputs are too long.

use std::time::Instant;

use sextant_types::{BatchLatency, Fill, NamedTensor, ShapeProfile, Signature};

use super::{
    MeasureError, ScoreError, milliseconds, run,
    sweep::{Sweep, summarise},
    unsizable,
};

/// How often the size of the records is halved and doubled at most.
const HALVINGS: i32 = 5;
const DOUBLINGS: i32 = 10;

/// Batches that are measured at each size.
const BATCHES: [u16; 5] = [1, 2, 4, 8, 16];

/// Most bytes of one row's inputs.
const ROW_BYTES: u64 = 64 << 20;

/// Copies of its inputs that a run holds at least: the inputs, the outputs, and one between.
const COPIES: u64 = 3;

/// Highest power of a length by which memory is assumed to grow.
const STEEPEST: f64 = 4.0;

/// A slow batch is run once, and counted, if it takes no more than this multiple of the expected time: allocating its
/// memory then took little of it.
const AS_EXPECTED: f64 = 1.15;

impl Sweep<'_> {
    /// The measurements at other sizes than `dims`, at which `points` were measured, in increasing order of size,
    /// without larger batches; and the greatest length that the engine takes, if it refused one.
    pub(super) fn shapes(
        &self,
        dims: &[u64],
        points: &[BatchLatency],
    ) -> Result<(Vec<ShapeProfile>, Option<u64>), MeasureError> {
        let (mut shapes, mut longest) = (Vec::new(), None);
        if dims.is_empty() {
            return Ok((shapes, longest));
        }
        let largest = points.last().map_or(1, |point| point.batch);
        let mut known = dims.to_vec();
        let mut smaller = points.to_vec();
        let mut memory = Vec::new();
        for power in 1..=DOUBLINGS {
            let larger = scaled(dims, power);
            if self.is_too_large(&larger) {
                break;
            }
            let Some(mut shape) = self.shape(&larger, largest)? else {
                longest = self.longest(&known, &larger)?;
                break;
            };
            memory.extend(self.working_memory(&larger));
            known = larger;
            let is_slow = shape.batches.iter().any(|point| self.is_slow(point));
            complete(&mut shape.batches, &smaller, largest);
            smaller.clone_from(&shape.batches);
            shapes.push(shape);
            if is_slow {
                break;
            }
        }
        let limit = self.effort.memory_bytes;
        let longest = longest.or_else(|| longest_within(&memory, self.input_bytes(&known), limit));
        let (mut before, mut larger) = (dims.to_vec(), points.to_vec());
        for power in 1..=HALVINGS {
            let smaller = scaled(dims, -power);
            if smaller == before {
                break;
            }
            let Some(mut shape) = self.shape(&smaller, largest)? else {
                break;
            };
            complete(&mut shape.batches, &larger, largest);
            larger.clone_from(&shape.batches);
            shapes.push(shape);
            before = smaller;
        }
        let size = |shape: &ShapeProfile| self.signature().row_elements(&shape.dims);
        shapes.sort_by_key(size);
        Ok((shapes, longest))
    }

    /// The greatest length that the engine takes, between one that it takes and one that it refuses.
    fn longest(&self, takes: &[u64], refuses: &[u64]) -> Result<Option<u64>, MeasureError> {
        let even = |dims: &[u64]| dims.iter().all(|size| *size == dims[0]);
        if !even(takes) || !even(refuses) {
            return Ok(None);
        }
        let (mut takes, mut refuses) = (takes[0], refuses[0]);
        let axes = self.signature().dynamic_axes().count();
        while refuses - takes > 1 {
            self.cancel.check()?;
            let middle = takes + (refuses - takes) / 2;
            let inputs = self.inputs(1, &vec![middle; axes])?;
            match run(self.model, &inputs, 1) {
                Ok(_) => takes = middle,
                Err(_) => refuses = middle,
            }
        }
        Ok(Some(takes))
    }

    /// A length, and the growth of the process beside the weights when inputs of that length were run, bytes; `None` if
    /// dimensions differ or the growth is not known.
    fn working_memory(&self, dims: &[u64]) -> Option<(u64, u64)> {
        let length = *dims.first()?;
        let even = dims.iter().all(|size| *size == length);
        let growth = match self.model.working_bytes() {
            Some(working) => working,
            None => self
                .baseline
                .growth()
                .ok()?
                .saturating_sub(self.model.weights_bytes()),
        };
        even.then_some((length, growth))
    }

    /// Measures one size; `None` if the engine refuses it.
    fn shape(&self, dims: &[u64], largest: u32) -> Result<Option<ShapeProfile>, MeasureError> {
        let mut batches: Vec<BatchLatency> = Vec::new();
        for rows in BATCHES
            .into_iter()
            .filter(|rows| u32::from(*rows) <= largest)
        {
            let per_row = batches
                .last()
                .map(|last| last.p50_ms / f64::from(last.batch));
            let expected = per_row.unwrap_or(0.0) * f64::from(rows);
            let is_slow = expected > milliseconds(self.effort.slow);
            if expected > milliseconds(self.effort.longest_shape)
                || (is_slow && gains_nothing(&batches, self.effort.least_gain))
            {
                break;
            }
            let inputs = self.inputs(rows, dims)?;
            match self.point_of(rows, &inputs, expected) {
                Ok(point) => batches.push(point),
                Err(MeasureError::Run { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        let dims = dims.to_vec();
        Ok((!batches.is_empty()).then_some(ShapeProfile { dims, batches }))
    }

    /// The records' contents at other sizes.
    pub(super) fn inputs(&self, rows: u16, dims: &[u64]) -> Result<Vec<NamedTensor>, MeasureError> {
        let inputs = self.subject.validation.repeated(usize::from(rows));
        let inputs = inputs.map_err(ScoreError::from)?;
        let resized = self.signature().resized(&inputs, dims, |_| Fill::Repeated);
        resized.map_err(unsizable)
    }

    /// The first run warms up and is not counted, unless it is slow and took about `expected`, ms: it has to allocate
    /// the memory for this size, and some engines prepare kernels for it.
    fn point_of(
        &self,
        rows: u16,
        inputs: &[NamedTensor],
        expected: f64,
    ) -> Result<BatchLatency, MeasureError> {
        let effort = self.effort;
        let timed = || {
            self.cancel.check()?;
            let started = Instant::now();
            run(self.model, inputs, usize::from(rows))?;
            Ok::<_, MeasureError>(started.elapsed())
        };
        let first = timed()?;
        let is_as_expected = milliseconds(first) <= AS_EXPECTED * expected;
        if first > effort.slow && effort.slow_shape_runs <= 1 && is_as_expected {
            return Ok(summarise(rows, vec![milliseconds(first)]));
        }
        let least = match first > effort.slow {
            true => effort.slow_shape_runs,
            false => effort.shape_runs,
        };
        let (begun, mut times) = (Instant::now(), Vec::new());
        while times.len() < least.max(1) as usize || begun.elapsed() < effort.shape_budget {
            times.push(milliseconds(timed()?));
        }
        Ok(summarise(rows, times))
    }

    fn is_too_large(&self, dims: &[u64]) -> bool {
        self.input_bytes(dims) > ROW_BYTES
    }

    /// Most bytes of the inputs of one row.
    fn input_bytes(&self, dims: &[u64]) -> u64 {
        let signature = self.signature();
        let widest = signature
            .inputs
            .iter()
            .map(|spec| spec.data_type.size().unwrap_or(16));
        let widest = widest.max().unwrap_or(1) as u64;
        signature.row_elements(dims).saturating_mul(widest)
    }

    fn is_slow(&self, point: &BatchLatency) -> bool {
        point.batch == 1 && point.p50_ms > milliseconds(self.effort.longest_shape)
    }

    fn signature(&self) -> &Signature {
        self.subject.signature
    }
}

/// Whether the last batch answers no more than `least_gain` times the rows per second of the one before; never if
/// `least_gain` is 0.
fn gains_nothing(batches: &[BatchLatency], least_gain: f64) -> bool {
    let rate = |point: &BatchLatency| f64::from(point.batch) / point.p50_ms;
    match batches {
        [.., before, last] => least_gain > 0.0 && rate(last) <= least_gain * rate(before),
        _ => false,
    }
}

/// Adds the batches that were not run, without samples: they grow from the last one that was run as at the size that
/// was measured before, at least in proportion.
fn complete(batches: &mut Vec<BatchLatency>, known: &[BatchLatency], largest: u32) {
    for rows in BATCHES.map(u32::from) {
        let Some(last) = batches.last().copied().filter(|last| last.batch < rows) else {
            continue;
        };
        let at = |rows: u32| known.iter().find(|point| point.batch == rows);
        let (Some(before), Some(after)) = (at(last.batch), at(rows)) else {
            continue;
        };
        if rows <= largest && before.p50_ms > 0.0 {
            let in_proportion = f64::from(rows) / f64::from(last.batch);
            let times = (after.p50_ms / before.p50_ms).max(in_proportion);
            batches.push(BatchLatency {
                batch: rows,
                p50_ms: last.p50_ms * times,
                p99_ms: last.p99_ms * times,
                mean_ms: last.mean_ms * times,
                samples: 0,
            });
        }
    }
}

/// The greatest length whose runs stay within `limit_bytes`. `memory` has the lengths in increasing order with their
/// growth; `inputs` is the size of the last length's inputs alone. `None` without a limit or with too few lengths. A
/// length that was run is never refused.
///
/// One part of a run's memory is the same at any length, and the other grows with a power of it: if the step between
/// two lengths is a fourth of the step between the last two, the power is 2. Two lengths cannot separate the parts:
/// then all of it is assumed to grow, at least in proportion.
fn longest_within(memory: &[(u64, u64)], inputs: u64, limit_bytes: u64) -> Option<u64> {
    let [.., (before, less), (last, most)] = *memory else {
        return None;
    };
    if limit_bytes == 0 || last <= before || most == 0 {
        return None;
    }
    let ratio = (last as f64 / before as f64).log2();
    let power = |less: u64, most: u64| {
        let grown = (most as f64 / less.max(1) as f64).log2();
        (grown / ratio).clamp(1.0, STEEPEST)
    };
    let (growing, power) = match *memory {
        [(_, first), .., (_, earlier), _, _] | [(_, first @ earlier), _, _] => {
            let step = most.saturating_sub(less);
            let power = power(less.saturating_sub(earlier), step);
            let share = 1.0 - (ratio * -power).exp2();
            let by_step = (step as f64 / share) as u64;
            (by_step.max(most.saturating_sub(first)).min(most), power)
        }
        _ => (most, power(less, most)),
    };
    let growing = growing.max(inputs.saturating_mul(COPIES));
    let room = limit_bytes.saturating_sub(most.saturating_sub(growing));
    let times = (room as f64 / growing.max(1) as f64).powf(power.recip());
    Some((last as f64 * times.max(1.0)) as u64)
}

/// Sizes times a power of two, at least 1.
fn scaled(dims: &[u64], power: i32) -> Vec<u64> {
    let scale = |size: &u64| match power {
        0.. => size.saturating_mul(1 << power),
        _ => (size >> -power).max(1),
    };
    dims.iter().map(scale).collect()
}

#[cfg(test)]
mod tests {
    use super::longest_within;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_grows_with_the_square_allows_twice_the_length_in_four_times_the_memory() {
        let memory = [(512, MIB), (1024, 4 * MIB), (2048, 16 * MIB)];
        assert_eq!(longest_within(&memory, 0, 64 * MIB), Some(4096));
        assert_eq!(longest_within(&memory, 0, 1024 * MIB), Some(16384));
        assert_eq!(longest_within(&memory[1..], 0, 64 * MIB), Some(4096));
    }

    #[test]
    fn what_is_there_at_any_length_does_not_grow() {
        let memory = [101, 104, 116].map(|used| used * MIB);
        let memory = [(512, memory[0]), (1024, memory[1]), (2048, memory[2])];
        // Of the 116, 16 grow with the square of the length.
        assert_eq!(longest_within(&memory, 0, 164 * MIB), Some(4096));
        assert_eq!(longest_within(&memory, 0, 116 * MIB), Some(2048));
    }

    #[test]
    fn where_memory_does_not_grow_inputs_and_outputs_still_do() {
        let memory = [(1024, 4 * MIB), (2048, 4 * MIB), (4096, 4 * MIB)];
        assert_eq!(longest_within(&memory, MIB, 7 * MIB), Some(8192));
        let memory = [(1024, 4 * MIB), (2048, 4 * MIB)];
        assert_eq!(longest_within(&memory, 0, 8 * MIB), Some(4096));
    }

    #[test]
    fn lengths_that_were_run_are_never_refused() {
        let memory = [(1024, 4 * MIB), (2048, 16 * MIB)];
        assert_eq!(longest_within(&memory, MIB, MIB), Some(2048));
    }

    #[test]
    fn nothing_is_said_without_a_limit_or_with_one_length() {
        assert_eq!(longest_within(&[(1024, MIB), (2048, MIB)], 1, 0), None);
        assert_eq!(longest_within(&[(1024, MIB)], 1, MIB), None);
        assert_eq!(longest_within(&[(1024, 0), (2048, 0)], 1, MIB), None);
    }
}
