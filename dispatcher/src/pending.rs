//! A query inside the scheduler, and what can become of it.

use std::fmt;

use sextant_policies::schedule::DropReason;
use sextant_rpc::{BatchTimings, InferError};
use sextant_types::{NamedTensor, Tensor, VariantId};
use tokio::sync::oneshot;

/// A query waiting for its answer.
pub(crate) struct Pending {
    /// The scheduler's queue: the ordinal of the variant.
    pub(crate) queue: u32,
    pub(crate) variant: VariantId,
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) online: bool,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// What became of a pending query.
pub(crate) type Reply = Result<Done, Refusal>;

/// The outputs of one query.
pub(crate) struct Done {
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) timings: BatchTimings,
    pub(crate) batch_rows: u32,
}

/// Why a pending query has no outputs.
#[derive(Debug)]
pub(crate) enum Refusal {
    Dropped(DropReason),
    Worker(InferError),
}

impl Pending {
    pub(crate) fn answer(self, reply: Reply) {
        // A client that went away leaves nobody to answer.
        drop(self.reply.send(reply));
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("variant", &self.variant)
            .finish_non_exhaustive()
    }
}
