//! The messages between a front end, the dispatcher and the mailboxes of workers, as plain data.
//!
//! Times (`_ns`) are on the sender's clock; see [`crate::link::Clock`].

use serde::{Deserialize, Serialize};
use sextant_types::Targets;

use crate::{
    Assignment, QueryError, Route, Ticket,
    link::wire::{Stamp, WireError, WireNamedTensor, WireTensor},
};

/// A message of a front end to the dispatcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToDispatcher {
    /// When it was sent.
    pub stamp: Stamp,
    /// What it says.
    pub body: FrontRequest,
}

/// What a front end says to the dispatcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrontRequest {
    /// A sign of life; answered by [`FrontReport::Beat`].
    Beat,
    /// A query to place; answered by any number of [`FrontReport::Assign`] and one
    /// [`FrontReport::Done`] or [`FrontReport::Declined`].
    Ask(WireAsk),
    /// Nobody waits for the query any more.
    GiveUp {
        /// The query's number.
        query: u64,
    },
}

/// [`Ask`](crate::Ask).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireAsk {
    /// Names the inputs.
    pub ticket: Ticket,
    /// Whom it addresses.
    pub route: Route,
    /// Rows of its inputs.
    pub rows: u32,
    /// Sizes of the inputs' dynamic dimensions.
    pub dims: Vec<u64>,
    /// What is asked for.
    pub targets: Targets,
    /// Whether the closest variant is better than a refusal.
    pub best_effort: bool,
    /// Whether the explanation is wanted.
    pub explain: bool,
    /// When the last byte of the request arrived.
    pub arrived_ns: u64,
}

/// A message of the dispatcher to a front end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FromDispatcher {
    /// When it was sent.
    pub stamp: Stamp,
    /// What it says.
    pub body: FrontReport,
}

/// What the dispatcher says to a front end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrontReport {
    /// A sign of life, with what a front end is asked about the dispatcher.
    Beat {
        /// Share of the workers' device time that was busy over the last second, 0 to 1.
        utilization: f64,
        /// Whether this dispatcher leads. One that does not takes no query.
        leads: bool,
    },
    /// The inputs are to be sent to a worker.
    Assign(Box<Assignment>),
    /// The query is settled here: a worker has run it, or why it was refused.
    Done {
        /// The query's number.
        query: u64,
        /// Nothing, or why it was refused.
        outcome: Result<(), QueryError>,
    },
    /// The query was not answered because this dispatcher does not lead, or no longer: it is to be
    /// asked at the one that does.
    Declined {
        /// The query's number.
        query: u64,
    },
}

/// A message of a front end to a worker's mailbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToMailbox {
    /// A sign of life; answered by [`FromMailbox::Beat`].
    Beat,
    /// Inputs for a batch that the dispatcher sends or has sent.
    Inputs {
        /// Their name.
        ticket: Ticket,
        /// Rows that they have.
        rows: u32,
        /// The tensors, in the signature's order.
        inputs: Vec<WireNamedTensor>,
    },
    /// Nobody waits for the query any more: its batch need not wait for its inputs.
    GivenUp {
        /// The inputs' name.
        ticket: Ticket,
    },
}

/// A message of a worker's mailbox to a front end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromMailbox {
    /// A sign of life.
    Beat,
    /// What became of inputs that were sent.
    Outputs {
        /// Their name.
        ticket: Ticket,
        /// The outputs, or why there are none. After an error that another worker may not have, the
        /// dispatcher places the query anew.
        outcome: Result<PartOutputs, WireError>,
    },
}

/// The outputs of one query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartOutputs {
    /// In the signature's order, or why this query alone failed.
    pub outputs: Result<Vec<WireTensor>, String>,
    /// From the inputs' arrival at the mailbox to the start of the run, less joining, microseconds.
    pub queue_us: f64,
    /// Joining, running and cutting the batch, microseconds.
    pub compute_us: f64,
    /// Rows in the batch.
    pub batch_rows: u32,
}
