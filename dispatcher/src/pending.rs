//! A query inside the scheduler, and its possible outcomes.

use std::{fmt, sync::Arc};

use sextant_controller::Shape;
use sextant_rpc::{Assignment, BatchTimings, Explanation, Holder, InferError, Part, Ticket};
use sextant_schedule::DropReason;
use sextant_types::{NamedTensor, Tensor, Variant, WorkerId, index::VariantIx};
use tokio::sync::oneshot;

use crate::budget::Charge;

/// A query waiting for its answer.
pub(crate) struct Pending {
    /// The variant's ordinal, which is the controller's name of it.
    pub(crate) number: VariantIx,
    pub(crate) shape: Shape,
    pub(crate) variant: Arc<Variant>,
    pub(crate) inputs: Inputs,
    pub(crate) online: bool,
    /// What its application was charged; `None` for an application without a budget.
    pub(crate) charge: Option<Charge>,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// The inputs of a query.
pub(crate) enum Inputs {
    /// They are sent with the batch.
    Here(Vec<NamedTensor>),
    /// Their holder sends them to the worker once the worker is known.
    Held(Box<RemoteInputs>),
}

/// Inputs that are elsewhere, and what their holder is told when a batch is sent.
pub(crate) struct RemoteInputs {
    pub(crate) ticket: Ticket,
    pub(crate) holder: Arc<dyn Holder>,
    pub(crate) suits: bool,
    pub(crate) load: bool,
    pub(crate) explanation: Option<Explanation>,
}

/// The outcome of a pending query.
pub(crate) type Reply = Result<Done, Refusal>;

/// The outputs of one query. They are empty if they went straight to the holder of the inputs.
pub(crate) struct Done {
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) timings: BatchTimings,
    pub(crate) batch_rows: u32,
    /// Price of a second of the slots that the batch occupied, US dollars.
    pub(crate) second_usd: f64,
}

/// Why a pending query has no outputs.
#[derive(Debug)]
pub(crate) enum Refusal {
    Dropped(DropReason),
    Worker(InferError),
}

impl Pending {
    pub(crate) fn answer(self, reply: Reply) {
        // The receiver is gone if the client went away.
        drop(self.reply.send(reply));
    }

    /// Whether nobody waits for the answer any longer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Inputs {
    /// The query's part of a batch for `worker`, where a second of the slots costs `second_usd` US
    /// dollars. A holder is told to send its inputs to that worker.
    pub(crate) fn into_part(self, variant: &Variant, worker: &WorkerId, second_usd: f64) -> Part {
        match self {
            Self::Here(inputs) => Part::Inputs(inputs),
            Self::Held(held) => {
                let RemoteInputs {
                    ticket,
                    holder,
                    suits,
                    load,
                    explanation,
                } = *held;
                holder.assign(Assignment {
                    ticket,
                    worker: worker.clone(),
                    variant: variant.id.clone(),
                    model: variant.model.clone(),
                    file: Some(variant.artefact),
                    suits,
                    load,
                    second_usd,
                    explanation,
                });
                Part::Held(ticket)
            }
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("variant", &self.variant.id)
            .finish_non_exhaustive()
    }
}
