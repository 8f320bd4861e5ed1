//! The messages between a front end and a worker's mailbox on a link.

use sextant_rpc::{InferError, Ticket};
use sextant_types::{NamedTensor, Tensor};

/// A message of a front end to a worker's mailbox.
#[derive(Debug, Clone, PartialEq)]
pub enum ToMailbox {
    /// A sign of life; answered by [`FromMailbox::Beat`].
    Beat,
    /// Inputs for a batch that the dispatcher sends or has sent.
    Inputs {
        /// Their ticket.
        ticket: Ticket,
        /// Number of rows.
        rows: u32,
        /// The tensors, in the signature's order.
        inputs: Vec<NamedTensor>,
    },
    /// The batch must not wait for these inputs.
    Withheld {
        /// Their ticket.
        ticket: Ticket,
        /// The reason: [`InferError::InputsMissing`] if the caller of the query has gone.
        reason: InferError,
    },
}

/// A message of a worker's mailbox to a front end.
#[derive(Debug, Clone, PartialEq)]
pub enum FromMailbox {
    /// A sign of life.
    Beat,
    /// The result for inputs that were sent.
    Outputs {
        /// Their ticket.
        ticket: Ticket,
        /// The outputs, or why there are none. After an error that another worker may not have, the
        /// dispatcher places the query again.
        outcome: Result<PartOutputs, InferError>,
    },
}

/// The outputs of one query.
#[derive(Debug, Clone, PartialEq)]
pub struct PartOutputs {
    /// The outputs, in the signature's order.
    pub outputs: Vec<Tensor>,
    /// From the inputs' arrival at the mailbox to the start of the run, less joining, microseconds.
    pub queue_us: f64,
    /// Joining, running and cutting the batch, microseconds.
    pub compute_us: f64,
    /// Rows in the batch.
    pub batch_rows: u32,
}
