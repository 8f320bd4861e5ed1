//! Carries out what the core asks for: batches, refusals, LOADs and UNLOADs, and their outcomes.

use std::{sync::atomic::Ordering, time::Duration};

use sextant_policies::{
    placement::ResidentAction,
    profile::Run,
    schedule::{BatchId, NEVER, Nanos, Request},
};
use sextant_rpc::{Infer, InferError, InferOutcome, Load};
use sextant_types::VariantId;
use tokio::sync::oneshot;

use super::{Driver, Touched};
use crate::{
    mover::Move,
    pending::{Done, Pending, Refusal, Reply},
};

/// A batch on its way through a worker.
struct Batch {
    id: BatchId,
    pool: u32,
    queue: u32,
    /// Of the worker that it was sent to.
    life: u64,
    rows: u32,
    expected: Nanos,
    waiting: Vec<(bool, oneshot::Sender<Reply>)>,
}

impl Driver {
    /// Does what was decided. Tells of a batch that was not sent to its device.
    pub(super) fn carry_out(&self, action: ResidentAction<Pending>) -> Option<BatchId> {
        match action {
            ResidentAction::Drop {
                request, reason, ..
            } => {
                request.payload.answer(Err(Refusal::Dropped(reason)));
            }
            ResidentAction::Infer {
                device,
                model,
                requests,
                earliest,
                latest,
                expected,
                id,
            } => {
                let batch = Batch {
                    id,
                    pool: device,
                    queue: model,
                    life: 0,
                    rows: 0,
                    expected,
                    waiting: Vec::with_capacity(requests.len()),
                };
                return self.send(batch, requests, (earliest, latest));
            }
            ResidentAction::Load {
                device,
                model,
                earliest,
                latest,
                expected,
            } => {
                let variant = self.movers.variant(model)?;
                let load = Load {
                    variant,
                    earliest: self.clock.instant(earliest),
                    latest: (latest != NEVER).then(|| self.clock.instant(latest + self.precision)),
                    expected: Duration::from_nanos(expected),
                };
                self.movers
                    .send(device as usize, Move::Load { model, load });
            }
            ResidentAction::Unload { device, model } => {
                if let Some(variant) = self.movers.variant(model) {
                    let variant = variant.id.clone();
                    self.movers
                        .send(device as usize, Move::Unload { model, variant });
                }
            }
        }
        None
    }

    fn send(
        &self,
        mut batch: Batch,
        mut requests: Vec<Request<Pending>>,
        (earliest, latest): (Nanos, Nanos),
    ) -> Option<BatchId> {
        let unsent = Some(batch.id);
        requests.retain(|request| !request.payload.is_given_up());
        batch.rows = requests.iter().map(|request| request.rows).sum();
        let (Some(driver), Some(first)) = (self.this.upgrade(), requests.first()) else {
            return unsent;
        };
        let variant = first.payload.variant.clone();
        let members = self.workers.load();
        let member = members.get(batch.pool as usize);
        let Some((member, client)) = member.and_then(|of| Some((of, of.client.clone()?))) else {
            refuse_all(requests, &variant);
            return unsent;
        };
        batch.life = member.life;
        // The inputs may come sooner than by the high bounds: nothing is gained by waiting then.
        let earliest = earliest.saturating_sub(self.delay.before_start(batch.rows));
        let mut parts = Vec::with_capacity(requests.len());
        for request in requests {
            let Pending {
                inputs,
                online,
                reply,
                ..
            } = request.payload;
            parts.push(inputs.into_part(&variant, &member.id));
            batch.waiting.push((online, reply));
        }
        drop(members);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        client.infer(Infer {
            variant,
            parts,
            earliest: self.clock.instant(earliest),
            latest: (latest != NEVER).then(|| self.clock.instant(latest + self.precision)),
            expected: Duration::from_nanos(batch.expected),
            done: Box::new(move |outcome| driver.finish(batch, outcome)),
        });
        None
    }

    /// The device is free again: first keep it busy, then answer.
    fn finish(&self, batch: Batch, outcome: InferOutcome) {
        let run = outcome.as_ref().ok().map(|result| {
            let timings = &result.timings;
            let us = timings.input_us + timings.exec_us + timings.output_us;
            Run {
                rows: batch.rows,
                nanos: (us * 1e3) as Nanos,
                mhz: None,
            }
        });
        let seat = (batch.pool, batch.queue);
        let mut profiled = batch.expected;
        self.step(Touched::Pool(batch.pool), |core, now, actions| {
            if let Err(error) = &outcome
                && is_seat_lost(error)
                && self
                    .workers
                    .client_in(batch.pool as usize, batch.life)
                    .is_some()
            {
                core.unloaded(now, seat, actions);
            }
            core.finished(now, batch.id, actions);
            let Some(run) = run else { return };
            profiled = core.profiled(seat, run.rows).unwrap_or(profiled);
            if core.observe(now, seat, run, actions) {
                self.gauges.set_excess(seat.1, core.excess(seat.1));
            }
        });
        let waiting = batch.waiting;
        match outcome {
            Err(error) => {
                for (_, reply) in waiting {
                    drop(reply.send(Err(Refusal::Worker(error.clone()))));
                }
            }
            Ok(result) => {
                let online = waiting.iter().filter(|(online, _)| *online).count();
                self.online
                    .add(result.timings, profiled, online, waiting.len());
                for ((_, reply), outputs) in waiting.into_iter().zip(result.outputs) {
                    let done = outputs
                        .map(|outputs| Done {
                            outputs,
                            timings: result.timings,
                            batch_rows: batch.rows,
                        })
                        .map_err(|reason| Refusal::Worker(InferError::Failed(reason)));
                    // A client that went away leaves nobody to answer.
                    drop(reply.send(done));
                }
            }
        }
        self.under_way.fetch_sub(1, Ordering::Release);
    }
}

/// Answers a batch whose worker went away at the moment at which it was to be sent there.
fn refuse_all(requests: Vec<Request<Pending>>, variant: &VariantId) {
    for request in requests {
        let lost = InferError::Lost {
            variant: variant.clone(),
            reason: "its worker is gone".to_owned(),
        };
        request.payload.answer(Err(Refusal::Worker(lost)));
    }
}

/// Whether a variant can be used no more where a batch ended so, which the feed tells later.
fn is_seat_lost(error: &InferError) -> bool {
    matches!(
        error,
        InferError::Lost { .. } | InferError::ShuttingDown | InferError::NotLoaded(_)
    )
}
