//! Measuring service times with exactly so many requests side by side.

use std::{
    sync::{
        Arc, Barrier, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sextant_engine::LoadedModel;
use sextant_policies::parallelism::{
    Concurrency, Configuration, Profile, Sampler, StopRule, Summary, Tuple, configurations,
};
use sextant_types::NamedTensor;

use super::{
    Error, Handles,
    affinity::{caller_cores, keep_to},
    handles::ended,
};

/// Share of a request's time during which a neighbour may be between two requests.
const TOLERANCE: f64 = 0.02;

/// Runs of each thread that do not count.
const WARM_UPS: usize = 2;

/// A profile with what it took.
#[derive(Debug, Clone)]
pub struct Profiled {
    /// What was measured.
    pub profile: Profile,
    /// Requests that were run, those that do not count included.
    pub requests: usize,
    /// How long it took.
    pub took: Duration,
}

/// One tuple while it is measured.
struct Watch {
    concurrency: Concurrency,
    sampler: Sampler,
    requests: usize,
}

/// Profiles all that fits `cores`, tuple by tuple; `each` is told of every one.
///
/// # Errors
/// What the engine says.
pub fn measure(
    handles: &Handles,
    inputs: &[NamedTensor],
    cores: &[usize],
    rule: StopRule,
    each: &mut dyn FnMut(Tuple, &Summary),
) -> Result<Profiled, Error> {
    let began = Instant::now();
    let mut profile = Profile::default();
    let mut requests = 0;
    let most = u16::try_from(cores.len()).unwrap_or(u16::MAX);
    for tuple in configurations(most, 1).iter().map(Configuration::full) {
        let model = handles.get(tuple.intra).ok_or_else(|| {
            Error::Invalid(format!(
                "the model is not loaded on `{}` threads",
                tuple.intra
            ))
        })?;
        let callers = &caller_cores(cores, tuple.intra)[..usize::from(tuple.running)];
        let (summary, run) = measure_tuple(model, inputs, callers, rule)?;
        each(tuple, &summary);
        profile.insert(tuple, summary);
        requests += run;
    }
    Ok(Profiled {
        profile,
        requests,
        took: began.elapsed(),
    })
}

/// A closed loop on each of `callers`. No thread ends before there are enough samples, so that all
/// that count had as many beside them as there should be.
fn measure_tuple(
    model: &Arc<dyn LoadedModel>,
    inputs: &[NamedTensor],
    callers: &[usize],
    rule: StopRule,
) -> Result<(Summary, usize), Error> {
    let barrier = Barrier::new(callers.len());
    let stop = AtomicBool::new(false);
    let watch = Mutex::new(Watch {
        concurrency: Concurrency::new(callers.len(), TOLERANCE),
        sampler: Sampler::new(rule),
        requests: 0,
    });
    let began = Instant::now();
    let closed_loop = |thread: usize, core: usize| {
        keep_to(&[core]);
        // A failed run must not leave the others waiting at the barrier.
        let warm = (0..WARM_UPS).try_for_each(|_| model.run(inputs).map(drop));
        barrier.wait();
        if warm.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        warm?;
        while !stop.load(Ordering::Relaxed) {
            let lock = || watch.lock().unwrap_or_else(PoisonError::into_inner);
            lock()
                .concurrency
                .begin(thread, began.elapsed().as_secs_f64());
            let run = model.run(inputs);
            let now_s = began.elapsed().as_secs_f64();
            let mut watch = lock();
            watch.requests += 1;
            let sample = watch.concurrency.end(thread, now_s);
            if let (Some(service_s), Ok(_)) = (sample, &run) {
                watch.sampler.observe(service_s);
            }
            // Requests that are never undisturbed must not go on for ever.
            let hopeless = watch.requests > 100 * callers.len() * rule.maximum.max(1);
            if watch.sampler.is_done() || hopeless || run.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            drop(watch);
            run?;
        }
        Ok(())
    };
    let closed_loop = &closed_loop;
    thread::scope(|scope| {
        let threads: Vec<_> = callers
            .iter()
            .enumerate()
            .map(|(thread, core)| scope.spawn(move || closed_loop(thread, *core)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(ended())))
    })?;
    let watch = watch.into_inner().unwrap_or_else(PoisonError::into_inner);
    let requests = watch.requests + WARM_UPS * callers.len();
    Ok((watch.sampler.summary(), requests))
}
