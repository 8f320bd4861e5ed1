//! The messages between a front end and the dispatcher on a link.
//!
//! Times (`_ns`) are on the sender's clock; see [`crate::link::Clock`].

use sextant_rpc::{
    Answer, Assignment, CacheHit, Composite, ForStep, KeptAnswer, QueryError, Ticket,
};
use sextant_types::{NamedTensor, Route, Targets};

use crate::link::Stamp;

/// A message of a front end to the dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub struct ToDispatcher {
    /// When it was sent.
    pub stamp: Stamp,
    /// The content.
    pub body: FrontRequest,
}

/// The content of a message to the dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub enum FrontRequest {
    /// A sign of life; answered by [`FrontReport::Beat`].
    Beat,
    /// A query. If the front end keeps the inputs, it is answered by any number of [`FrontReport::Assign`] and one
    /// [`FrontReport::Done`], or by [`FrontReport::Has`]. If it is sent with its inputs, it is answered by
    /// [`FrontReport::Answered`]. Either is answered by [`FrontReport::Declined`] if the dispatcher does not lead.
    Ask(Box<QueryMessage>),
    /// The caller of the query has gone.
    GiveUp {
        /// The query's number.
        query: u64,
    },
}

/// [`Ask`](sextant_rpc::Ask) or [`Query`](sextant_rpc::Query) as a message.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryMessage {
    /// Names the inputs.
    pub ticket: Ticket,
    /// What it asks.
    pub route: Route,
    /// Its inputs.
    pub inputs: QueryInputs,
    /// Its targets.
    pub targets: Targets,
    /// Whether the closest variant answers instead of a refusal.
    pub best_effort: bool,
    /// Whether the client asks for the explanation.
    pub explain: bool,
    /// Decides which version answers while a canary is tried: queries with the same number get the same version.
    /// `None`: a random one.
    pub sticky: Option<u64>,
    /// The number in the token of its answer, if its application accepts feedback.
    pub serial: Option<u64>,
    /// Composite variants with which the front end could answer it itself.
    pub composites: Vec<Composite>,
    /// Whether an offline job asks it.
    pub offline: bool,
    /// The step of a pipeline that asks it.
    pub step: Option<Box<ForStep>>,
    /// When the last byte of the request arrived.
    pub arrived_ns: u64,
}

/// Whether the inputs of a query travel with it.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryInputs {
    /// The front end keeps them for the worker that the dispatcher will name.
    Kept {
        /// Number of rows.
        rows: u32,
        /// Sizes of their dynamic dimensions.
        dims: Vec<u64>,
        /// Variants whose answers to them the front end has cached.
        kept: Vec<KeptAnswer>,
    },
    /// These inputs, in the signature's order, or why they cannot be read. The answer comes back through the
    /// dispatcher.
    Here(Result<Vec<NamedTensor>, String>),
}

/// A message of the dispatcher to a front end.
#[derive(Debug, Clone, PartialEq)]
pub struct FromDispatcher {
    /// When it was sent.
    pub stamp: Stamp,
    /// The content.
    pub body: FrontReport,
}

/// The content of a message to a front end.
#[derive(Debug, Clone, PartialEq)]
pub enum FrontReport {
    /// A sign of life, with figures about the dispatcher that front ends need.
    Beat {
        /// Share of the workers' device time that was busy over the last second, 0 to 1.
        utilization: f64,
        /// Whether this dispatcher leads. If it does not, it takes no query.
        leads: bool,
    },
    /// The inputs must be sent to a worker.
    Assign(Box<Assignment>),
    /// The front end has cached the answer of the variant that was chosen for a query: no worker runs it. This is the
    /// last message about the query, in place of [`FrontReport::Done`].
    Has(Box<CacheHit>),
    /// A query whose inputs the front end keeps has ended: a worker has run it, or it was refused.
    Done {
        /// The query's number.
        query: u64,
        /// Nothing, or why the query was refused.
        outcome: Result<(), QueryError>,
    },
    /// The result of a query that was sent with its inputs.
    Answered {
        /// The query's number.
        query: u64,
        /// Its answer, with times on the dispatcher's clock, or why it was refused.
        outcome: Result<Box<Answer>, QueryError>,
    },
    /// The query was not answered because this dispatcher does not lead, or no longer. The front end must ask the
    /// leader.
    Declined {
        /// The query's number.
        query: u64,
    },
}
