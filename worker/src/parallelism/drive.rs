//! Open-loop load: requests arrive when they do, whether or not those before them are done.
//!
//! All requests are handed over beforehand with their times. The thread that will run one sleeps
//! and then spins until it arrives, on a core that would be idle; no generator takes a core from
//! those that serve. Latencies count from the arrival that was planned.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use sextant_types::NamedTensor;

use super::{Completed, Error, Request, RunError, Runner};

/// What became of a load.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// From arrival to end, in order of arrival, s.
    pub latencies_s: Vec<f64>,
    /// From start to end, in order of arrival, s.
    pub services_s: Vec<f64>,
}

/// Time between handing the requests over and the first gap.
const LEAD: Duration = Duration::from_millis(20);

/// Sends requests with these gaps before each, s, and waits for all of them.
///
/// # Errors
/// The first that failed.
pub fn drive(
    runner: &Runner,
    inputs: &Arc<Vec<NamedTensor>>,
    gaps_s: &[f64],
) -> Result<Served, Error> {
    let (sender, receiver) = mpsc::channel();
    let mut arrival = Instant::now() + LEAD;
    for (number, gap_s) in gaps_s.iter().enumerate() {
        arrival += Duration::try_from_secs_f64(*gap_s)
            .map_err(|_| Error::Invalid(format!("`{gap_s}` s is not a gap between arrivals")))?;
        let sender = sender.clone();
        runner.submit(Request {
            inputs: Arc::clone(inputs),
            arrival,
            done: Box::new(move |completed| {
                // The receiver is gone only if another request failed.
                let _ = sender.send((number, completed));
            }),
        });
    }
    drop(sender);
    let mut served = Served {
        latencies_s: vec![0.0; gaps_s.len()],
        services_s: vec![0.0; gaps_s.len()],
    };
    for (number, completed) in receiver {
        let Completed {
            outputs,
            arrival,
            started,
            ended,
            ..
        } = completed;
        outputs.map_err(|error| match error {
            RunError::Engine(error) => Error::Engine(error),
            RunError::Closed => Error::Invalid("the runner was closed".to_owned()),
        })?;
        served.latencies_s[number] = (ended - arrival).as_secs_f64();
        served.services_s[number] = (ended - started).as_secs_f64();
    }
    Ok(served)
}
