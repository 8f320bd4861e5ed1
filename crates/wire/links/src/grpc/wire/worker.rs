//! Messages between callers of a worker and the worker.

use std::collections::VecDeque;

use sextant_rpc::{InferError, LoadTimings, Pages, Part, VariantUsage, WorkError, WorkerInfo};
use sextant_types::{EngineName, Tensor, VariantId, WorkerId};

use super::{
    ENVELOPE_BYTES, MalformedFrame, Wire,
    errors::{pack_failure, pack_order_failure, unpack_failure, unpack_order_failure},
    field, stats,
    tensors::{
        named_weight_bytes, pack_named, pack_outputs, unpack_named, unpack_outputs, weight_bytes,
    },
    variant,
};
use crate::{
    grpc::proto::{self, order, outcome, part, part_outcome, work_report, work_request},
    link::{Batch, Done, FromWorker, Outputs, Report, Request, State, Steps, ToWorker, Window},
};

const NOTHING: proto::Nothing = proto::Nothing {};

impl Wire for ToWorker {
    type Frame = proto::WorkRequests;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, token: u64) -> Self::Frame {
        let messages = messages.map(|it| proto::WorkRequest {
            stamp: Some(it.stamp.into()),
            body: Some(pack_request(it.request)),
        });
        proto::WorkRequests {
            messages: messages.collect(),
            token,
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(Self {
                stamp: field(message.stamp, "stamp")?.into(),
                request: unpack_request(field(message.body, "request")?)?,
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match &self.request {
            Request::Infer {
                batch: Ok(batch), ..
            } => {
                let parts = batch.parts.iter().map(|part| match part {
                    Part::Inputs(inputs) => named_weight_bytes(inputs),
                    Part::Held(_) => 32,
                });
                ENVELOPE_BYTES + parts.sum::<usize>()
            }
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let Request::Infer { batch, .. } = &mut self.request {
            *batch = Err(InferError::BadShape(reason.to_owned()));
        }
    }
}

impl Wire for FromWorker {
    type Frame = proto::WorkReports;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, _token: u64) -> Self::Frame {
        let messages = messages.map(|it| proto::WorkReport {
            stamp: Some(it.stamp.into()),
            body: Some(pack_report(it.report)),
        });
        proto::WorkReports {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(Self {
                stamp: field(message.stamp, "stamp")?.into(),
                report: unpack_report(field(message.body, "report")?)?,
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match &self.report {
            Report::Inferred {
                outcome: Ok(outputs),
                ..
            } => {
                let parts = outputs.parts.iter().flatten().flatten();
                ENVELOPE_BYTES + parts.map(weight_bytes).sum::<usize>()
            }
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let Report::Inferred {
            outcome: Ok(outputs),
            ..
        } = &mut self.report
        {
            for part in &mut outputs.parts {
                *part = Err(InferError::failed(reason));
            }
        }
    }
}

fn pack_request(request: Request) -> work_request::Body {
    let order = |id, order| {
        work_request::Body::Order(proto::Order {
            id,
            order: Some(order),
        })
    };
    match request {
        Request::Beat => work_request::Body::Beat(NOTHING),
        Request::Look => work_request::Body::Look(NOTHING),
        Request::Infer { id, batch } => work_request::Body::Infer(pack_batch(id, batch)),
        Request::Stats { id } => work_request::Body::Stats(id),
        Request::Load {
            id,
            variant,
            window,
        } => {
            let load = proto::Load {
                variant: Some(variant::pack(*variant)),
                window: Some(window.into()),
            };
            order(id, order::Order::Load(Box::new(load)))
        }
        Request::Unload { id, variant } => order(id, order::Order::Unload(variant.into())),
        Request::Repin { id } => order(id, order::Order::Repin(NOTHING)),
        Request::Leave { id } => order(id, order::Order::Leave(NOTHING)),
        Request::Unknown { id } => work_request::Body::Order(proto::Order { id, order: None }),
    }
}

fn unpack_request(body: work_request::Body) -> Result<Request, MalformedFrame> {
    Ok(match body {
        work_request::Body::Beat(_) => Request::Beat,
        work_request::Body::Look(_) => Request::Look,
        work_request::Body::Infer(batch) => Request::Infer {
            id: batch.id,
            batch: unpack_batch(batch)?,
        },
        work_request::Body::Stats(id) => Request::Stats { id },
        work_request::Body::Order(proto::Order { id, order }) => match order {
            Some(order::Order::Load(load)) => Request::Load {
                id,
                variant: Box::new(variant::unpack(field(load.variant, "variant")?)?),
                window: field(load.window, "window")?.into(),
            },
            Some(order::Order::Unload(variant)) => Request::Unload {
                id,
                variant: VariantId::new(variant)?,
            },
            Some(order::Order::Repin(_)) => Request::Repin { id },
            Some(order::Order::Leave(_)) => Request::Leave { id },
            None => Request::Unknown { id },
        },
    })
}

fn pack_batch(id: u64, batch: Result<Batch, InferError>) -> proto::Batch {
    match batch {
        Ok(batch) => proto::Batch {
            id,
            variant: batch.variant.into(),
            parts: batch.parts.into_iter().map(pack_part).collect(),
            window: Some(batch.window.into()),
            offline_rows: batch.offline_rows,
            failure: None,
        },
        Err(error) => proto::Batch {
            id,
            failure: Some(pack_failure(error)),
            ..proto::Batch::default()
        },
    }
}

fn unpack_batch(batch: proto::Batch) -> Result<Result<Batch, InferError>, MalformedFrame> {
    if let Some(failure) = batch.failure {
        return Ok(Err(unpack_failure(failure)?));
    }
    let mut parts = Vec::with_capacity(batch.parts.len());
    for part in batch.parts {
        parts.push(match field(part.body, "part")? {
            part::Body::Held(ticket) => Part::Held(ticket.into()),
            part::Body::Inputs(inputs) => match unpack_named(inputs.tensors)? {
                Ok(inputs) => Part::Inputs(inputs),
                Err(error) => return Ok(Err(InferError::BadShape(error.to_string()))),
            },
        });
    }
    Ok(Ok(Batch {
        variant: VariantId::new(batch.variant)?,
        parts,
        offline_rows: batch.offline_rows,
        window: field(batch.window, "window")?.into(),
    }))
}

fn pack_part(part: Part) -> proto::Part {
    let body = match part {
        Part::Inputs(inputs) => part::Body::Inputs(proto::Tensors {
            tensors: pack_named(inputs),
        }),
        Part::Held(ticket) => part::Body::Held(ticket.into()),
    };
    proto::Part { body: Some(body) }
}

impl From<Window> for proto::Window {
    fn from(window: Window) -> Self {
        Self {
            earliest_ns: window.earliest_ns,
            latest_ns: window.latest_ns,
            expected_ns: window.expected_ns,
        }
    }
}

impl From<proto::Window> for Window {
    fn from(window: proto::Window) -> Self {
        Self {
            earliest_ns: window.earliest_ns,
            latest_ns: window.latest_ns,
            expected_ns: window.expected_ns,
        }
    }
}

fn pack_report(report: Report) -> work_report::Body {
    match report {
        Report::Beat => work_report::Body::Beat(NOTHING),
        Report::State(state) => work_report::Body::State(pack_state(state)),
        Report::Inferred { id, outcome } => work_report::Body::Inferred(match outcome {
            Ok(outputs) => proto::Inferred {
                id,
                timings: Some(pack_timings(&outputs)),
                parts: outputs.parts.into_iter().map(pack_outcome).collect(),
                failure: None,
            },
            Err(error) => proto::Inferred {
                id,
                failure: Some(pack_failure(error)),
                ..proto::Inferred::default()
            },
        }),
        Report::Ended { id, outcome } => work_report::Body::Outcome(proto::Outcome {
            id,
            outcome: Some(pack_done(outcome)),
        }),
    }
}

fn unpack_report(body: work_report::Body) -> Result<Report, MalformedFrame> {
    Ok(match body {
        work_report::Body::Beat(_) => Report::Beat,
        work_report::Body::State(state) => Report::State(unpack_state(state)?),
        work_report::Body::Inferred(inferred) => Report::Inferred {
            id: inferred.id,
            outcome: match inferred.failure {
                Some(failure) => Err(unpack_failure(failure)?),
                None => Ok(unpack_ran(
                    inferred.parts,
                    field(inferred.timings, "timings")?,
                )?),
            },
        },
        work_report::Body::Outcome(outcome) => Report::Ended {
            id: outcome.id,
            outcome: unpack_done(outcome.outcome)?,
        },
    })
}

fn pack_outcome(outcome: Result<Vec<Tensor>, InferError>) -> proto::PartOutcome {
    let outcome = match outcome {
        Ok(outputs) => part_outcome::Outcome::Outputs(pack_outputs(&outputs)),
        Err(error) => part_outcome::Outcome::Failure(pack_failure(error)),
    };
    proto::PartOutcome {
        outcome: Some(outcome),
    }
}

fn unpack_outcome(
    outcome: proto::PartOutcome,
) -> Result<Result<Vec<Tensor>, InferError>, MalformedFrame> {
    match field(outcome.outcome, "outcome")? {
        part_outcome::Outcome::Outputs(outputs) => unpack_outputs(outputs),
        part_outcome::Outcome::Failure(failure) => Ok(Err(unpack_failure(failure)?)),
    }
}

fn pack_timings(outputs: &Outputs) -> proto::Timings {
    let steps = &outputs.steps;
    proto::Timings {
        started_ns: outputs.started_ns,
        queue_us: steps.queue_us,
        input_us: steps.input_us,
        exec_us: steps.exec_us,
        output_us: steps.output_us,
        device_us: steps.device_us,
    }
}

fn unpack_ran(
    parts: Vec<proto::PartOutcome>,
    timings: proto::Timings,
) -> Result<Outputs, MalformedFrame> {
    let parts = parts.into_iter().map(unpack_outcome);
    Ok(Outputs {
        parts: parts.collect::<Result<_, _>>()?,
        started_ns: timings.started_ns,
        steps: Steps {
            queue_us: timings.queue_us,
            input_us: timings.input_us,
            exec_us: timings.exec_us,
            output_us: timings.output_us,
            device_us: timings.device_us,
        },
    })
}

fn pack_done(outcome: Result<Done, WorkError>) -> outcome::Outcome {
    match outcome {
        Ok(Done::Loaded(timings)) => outcome::Outcome::Loaded(proto::LoadTimings {
            queue_us: timings.queue_us,
            fetch_us: timings.fetch_us,
            load_us: timings.load_us,
        }),
        Ok(Done::Unloaded) => outcome::Outcome::Unloaded(NOTHING),
        Ok(Done::Repinned(cores)) => outcome::Outcome::Repinned(proto::Cores {
            cores: cores.into_iter().map(Into::into).collect(),
        }),
        Ok(Done::Leaves) => outcome::Outcome::Leaves(NOTHING),
        Ok(Done::Stats(stats)) => outcome::Outcome::Stats(Box::new(stats::pack(stats))),
        Ok(Done::Unknown) => outcome::Outcome::Unknown(NOTHING),
        Err(error) => outcome::Outcome::Failure(pack_order_failure(error)),
    }
}

/// An unknown result is one of a later version.
fn unpack_done(
    outcome: Option<outcome::Outcome>,
) -> Result<Result<Done, WorkError>, MalformedFrame> {
    Ok(Ok(match outcome {
        None | Some(outcome::Outcome::Unknown(_)) => Done::Unknown,
        Some(outcome::Outcome::Loaded(timings)) => Done::Loaded(LoadTimings {
            queue_us: timings.queue_us,
            fetch_us: timings.fetch_us,
            load_us: timings.load_us,
        }),
        Some(outcome::Outcome::Unloaded(_)) => Done::Unloaded,
        Some(outcome::Outcome::Repinned(repinned)) => {
            let cores = repinned.cores.into_iter().map(u16::try_from);
            let cores = cores.collect::<Result<_, _>>();
            Done::Repinned(field(cores.ok(), "cores")?)
        }
        Some(outcome::Outcome::Leaves(_)) => Done::Leaves,
        Some(outcome::Outcome::Stats(stats)) => Done::Stats(stats::unpack(*stats)),
        Some(outcome::Outcome::Failure(failure)) => {
            return Ok(Err(unpack_order_failure(failure)?));
        }
    }))
}

fn pack_state(state: State) -> proto::WorkerState {
    let (info, usage) = (state.info, state.usage.into_iter());
    proto::WorkerState {
        worker: info.worker.into(),
        cores: info.cores.into(),
        engines: info.engines.into_iter().map(|engine| engine.0).collect(),
        page_bytes: info.pages.page_bytes,
        pages: info.pages.total,
        free_pages: info.pages.free,
        utilization: info.utilization,
        draining: state.draining,
        usage: usage
            .map(|it| proto::VariantUsage {
                variant: it.variant.into(),
                idle_ms: it.idle_ms,
            })
            .collect(),
    }
}

fn unpack_state(state: proto::WorkerState) -> Result<State, MalformedFrame> {
    let usage = state.usage.into_iter().map(|it| {
        Ok(VariantUsage {
            variant: VariantId::new(it.variant)?,
            idle_ms: it.idle_ms,
        })
    });
    Ok(State {
        info: WorkerInfo {
            worker: WorkerId::new(state.worker)?,
            cores: field(u16::try_from(state.cores).ok(), "cores")?,
            engines: state.engines.into_iter().map(EngineName).collect(),
            pages: Pages {
                page_bytes: state.page_bytes,
                total: state.pages,
                free: state.free_pages,
            },
            utilization: state.utilization,
        },
        draining: state.draining,
        usage: usage.collect::<Result<_, MalformedFrame>>()?,
    })
}
