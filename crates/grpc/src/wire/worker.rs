//! Between those who give a worker orders and the worker.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::Deserialize;
use sextant_rpc::link::wire::{
    Batch, FromWorker, Outputs, Report, Request, ToWorker, Window, WireError, WirePart, WireTimings,
};
use sextant_types::VariantId;

use super::{
    ENVELOPE_BYTES, Malformed, Wire, document, field, read,
    tensors::{
        inputs_weight_bytes, outcome_weight_bytes, pack_inputs, pack_outcome, unpack_inputs,
        unpack_outcome,
    },
};
use crate::proto::{self, part, work_report, work_request};

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

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), Malformed> {
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
            Request::Infer { batch, .. } => {
                let parts = batch.parts.iter().map(|part| match part {
                    WirePart::Inputs(inputs) => inputs_weight_bytes(inputs),
                    WirePart::Held(_) => 32,
                });
                ENVELOPE_BYTES + parts.sum::<usize>()
            }
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, _reason: &str) {
        if let Request::Infer { batch, .. } = &mut self.request {
            for part in &mut batch.parts {
                if let WirePart::Inputs(inputs) = part {
                    inputs.clear();
                }
            }
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

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), Malformed> {
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
                let parts = outputs.parts.iter().map(outcome_weight_bytes);
                ENVELOPE_BYTES + parts.sum::<usize>()
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
                *part = Err(reason.to_owned());
            }
        }
    }
}

fn pack_request(request: Request) -> work_request::Body {
    match request {
        Request::Beat => work_request::Body::Beat(proto::Nothing {}),
        Request::Look => work_request::Body::Look(proto::Nothing {}),
        Request::Infer { id, batch } => work_request::Body::Infer(proto::Batch {
            id,
            variant: batch.variant.into(),
            parts: batch.parts.into_iter().map(pack_part).collect(),
            offline_rows: batch.offline_rows,
            earliest_ns: batch.window.earliest_ns,
            latest_ns: batch.window.latest_ns,
            expected_ns: batch.window.expected_ns,
        }),
        Request::Stats { id } => work_request::Body::Stats(id),
        order => work_request::Body::Order(document(&order)),
    }
}

fn unpack_request(body: work_request::Body) -> Result<Request, Malformed> {
    Ok(match body {
        work_request::Body::Beat(_) => Request::Beat,
        work_request::Body::Look(_) => Request::Look,
        work_request::Body::Infer(batch) => Request::Infer {
            id: batch.id,
            batch: Batch {
                variant: VariantId::new(batch.variant)?,
                parts: batch
                    .parts
                    .into_iter()
                    .map(unpack_part)
                    .collect::<Result<_, _>>()?,
                offline_rows: batch.offline_rows,
                window: Window {
                    earliest_ns: batch.earliest_ns,
                    latest_ns: batch.latest_ns,
                    expected_ns: batch.expected_ns,
                },
            },
        },
        work_request::Body::Stats(id) => Request::Stats { id },
        work_request::Body::Order(order) => unpack_order(&order)?,
    })
}

/// An order; one that only a later version can read is known by its name and its number, so that it is
/// answered.
fn unpack_order(document: &Bytes) -> Result<Request, Malformed> {
    #[derive(Deserialize)]
    struct Call {
        id: u64,
    }
    let known = read(document);
    known.or_else(|error| {
        let Ok(named) = read::<BTreeMap<String, Call>>(document) else {
            return Err(error);
        };
        let call = named.into_iter().next().ok_or(error)?;
        let (order, Call { id }) = call;
        Ok(Request::Unknown { id, order })
    })
}

fn pack_part(part: WirePart) -> proto::Part {
    let body = match part {
        WirePart::Inputs(inputs) => part::Body::Inputs(proto::Tensors {
            tensors: pack_inputs(inputs),
        }),
        WirePart::Held(ticket) => part::Body::Held(ticket.into()),
    };
    proto::Part { body: Some(body) }
}

fn unpack_part(part: proto::Part) -> Result<WirePart, Malformed> {
    Ok(match field(part.body, "part")? {
        part::Body::Inputs(inputs) => WirePart::Inputs(unpack_inputs(inputs.tensors)?),
        part::Body::Held(ticket) => WirePart::Held(ticket.into()),
    })
}

fn pack_report(report: Report) -> work_report::Body {
    match report {
        Report::Beat => work_report::Body::Beat(proto::Nothing {}),
        Report::Inferred { id, outcome } => work_report::Body::Inferred(match outcome {
            Ok(outputs) => proto::Inferred {
                id,
                parts: outputs.parts.into_iter().map(pack_outcome).collect(),
                timings: Some(pack_timings(&outputs.timings)),
                error: None,
            },
            Err(error) => proto::Inferred {
                id,
                error: Some(document(&error)),
                ..proto::Inferred::default()
            },
        }),
        rare => work_report::Body::Other(document(&rare)),
    }
}

fn unpack_report(body: work_report::Body) -> Result<Report, Malformed> {
    Ok(match body {
        work_report::Body::Beat(_) => Report::Beat,
        work_report::Body::Inferred(inferred) => Report::Inferred {
            id: inferred.id,
            outcome: match inferred.error {
                Some(error) => Err(read::<WireError>(&error)?),
                None => Ok(Outputs {
                    parts: inferred
                        .parts
                        .into_iter()
                        .map(unpack_outcome)
                        .collect::<Result<_, _>>()?,
                    timings: unpack_timings(&field(inferred.timings, "timings")?),
                }),
            },
        },
        work_report::Body::Other(rare) => read(&rare)?,
    })
}

fn pack_timings(timings: &WireTimings) -> proto::Timings {
    proto::Timings {
        started_ns: timings.started_ns,
        queue_us: timings.queue_us,
        input_us: timings.input_us,
        exec_us: timings.exec_us,
        output_us: timings.output_us,
        device_us: timings.device_us,
    }
}

fn unpack_timings(timings: &proto::Timings) -> WireTimings {
    WireTimings {
        started_ns: timings.started_ns,
        queue_us: timings.queue_us,
        input_us: timings.input_us,
        exec_us: timings.exec_us,
        output_us: timings.output_us,
        device_us: timings.device_us,
    }
}
