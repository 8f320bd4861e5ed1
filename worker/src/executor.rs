//! The threads that run batches: one per core, fed by one queue.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use sextant_rpc::{BatchResult, BatchTimings, Infer, InferError};
use sextant_types::{NamedTensor, Tensor};

use crate::{Instance, Shared};

/// Owns the executor threads; dropping it answers what waits and joins them.
pub(crate) struct Executor {
    inbox: Arc<Inbox>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Inbox {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Infer>,
    closed: bool,
}

impl Executor {
    pub(crate) fn start(cores: u16, shared: &Arc<Shared>) -> std::io::Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let threads = (0..cores.max(1))
            .map(|number| {
                let (inbox, shared) = (Arc::clone(&inbox), Arc::clone(shared));
                std::thread::Builder::new()
                    .name(format!("sextant-exec-{number}"))
                    .spawn(move || run_batches(&inbox, &shared))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { inbox, threads })
    }

    /// Queues a batch; after the shutdown it is answered at once.
    pub(crate) fn submit(&self, infer: Infer) {
        let mut queue = self.inbox.lock();
        if queue.closed {
            drop(queue);
            (infer.done)(Err(InferError::ShuttingDown));
            return;
        }
        queue.batches.push_back(infer);
        drop(queue);
        self.inbox.arrived.notify_one();
    }

    /// Refuses new batches and answers those that have not begun.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut queue = self.inbox.lock();
            queue.closed = true;
            std::mem::take(&mut queue.batches)
        };
        self.inbox.arrived.notify_all();
        waiting
            .into_iter()
            .for_each(|infer| (infer.done)(Err(InferError::ShuttingDown)));
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
        let this = std::thread::current().id();
        // A result handler may hold the last handle: a thread never joins itself.
        for thread in self
            .threads
            .drain(..)
            .filter(|thread| thread.thread().id() != this)
        {
            if thread.join().is_err() {
                tracing::error!("an executor thread ended by a panic");
            }
        }
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Infer> {
        let mut queue = self.lock();
        loop {
            if let Some(infer) = queue.batches.pop_front() {
                return Some(infer);
            }
            if queue.closed {
                return None;
            }
            queue = self
                .arrived
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `earliest`, or until the shutdown.
    fn wait_for(&self, earliest: Instant) {
        let mut queue = self.lock();
        while !queue.closed {
            let left = earliest.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            let waited = self.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn run_batches(inbox: &Inbox, shared: &Shared) {
    while let Some(infer) = inbox.next() {
        if infer.earliest > Instant::now() {
            inbox.wait_for(infer.earliest);
        }
        let Infer {
            variant,
            parts,
            latest,
            done,
            ..
        } = infer;
        let started = Instant::now();
        let outcome = if latest.is_some_and(|latest| started > latest) {
            Err(InferError::TooLate)
        } else {
            match shared.instance(&variant) {
                Some(instance) => run(shared, &instance, &parts, started),
                None => Err(InferError::NotLoaded(variant)),
            }
        };
        if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
            tracing::error!("a result handler panicked");
        }
    }
}

fn run(
    shared: &Shared,
    instance: &Instance,
    parts: &[Vec<NamedTensor>],
    started: Instant,
) -> Result<BatchResult, InferError> {
    let result = catch_unwind(AssertUnwindSafe(|| run_parts(instance, parts, started)))
        .unwrap_or_else(|_| Err(InferError::Failed("the engine panicked".to_owned())));
    let spent = started.elapsed().as_nanos() as u64;
    let cores = u64::from(instance.variant.spec.threads);
    shared
        .busy_nanos
        .fetch_add(spent * cores, Ordering::Relaxed);
    instance.last_used.store(shared.nanos(), Ordering::Relaxed);
    result
}

/// Runs the parts together; parts that cannot share a batch (shapes that differ beyond the first
/// dimension), or a batch that fails, are run one by one, so that no query spoils another.
fn run_parts(
    instance: &Instance,
    parts: &[Vec<NamedTensor>],
    started: Instant,
) -> Result<BatchResult, InferError> {
    if parts.len() > 1
        && let Some(joined) = join(parts)
        && let Ok(result) = run_joined(instance, parts, &joined, started)
    {
        return Ok(result);
    }
    let alone =
        |part: &Vec<NamedTensor>| run_joined(instance, std::slice::from_ref(part), part, started);
    if let [part] = parts {
        return alone(part);
    }
    let mut outputs = Vec::with_capacity(parts.len());
    let mut timings = BatchTimings {
        started,
        queue_us: 0.0,
        input_us: 0.0,
        exec_us: 0.0,
        output_us: 0.0,
        device_us: None,
    };
    for part in parts {
        match alone(part) {
            Ok(mut result) => {
                timings.exec_us += result.timings.exec_us;
                outputs.append(&mut result.outputs);
            }
            Err(error) => outputs.push(Err(error.to_string())),
        }
    }
    Ok(BatchResult { outputs, timings })
}

fn join(parts: &[Vec<NamedTensor>]) -> Option<Vec<NamedTensor>> {
    let first = parts.first()?;
    (0..first.len())
        .map(|index| {
            let column: Option<Vec<&Tensor>> = parts
                .iter()
                .map(|part| part.get(index).map(|input| &input.tensor))
                .collect();
            let tensor = Tensor::concat(&column?).ok()?;
            Some(NamedTensor::new(first[index].name.clone(), tensor))
        })
        .collect()
}

fn run_joined(
    instance: &Instance,
    parts: &[Vec<NamedTensor>],
    joined: &[NamedTensor],
    started: Instant,
) -> Result<BatchResult, InferError> {
    let begun = Instant::now();
    let outputs = instance
        .model
        .run(joined)
        .map_err(|error| InferError::Failed(error.to_string()))?;
    let ran = Instant::now();
    let rows: Vec<usize> = parts.iter().map(|part| rows_of(part)).collect();
    let outputs = cut(outputs, &rows, instance.variant.signature.batched)?;
    instance.count(rows.iter().sum(), ran - begun);
    let us = |duration: Duration| duration.as_secs_f64() * 1e6;
    let timings = BatchTimings {
        started,
        queue_us: 0.0,
        input_us: us(begun - started),
        exec_us: us(ran - begun),
        output_us: us(ran.elapsed()),
        device_us: None,
    };
    Ok(BatchResult {
        outputs: outputs.into_iter().map(Ok).collect(),
        timings,
    })
}

fn rows_of(part: &[NamedTensor]) -> usize {
    part.first().map_or(1, |input| input.tensor.rows())
}

/// Cuts the joined outputs into one list per part.
fn cut(
    outputs: Vec<Tensor>,
    rows: &[usize],
    batched: bool,
) -> Result<Vec<Vec<Tensor>>, InferError> {
    if rows.len() == 1 {
        return Ok(vec![outputs]);
    }
    if !batched {
        return Err(InferError::Failed(
            "the model takes one query at a time".to_owned(),
        ));
    }
    let mut start = 0;
    rows.iter()
        .map(|count| {
            let part = outputs
                .iter()
                .map(|output| output.slice_rows(start, *count))
                .collect();
            start += count;
            part
        })
        .collect::<Result<_, _>>()
        .map_err(|_| InferError::Failed("an output has fewer rows than its inputs".to_owned()))
}

// === impl Instance ===

impl Instance {
    fn count(&self, rows: usize, ran: Duration) {
        let expected_ms = self.variant.profile.latency_ms(rows.max(1) as u32);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.run_nanos
            .fetch_add(ran.as_nanos() as u64, Ordering::Relaxed);
        self.expected_nanos
            .fetch_add((expected_ms * 1e6) as u64, Ordering::Relaxed);
    }
}
