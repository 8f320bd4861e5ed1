//! Makes a batch for the worker from one in the mailbox, and returns its outcome to the dispatcher
//! and the front ends.

use std::time::{Duration, Instant};

use sextant_rpc::{BatchResult, BatchTimings, Infer, InferError, InferOutcome, Part, Ticket};

use super::{
    FromMailbox, PartOutputs, ServerLink, refuse,
    table::{Batch, Content, Slot},
};

/// The receiver of a part's outputs.
enum Return {
    /// The batch's result.
    Result,
    /// The front end that sent the inputs, with the time of their arrival.
    FrontEnd(Ticket, ServerLink, Instant),
    /// None: the part does not run.
    Nobody(InferError),
}

/// Where the parts of an outcome go.
struct Returns {
    parts: Vec<Return>,
    rows: u32,
    /// Time in the mailbox.
    waited: Duration,
}

/// The batch with the inputs that are there. A batch without any inputs is answered at once.
pub(super) fn forward(batch: Batch, now: Instant) -> Option<Infer> {
    let mut returns = Returns {
        parts: Vec::with_capacity(batch.slots.len()),
        rows: 0,
        waited: now.saturating_duration_since(batch.arrived),
    };
    let mut parts = Vec::with_capacity(batch.slots.len());
    for slot in batch.slots {
        let (back, inputs) = match slot {
            Slot::Own(inputs) => {
                let rows = inputs.first().map_or(1, |input| input.tensor.rows());
                let rows = u32::try_from(rows).unwrap_or(u32::MAX);
                returns.rows = returns.rows.saturating_add(rows);
                (Return::Result, Some(inputs))
            }
            Slot::Held(ticket, Content::Inputs { inputs, rows }, link, at) => {
                returns.rows = returns.rows.saturating_add(rows);
                (Return::FrontEnd(ticket, link, at), Some(inputs))
            }
            Slot::Held(ticket, Content::Never(reason), link, _) => {
                refuse(&link, ticket, reason.clone());
                (Return::Nobody(reason), None)
            }
            Slot::Wanted(_) => (Return::Nobody(InferError::InputsMissing), None),
        };
        returns.parts.push(back);
        parts.extend(inputs.map(Part::Inputs));
    }
    let Infer { done, .. } = batch.infer;
    if parts.is_empty() {
        let reason = returns.parts.into_iter().find_map(Return::reason);
        done(Err(reason.unwrap_or(InferError::InputsMissing)));
        return None;
    }
    Some(Infer {
        variant: batch.infer.variant,
        parts,
        earliest: batch.infer.earliest,
        latest: batch.infer.latest,
        expected: batch.infer.expected,
        offline_rows: batch.infer.offline_rows,
        done: Box::new(move |outcome| done(returns.send(outcome))),
    })
}

/// Answers a batch that does not run.
pub(super) fn refuse_all(batch: Batch, error: InferError) {
    for slot in &batch.slots {
        if let Slot::Held(ticket, _, link, _) = slot {
            refuse(link, *ticket, error.clone());
        }
    }
    (batch.infer.done)(Err(error));
}

// === impl Returns ===

impl Returns {
    /// Sends the outputs to their receivers. Returns the part of the outcome for the dispatcher.
    fn send(self, outcome: InferOutcome) -> InferOutcome {
        match outcome {
            Ok(result) => Ok(self.deliver(result)),
            Err(error) => {
                for part in &self.parts {
                    if let Return::FrontEnd(ticket, link, _) = part {
                        refuse(link, *ticket, error.clone());
                    }
                }
                Err(error)
            }
        }
    }

    fn deliver(self, result: BatchResult) -> BatchResult {
        let mut timings = result.timings;
        let rows = self.rows;
        let mut ran = result.outputs.into_iter();
        let mut next = || {
            let lost = || Err(InferError::failed("the worker lost the part"));
            ran.next().unwrap_or_else(lost)
        };
        let outputs = self.parts.into_iter().map(|part| match part {
            Return::Result => next(),
            Return::Nobody(reason) => Err(reason),
            Return::FrontEnd(ticket, link, at) => {
                let outcome = next().map(|outputs| PartOutputs {
                    outputs,
                    queue_us: queue_us(&timings, at),
                    compute_us: timings.input_us + timings.exec_us + timings.output_us,
                    batch_rows: rows,
                });
                let left = outcome.as_ref().map(|_| Vec::new());
                let left = left.map_err(InferError::clone);
                // If the link is broken, the front end learns of it from the dispatcher.
                let _ = link.send(FromMailbox::Outputs { ticket, outcome });
                left
            }
        });
        let outputs = outputs.collect();
        timings.queue_us += us(self.waited);
        BatchResult { outputs, timings }
    }
}

// === impl Return ===

impl Return {
    fn reason(self) -> Option<InferError> {
        match self {
            Self::Nobody(reason) => Some(reason),
            Self::Result | Self::FrontEnd(..) => None,
        }
    }
}

/// The time from the inputs' arrival to EXEC, less INPUT.
fn queue_us(timings: &BatchTimings, at: Instant) -> f64 {
    let waited = timings.started.saturating_duration_since(at);
    (us(waited) - timings.input_us).max(0.0)
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
