//! A query without an answer, as the front end that holds its inputs sees it.

use std::time::{Duration, Instant};

use sextant_rpc::{
    Answer, Assignment, CacheHit, Composite, ForStep, InferError, KeptAnswer, Query, QueryError,
    Ticket,
};
use sextant_types::{NamedTensor, Route, Targets, WorkerId};
use tokio::sync::oneshot;

use crate::{
    front::{QueryInputs, QueryMessage},
    link::Clock,
    mailbox::PartOutputs,
};

/// The result of a query.
pub(super) enum QueryOutcome {
    /// A worker has answered with this assignment.
    There {
        assignment: Box<Assignment>,
        outputs: PartOutputs,
        /// When the inputs were sent.
        sent: Instant,
    },
    /// The dispatcher has answered.
    Answered(Box<Answer>),
    /// The dispatcher has chosen a variant whose answer is cached here.
    Kept(Box<CacheHit>),
}

pub(super) type Reply = Result<QueryOutcome, QueryError>;

/// A reply for the waiting caller. It is given outside the lock.
#[must_use]
pub(super) struct Settlement(oneshot::Sender<Reply>, Reply);

/// A query that is not answered yet.
pub(super) struct Entry {
    route: Route,
    pub(super) rows: u32,
    /// Sizes of the inputs' dynamic dimensions.
    dims: Vec<u64>,
    /// Whether the inputs go with the query.
    inline: bool,
    targets: Targets,
    best_effort: bool,
    explain: bool,
    sticky: Option<u64>,
    serial: Option<u64>,
    /// Variants whose answers to its inputs are cached here.
    kept: Vec<KeptAnswer>,
    composites: Vec<Composite>,
    offline: bool,
    step: Option<Box<ForStep>>,
    pub(super) arrived: Instant,
    pub(super) inputs: Vec<NamedTensor>,
    reply: oneshot::Sender<Reply>,
    /// How often its placement was lost.
    pub(super) losses: u32,
    /// The first attempt of the present asking, and that of the next.
    attempts: (u32, u32),
    pub(super) phase: Phase,
}

pub(super) enum Phase {
    Unasked {
        since: Instant,
    },
    /// Asked on the dispatcher's link of that number.
    Asked {
        link: u64,
    },
    Assigned {
        link: u64,
        assignment: Box<Assignment>,
        /// The number of the mailbox's link that took the inputs, and when.
        sent: Option<(u64, Instant)>,
        /// When the dispatcher reported that a worker has run it.
        ran: Option<Instant>,
        /// Why the worker will send no outputs; the dispatcher was told as well.
        failed: Option<InferError>,
    },
}

/// The deadline for the answer. `None` for a best-effort query, as in the dispatcher.
pub(super) fn deadline(
    (targets, step): (&Targets, Option<&ForStep>),
    best_effort: bool,
    arrived: Instant,
) -> Option<Instant> {
    let patience_ms = step.and_then(|step| step.patience_ms);
    let ms = patience_ms.or(targets.latency_ms);
    let latency = Duration::try_from_secs_f64(ms.filter(|_| !best_effort)? / 1e3).ok()?;
    arrived.checked_add(latency)
}

// === impl Settlement ===

impl Settlement {
    pub(super) fn new(waits: oneshot::Sender<Reply>, reply: Reply) -> Self {
        Self(waits, reply)
    }

    /// Gives the reply. A caller that has gone needs none.
    pub(super) fn give(self) {
        drop(self.0.send(self.1));
    }
}

// === impl Entry ===

impl Entry {
    pub(super) fn new(
        query: Query,
        (rows, dims): (u32, Vec<u64>),
        inline: bool,
        reply: oneshot::Sender<Reply>,
    ) -> Self {
        Self {
            route: query.route,
            rows,
            dims,
            inline,
            targets: query.targets,
            best_effort: query.best_effort,
            explain: query.explain,
            sticky: query.sticky,
            serial: query.serial,
            kept: Vec::new(),
            composites: query.composites,
            offline: query.offline,
            step: query.step,
            arrived: query.arrived,
            inputs: query.inputs,
            reply,
            losses: 0,
            attempts: (0, 0),
            phase: Phase::Unasked {
                since: query.arrived,
            },
        }
    }

    /// Returns the entry with the answers that are cached here.
    pub(super) fn with(self, kept: Vec<KeptAnswer>) -> Self {
        Self { kept, ..self }
    }

    /// The deadline for the answer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let limits = (&self.targets, self.step.as_deref());
        deadline(limits, self.best_effort, self.arrived)
    }

    /// The message that asks the query. Each asking has its own range of attempts.
    pub(super) fn ask(&mut self, holder: u64, query: u64, clock: &Clock) -> QueryMessage {
        let first = self.attempts.1;
        self.attempts = (first, first.saturating_add(Ticket::PLACEMENTS));
        QueryMessage {
            ticket: Ticket {
                holder,
                query,
                attempt: first,
            },
            route: self.route.clone(),
            inputs: match self.inline {
                true => QueryInputs::Here(Ok(self.inputs.clone())),
                false => QueryInputs::Kept {
                    rows: self.rows,
                    dims: self.dims.clone(),
                    kept: self.kept.clone(),
                },
            },
            targets: self.targets,
            best_effort: self.best_effort,
            explain: self.explain,
            sticky: self.sticky,
            serial: self.serial,
            composites: self.composites.clone(),
            offline: self.offline,
            step: self.step.clone(),
            arrived_ns: clock.nanos(self.arrived),
        }
    }

    /// The worker to which it was assigned.
    pub(super) fn worker(&self) -> Option<&WorkerId> {
        match &self.phase {
            Phase::Assigned { assignment, .. } => Some(&assignment.worker),
            Phase::Unasked { .. } | Phase::Asked { .. } => None,
        }
    }

    /// The link to a dispatcher that has the query.
    pub(super) fn link(&self) -> Option<u64> {
        match &self.phase {
            Phase::Unasked { .. } => None,
            Phase::Asked { link } | Phase::Assigned { link, .. } => Some(*link),
        }
    }

    /// Whether a ticket is from the present asking.
    pub(super) fn is_asked_as(&self, ticket: &Ticket) -> bool {
        ticket.attempt >= self.attempts.0
    }

    /// Whether an assignment by the dispatcher at `link` is current.
    pub(super) fn takes(&self, link: u64, ticket: &Ticket) -> bool {
        self.is_asked_as(ticket)
            && match &self.phase {
                Phase::Unasked { .. } => false,
                Phase::Asked { link: asked } => *asked == link,
                Phase::Assigned {
                    link: asked,
                    assignment,
                    ..
                } => *asked == link && assignment.ticket.attempt < ticket.attempt,
            }
    }

    pub(super) fn refuse(self, error: QueryError) -> Settlement {
        Settlement::new(self.reply, Err(error))
    }

    pub(super) fn into_parts(self) -> (oneshot::Sender<Reply>, Phase) {
        (self.reply, self.phase)
    }
}
