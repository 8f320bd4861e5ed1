//! Messages between front ends and the mailboxes of workers.

use std::collections::VecDeque;

use sextant_rpc::InferError;

use super::{
    ENVELOPE_BYTES, MalformedFrame, Wire,
    errors::{pack_failure, unpack_failure},
    field,
    tensors::{
        named_weight_bytes, pack_named, pack_outputs, unpack_named, unpack_outputs, weight_bytes,
    },
};
use crate::{
    grpc::proto::{self, delivery, part_outcome::Outcome, receipt},
    mailbox::{FromMailbox, PartOutputs, ToMailbox},
};

impl Wire for ToMailbox {
    type Frame = proto::Deliveries;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, _token: u64) -> Self::Frame {
        let messages = messages.map(|message| {
            let body = match message {
                Self::Beat => delivery::Body::Beat(proto::Nothing {}),
                Self::Inputs {
                    ticket,
                    rows,
                    inputs,
                } => delivery::Body::Inputs(proto::Inputs {
                    ticket: Some(ticket.into()),
                    inputs: pack_named(inputs),
                    rows,
                }),
                Self::Withheld { ticket, reason } => delivery::Body::Withheld(proto::Withheld {
                    ticket: Some(ticket.into()),
                    reason: Some(pack_failure(reason)),
                }),
            };
            proto::Delivery { body: Some(body) }
        });
        proto::Deliveries {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(match field(message.body, "delivery")? {
                delivery::Body::Beat(_) => Self::Beat,
                delivery::Body::Inputs(inputs) => {
                    let ticket = field(inputs.ticket, "ticket")?.into();
                    // Invalid tensors affect only their own query.
                    match unpack_named(inputs.inputs)? {
                        Ok(tensors) => Self::Inputs {
                            ticket,
                            rows: inputs.rows,
                            inputs: tensors,
                        },
                        Err(error) => Self::Withheld {
                            ticket,
                            reason: InferError::BadShape(error.to_string()),
                        },
                    }
                }
                delivery::Body::Withheld(withheld) => Self::Withheld {
                    ticket: field(withheld.ticket, "ticket")?.into(),
                    reason: unpack_failure(field(withheld.reason, "reason")?)?,
                },
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match self {
            Self::Inputs { inputs, .. } => ENVELOPE_BYTES + named_weight_bytes(inputs),
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let Self::Inputs { ticket, .. } = self {
            *self = Self::Withheld {
                ticket: *ticket,
                reason: InferError::BadShape(reason.to_owned()),
            };
        }
    }
}

impl Wire for FromMailbox {
    type Frame = proto::Receipts;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, _token: u64) -> Self::Frame {
        let messages = messages.map(|message| {
            let body = match message {
                Self::Beat => receipt::Body::Beat(proto::Nothing {}),
                Self::Outputs { ticket, outcome } => {
                    receipt::Body::Outputs(pack_receipt(ticket.into(), outcome))
                }
            };
            proto::Receipt { body: Some(body) }
        });
        proto::Receipts {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(match field(message.body, "receipt")? {
                receipt::Body::Beat(_) => Self::Beat,
                receipt::Body::Outputs(outputs) => Self::Outputs {
                    ticket: field(outputs.ticket, "ticket")?.into(),
                    outcome: match field(outputs.outcome, "outcome")?.outcome {
                        Some(Outcome::Outputs(tensors)) => {
                            unpack_outputs(tensors)?.map(|tensors| PartOutputs {
                                outputs: tensors,
                                queue_us: outputs.queue_us,
                                compute_us: outputs.compute_us,
                                batch_rows: outputs.batch_rows,
                            })
                        }
                        Some(Outcome::Failure(failure)) => Err(unpack_failure(failure)?),
                        None => return Err(MalformedFrame::Field("outcome")),
                    },
                },
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match self {
            Self::Outputs {
                outcome: Ok(part), ..
            } => ENVELOPE_BYTES + part.outputs.iter().map(weight_bytes).sum::<usize>(),
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let Self::Outputs { outcome, .. } = self {
            *outcome = Err(InferError::failed(reason));
        }
    }
}

fn pack_receipt(ticket: proto::Ticket, outcome: Result<PartOutputs, InferError>) -> proto::Outputs {
    let packed = |outcome| proto::PartOutcome {
        outcome: Some(outcome),
    };
    match outcome {
        Ok(part) => proto::Outputs {
            ticket: Some(ticket),
            outcome: Some(packed(Outcome::Outputs(pack_outputs(&part.outputs)))),
            queue_us: part.queue_us,
            compute_us: part.compute_us,
            batch_rows: part.batch_rows,
        },
        Err(error) => proto::Outputs {
            ticket: Some(ticket),
            outcome: Some(packed(Outcome::Failure(pack_failure(error)))),
            ..proto::Outputs::default()
        },
    }
}
