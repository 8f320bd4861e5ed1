//! When queries come.

use sextant_schedule::Nanos;

use crate::{
    Error, Source,
    workload::{Gaps, OpenLoop, Rate, Stream},
};

/// Arrivals of so many seconds, ns, in order.
///
/// # Errors
/// When a rate is negative or not finite, or a shape is not more than zero.
pub fn arrivals(rate: Rate, gaps: Gaps, seconds: f64, seed: u64) -> Result<Vec<Nanos>, Error> {
    let stream = Stream {
        model: 0,
        gaps,
        rate,
    };
    let mut source = OpenLoop::new(&[stream], seed)?;
    let until = (seconds * 1e9) as Nanos;
    let mut arrivals = Vec::new();
    while source.peek().is_some_and(|at| at < until) {
        arrivals.push(source.next().at);
    }
    Ok(arrivals)
}
