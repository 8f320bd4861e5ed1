//! Measures how evenly round-robin frontends load backends (Symphony, table 2), without any scheduler.

use super::Cell;
use crate::bound::round_robin_deviation;
use sextant_simulator::{
    Source,
    workload::{Gaps, OpenLoop, Rate, Stream},
};

/// Standard deviation of the number of requests that a backend gets in a window.
pub(super) fn deviation(cell: &Cell, seed: u64) -> f64 {
    let (window, backends) = ((cell.window_ms * 1e6) as u64, cell.devices as usize);
    let streams: Vec<Stream> = (0..cell.frontends)
        .map(|frontend| Stream {
            model: frontend,
            gaps: Gaps::Exponential,
            rate: Rate::Constant(cell.rate_rps / f64::from(cell.frontends)),
        })
        .collect();
    let Ok(mut source) = OpenLoop::new(&streams, seed) else {
        return f64::NAN;
    };
    // Frontends begin at different backends. Otherwise their remainders would add up on the first backends.
    let stride = backends / cell.frontends.max(1) as usize;
    let mut turn: Vec<usize> = (0..cell.frontends as usize).map(|at| at * stride).collect();
    let windows = (cell.measured_s * 1e3 / cell.window_ms).ceil().max(1.0) as u64;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut counts = vec![0_u32; backends];
    for at in 1..=windows {
        counts.fill(0);
        while source.peek().is_some_and(|next| next < at * window) {
            let frontend = source.next().model as usize;
            counts[turn[frontend] % backends] += 1;
            turn[frontend] += 1;
        }
        for count in &counts {
            sum += f64::from(*count);
            squares += f64::from(*count) * f64::from(*count);
        }
    }
    let n = windows as f64 * backends as f64;
    (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt()
}

/// The same in closed form.
pub(super) fn closed_form(cell: &Cell) -> f64 {
    let window_s = cell.window_ms / 1e3;
    round_robin_deviation(cell.rate_rps, window_s, cell.frontends, cell.devices)
}
