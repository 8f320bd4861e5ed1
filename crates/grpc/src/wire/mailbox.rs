//! Between front ends and the mailboxes of workers.

use std::collections::VecDeque;

use sextant_rpc::front::wire::{FromMailbox, PartOutputs, ToMailbox};

use super::{
    ENVELOPE_BYTES, Malformed, Wire, document, field, read,
    tensors::{
        inputs_weight_bytes, outcome_weight_bytes, pack_inputs, pack_outcome, unpack_inputs,
        unpack_outcome,
    },
};
use crate::proto::{self, delivery, receipt};

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
                    inputs: pack_inputs(inputs),
                    rows,
                }),
                Self::GivenUp { ticket } => delivery::Body::GivenUp(ticket.into()),
            };
            proto::Delivery { body: Some(body) }
        });
        proto::Deliveries {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), Malformed> {
        for message in frame.messages {
            into.push_back(match field(message.body, "delivery")? {
                delivery::Body::Beat(_) => Self::Beat,
                delivery::Body::Inputs(inputs) => Self::Inputs {
                    ticket: field(inputs.ticket, "ticket")?.into(),
                    rows: inputs.rows,
                    inputs: unpack_inputs(inputs.inputs)?,
                },
                delivery::Body::GivenUp(ticket) => Self::GivenUp {
                    ticket: ticket.into(),
                },
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match self {
            Self::Inputs { inputs, .. } => ENVELOPE_BYTES + inputs_weight_bytes(inputs),
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, _reason: &str) {
        if let Self::Inputs { inputs, .. } = self {
            inputs.clear();
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
                    let packed = match outcome {
                        Ok(part) => proto::Outputs {
                            ticket: Some(ticket.into()),
                            outcome: Some(pack_outcome(part.outputs)),
                            queue_us: part.queue_us,
                            compute_us: part.compute_us,
                            batch_rows: part.batch_rows,
                            error: None,
                        },
                        Err(error) => proto::Outputs {
                            ticket: Some(ticket.into()),
                            error: Some(document(&error)),
                            ..proto::Outputs::default()
                        },
                    };
                    receipt::Body::Outputs(packed)
                }
            };
            proto::Receipt { body: Some(body) }
        });
        proto::Receipts {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), Malformed> {
        for message in frame.messages {
            into.push_back(match field(message.body, "receipt")? {
                receipt::Body::Beat(_) => Self::Beat,
                receipt::Body::Outputs(outputs) => Self::Outputs {
                    ticket: field(outputs.ticket, "ticket")?.into(),
                    outcome: match outputs.error {
                        Some(error) => Err(read(&error)?),
                        None => Ok(PartOutputs {
                            outputs: unpack_outcome(field(outputs.outcome, "outcome")?)?,
                            queue_us: outputs.queue_us,
                            compute_us: outputs.compute_us,
                            batch_rows: outputs.batch_rows,
                        }),
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
            } => ENVELOPE_BYTES + outcome_weight_bytes(&part.outputs),
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let Self::Outputs {
            outcome: Ok(part), ..
        } = self
        {
            part.outputs = Err(reason.to_owned());
        }
    }
}
