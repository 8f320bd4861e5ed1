//! Carries out what the controller asks for (batches, refusals, LOADs and UNLOADs) and reports the outcomes.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sextant_controller::Action;
use sextant_placement as placement;
use sextant_profile::Run;
use sextant_rpc::{BatchTimings, Infer, InferError, InferOutcome, Load};
use sextant_schedule::{BatchId, NEVER, Nanos, Request};
use sextant_types::{
    Variant,
    index::{DeviceIx, VariantIx},
};
use tokio::sync::oneshot;

use super::Driver;
use crate::{
    budget::Charge,
    costs::{BatchRun, Tariff},
    loads::{LoadOrder, LoadOutcome, VariantEntry},
    meter::OnlineBatch,
    pending::{Done, Pending, Refusal, Reply},
};

/// A batch on its way through a worker.
struct Batch {
    id: BatchId,
    device: DeviceIx,
    number: VariantIx,
    /// The life of the worker that it was sent to.
    life: u64,
    rows: u32,
    expected: Nanos,
    waiting: Vec<Waiter>,
    /// Kept while the batch is under way, if it has an online query.
    online: Option<OnlineBatch>,
}

/// A client that waits for its part of a batch.
struct Waiter {
    online: bool,
    rows: u32,
    charge: Option<Charge>,
    reply: oneshot::Sender<Reply>,
}

/// Who pays for a batch, and which slots of which device it occupies.
struct Bill {
    variant: Arc<Variant>,
    /// `None` if the price of the device is not known.
    tariff: Option<Arc<Tariff>>,
    slots: u16,
    /// Rows of offline jobs.
    offline_rows: u32,
}

/// A batch that was not sent to its device.
pub(super) struct UnsentBatch {
    pub(super) id: BatchId,
    pub(super) device: DeviceIx,
    pub(super) variant: VariantIx,
    /// Those of its requests whose answers somebody still waits for.
    pub(super) requests: Vec<Request<Pending>>,
}

impl Driver {
    /// Carries out an action. Returns the batch if it was not sent to its device.
    pub(super) fn carry_out(&self, action: Action<Pending>) -> Option<UnsentBatch> {
        match action {
            Action::Drop {
                request, reason, ..
            } => {
                request.payload.answer(Err(Refusal::Dropped(reason)));
            }
            Action::Infer {
                device,
                variant: number,
                requests,
                earliest,
                latest,
                expected,
                id,
            } => {
                let batch = Batch {
                    id,
                    device,
                    number,
                    life: 0,
                    rows: 0,
                    expected,
                    waiting: Vec::with_capacity(requests.len()),
                    online: None,
                };
                return self.send(batch, requests, (earliest, latest));
            }
            Action::Move(step) => self.order(step),
        }
        None
    }

    /// Has a variant loaded or unloaded. A variant that is retired is not loaded.
    fn order(&self, step: placement::Action) {
        let (placement::Action::Load {
            device,
            variant: number,
            ..
        }
        | placement::Action::Unload {
            device,
            variant: number,
        }) = step;
        let Some(meant) = self.loads.meant(number) else {
            return;
        };
        let order = match (step, meant) {
            (
                placement::Action::Load {
                    earliest,
                    latest,
                    expected,
                    ..
                },
                VariantEntry::Published(variant),
            ) => LoadOrder::Load {
                variant: number,
                load: Load {
                    variant,
                    earliest: self.clock.instant(earliest),
                    latest: (latest != NEVER).then(|| self.clock.instant(latest + self.precision)),
                    expected: Duration::from_nanos(expected),
                },
            },
            // The variant was retired at this moment. The controller must not wait for its load.
            (placement::Action::Load { .. }, VariantEntry::Retired(_)) => {
                return self.on_load_outcome(device, LoadOutcome::LoadLate { variant: number });
            }
            (placement::Action::Unload { .. }, meant) => LoadOrder::Unload {
                variant: number,
                id: meant.id().clone(),
            },
        };
        self.loads.send(device, order);
    }

    fn send(
        &self,
        mut batch: Batch,
        mut requests: Vec<Request<Pending>>,
        (earliest, latest): (Nanos, Nanos),
    ) -> Option<UnsentBatch> {
        requests.retain(|request| !request.payload.is_given_up());
        batch.rows = requests.iter().map(|request| request.rows).sum();
        // Every user of a driver holds it, so this fails only while the driver is being dropped.
        let driver = self.this.upgrade()?;
        let members = self.workers.load();
        let member = members.get(batch.device);
        let receiver = member.and_then(|of| Some((of, of.client.clone()?)));
        let (Some((member, client)), Some(first)) = (receiver, requests.first()) else {
            return Some(UnsentBatch {
                id: batch.id,
                device: batch.device,
                variant: batch.number,
                requests,
            });
        };
        let variant = Arc::clone(&first.payload.variant);
        batch.life = member.life;
        // The inputs may arrive earlier than the upper bounds say. Waiting would gain nothing then.
        let earliest = earliest.saturating_sub(self.delay.before_start(batch.rows));
        let offline = requests.iter().filter(|request| !request.payload.online);
        let bill = Bill {
            tariff: self.tariff(batch.device),
            slots: self.slots_of(batch.number, &variant),
            offline_rows: offline.map(|request| request.rows).sum(),
            variant: Arc::clone(&variant),
        };
        let mut parts = Vec::with_capacity(requests.len());
        for request in requests {
            let Pending {
                inputs,
                online,
                charge,
                reply,
                ..
            } = request.payload;
            let rows = request.rows;
            parts.push(inputs.into_part(&variant, &member.id, bill.second_usd()));
            batch.waiting.push(Waiter {
                online,
                rows,
                charge,
                reply,
            });
        }
        drop(members);
        if bill.offline_rows < batch.rows {
            batch.online = self.online.begin(batch.device, bill.slots);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.sent.batches.inc();
        self.sent.rows.inc_by(batch.rows.into());
        client.infer(Infer {
            variant: variant.id.clone(),
            parts,
            earliest: self.clock.instant(earliest),
            latest: (latest != NEVER).then(|| self.clock.instant(latest + self.precision)),
            expected: Duration::from_nanos(batch.expected),
            offline_rows: bill.offline_rows,
            done: Box::new(move |outcome| driver.finish(batch, &bill, outcome)),
        });
        None
    }

    fn slots_of(&self, number: VariantIx, variant: &Variant) -> u16 {
        let chosen = self.gauges.slots(number);
        chosen.unwrap_or(variant.spec.threads.max(1))
    }

    /// Handles the outcome of a batch. The device is free again, so first the controller gives it work, then the
    /// queries are answered.
    fn finish(&self, batch: Batch, bill: &Bill, outcome: InferOutcome) {
        let run = outcome.as_ref().ok().map(|result| {
            let us = run_us(&result.timings);
            Run {
                rows: batch.rows,
                nanos: (us * 1e3) as Nanos,
                mhz: None,
            }
        });
        let mut profiled = batch.expected;
        self.step(|controller, now, actions| {
            if let Err(error) = &outcome
                && is_seat_lost(error)
                && self.workers.client_in(batch.device, batch.life).is_some()
            {
                let (device, number) = (batch.device, batch.number);
                match error {
                    InferError::ShuttingDown => controller.on_lost(now, device, number, actions),
                    _ => controller.on_unloaded(now, device, number, actions),
                }
            }
            let known = run.and_then(|run| controller.profiled(batch.id, run.rows));
            profiled = known.unwrap_or(profiled);
            controller.on_result(now, batch.id, run, actions);
        });
        // Dropped after the step, so that what the step sent to this device goes before the queries of jobs.
        drop(batch.online);
        let waiting = batch.waiting;
        match outcome {
            Err(error) => {
                for Waiter { charge, reply, .. } in waiting {
                    drop(charge);
                    drop(reply.send(Err(Refusal::Worker(error.clone()))));
                }
            }
            Ok(result) => {
                self.gauges
                    .add_run(batch.number, run.map_or(0, |run| run.nanos));
                let online = waiting.iter().filter(|one| one.online).count();
                let of_all = (online, waiting.len());
                self.online
                    .add((batch.device, bill.slots), result.timings, profiled, of_all);
                let answered = waiting.iter().zip(&result.outputs);
                let answered = answered.filter(|(_, outputs)| outputs.is_ok());
                let took = (batch.rows, run_us(&result.timings));
                self.pay(bill, took, answered.map(|(one, _)| one.online));
                for (one, outputs) in waiting.into_iter().zip(result.outputs) {
                    let Waiter {
                        rows,
                        charge,
                        reply,
                        ..
                    } = one;
                    if let Some(charge) = charge {
                        charge.settle(bill.cost_usd(took, rows));
                    }
                    let done = outputs
                        .map(|outputs| Done {
                            outputs,
                            timings: result.timings,
                            batch_rows: batch.rows,
                            second_usd: bill.second_usd(),
                        })
                        .map_err(Refusal::Worker);
                    // The receiver is gone if the client went away.
                    drop(reply.send(done));
                }
            }
        }
        self.under_way.fetch_sub(1, Ordering::Release);
    }

    /// Charges a batch of this many rows that ran this long, microseconds, and counts the queries that it answered.
    /// `answered` says for each whether it was an online one.
    fn pay(&self, bill: &Bill, (rows, run_us): (u32, f64), answered: impl Iterator<Item = bool>) {
        let Some(tariff) = &bill.tariff else {
            return;
        };
        let (mut queries, mut offline) = (0, 0);
        for online in answered {
            queries += 1;
            offline += u64::from(!online);
        }
        let ran = BatchRun {
            variant: &bill.variant,
            slots: bill.slots,
            run_us,
            rows: (rows, bill.offline_rows),
            queries: (queries, offline),
        };
        self.costs.add(tariff, &ran);
    }
}

// === impl Bill ===

impl Bill {
    /// Price of a second of the slots that the batch occupies, US dollars.
    fn second_usd(&self) -> f64 {
        let tariff = self.tariff.as_ref();
        tariff.map_or(0.0, |tariff| tariff.second_usd(self.slots))
    }

    /// Cost of `rows` of the rows of a batch that ran this long, microseconds, US dollars.
    fn cost_usd(&self, (all, run_us): (u32, f64), rows: u32) -> f64 {
        let share = f64::from(rows) / f64::from(all.max(1));
        run_us / 1e6 * self.second_usd() * share
    }
}

/// How long a batch has kept its slots, microseconds.
fn run_us(timings: &BatchTimings) -> f64 {
    timings.input_us + timings.exec_us + timings.output_us
}

/// Whether a batch that ended with this error shows that the variant is no longer usable on its worker. The feed says
/// so later.
fn is_seat_lost(error: &InferError) -> bool {
    matches!(
        error,
        InferError::Lost { .. }
            | InferError::Disconnected { .. }
            | InferError::ShuttingDown
            | InferError::NotLoaded(_)
    )
}
