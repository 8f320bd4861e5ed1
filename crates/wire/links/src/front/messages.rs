//! What a front end and the dispatcher say to each other over a link.
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
    /// What it says.
    pub body: FrontRequest,
}

/// What a front end says to the dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub enum FrontRequest {
    /// A sign of life; answered by [`FrontReport::Beat`].
    Beat,
    /// A query. One whose inputs the front end keeps is answered by any number of
    /// [`FrontReport::Assign`] and one [`FrontReport::Done`] or by [`FrontReport::Has`], one with its inputs by
    /// [`FrontReport::Answered`], either by [`FrontReport::Declined`] where nobody leads.
    Ask(Box<QueryMessage>),
    /// Nobody waits for the query any more.
    GiveUp {
        /// The query's number.
        query: u64,
    },
}

/// [`Ask`](sextant_rpc::Ask) or [`Query`](sextant_rpc::Query) on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryMessage {
    /// Names the inputs.
    pub ticket: Ticket,
    /// Whom it addresses.
    pub route: Route,
    /// What it brings.
    pub inputs: QueryInputs,
    /// What is asked for.
    pub targets: Targets,
    /// Whether the closest variant is better than a refusal.
    pub best_effort: bool,
    /// Whether the explanation is wanted.
    pub explain: bool,
    /// What decides which version answers while a canary is tried: queries of one number get one version. `None`: chance.
    pub sticky: Option<u64>,
    /// The number in the token of its answer, where its application takes feedback.
    pub serial: Option<u64>,
    /// What the front end could answer it with itself.
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
    /// The front end keeps them for the worker that it will be told.
    Kept {
        /// Rows that they have.
        rows: u32,
        /// Sizes of their dynamic dimensions.
        dims: Vec<u64>,
        /// Variants whose answers to them the front end has kept.
        kept: Vec<KeptAnswer>,
    },
    /// These, in the signature's order; the answer comes back through the dispatcher. Or why they cannot
    /// be read.
    Here(Result<Vec<NamedTensor>, String>),
}

/// A message of the dispatcher to a front end.
#[derive(Debug, Clone, PartialEq)]
pub struct FromDispatcher {
    /// When it was sent.
    pub stamp: Stamp,
    /// What it says.
    pub body: FrontReport,
}

/// What the dispatcher says to a front end.
#[derive(Debug, Clone, PartialEq)]
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
    /// The variant that was chosen for a query is one whose answer the front end has kept: no worker has it. The last
    /// word on the query, in place of [`FrontReport::Done`].
    Has(Box<CacheHit>),
    /// A query whose inputs the front end keeps is settled: a worker has run it, or why it was refused.
    Done {
        /// The query's number.
        query: u64,
        /// Nothing, or why it was refused.
        outcome: Result<(), QueryError>,
    },
    /// What became of a query that came with its inputs.
    Answered {
        /// The query's number.
        query: u64,
        /// Its answer, timed on the dispatcher's clock, or why it was refused.
        outcome: Result<Box<Answer>, QueryError>,
    },
    /// The query was not answered because this dispatcher does not lead, or no longer: it is to be
    /// asked at the one that does.
    Declined {
        /// The query's number.
        query: u64,
    },
}
