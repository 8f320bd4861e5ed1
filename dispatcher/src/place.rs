//! Places a query, and places it again if the worker could not run it.
//!
//! A worker may unload a variant while a batch for it is under way, may be told to leave, or may be lost. None of these
//! is the query's fault, so the query is placed again while its deadline allows it. A query whose runs repeatedly lose
//! their workers may be the cause, so it is given up sooner.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_picture::IndexedVariant;
use sextant_rpc::{Holder, InferError, QueryError, Ticket};
use sextant_schedule::{DropReason, NEVER, Request};
use sextant_types::{Code, NamedTensor};
use tokio::sync::oneshot;

use crate::{
    Dispatcher,
    ask::{Ask, suits},
    budget::Charge,
    demand::OfferedQuery,
    pending::{Done, Inputs, Pending, Refusal, RemoteInputs, Reply},
    query::Selection,
    refusal::{refused, standing_by, unloadable, warming},
};

/// The most times that a query is placed.
const PLACEMENTS: u32 = 5;

/// The most placements that may be lost with their worker or its engine.
const LOSSES: u32 = 3;

/// The longest wait for the news that an instance is gone before a query is placed again.
const NEWS_WAIT: Duration = Duration::from_millis(100);

/// Where the inputs of a query are.
pub(crate) enum Source {
    /// In this process.
    Here(Vec<NamedTensor>),
    /// With the process that asks.
    Held {
        ticket: Ticket,
        holder: Arc<dyn Holder>,
    },
}

/// Whether another version answers a query in place of one that ended with this error.
pub(crate) type MayPassOn = fn(&QueryError, &Ask, &Source) -> bool;

/// Why a query was not answered.
pub(crate) struct Unanswered {
    pub(crate) error: QueryError,
    /// Whether another version answers and counts it.
    pub(crate) is_passed_on: bool,
}

/// What another placement has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// The feed, which reports an unload a little later than the worker does.
    AfterNews,
    /// Nothing, because the scheduler knows already.
    AtOnce,
}

impl Dispatcher {
    /// Places a query until a worker has run it. Counts an online query as demand.
    pub(crate) async fn run_query(
        &self,
        ask: &Ask,
        source: &Source,
    ) -> Result<(Selection, Done), QueryError> {
        let ran = self.run_query_or(ask, source, |_, _, _| false).await;
        ran.map_err(|unanswered| unanswered.error)
    }

    /// Like [`Self::run_query`], but does not count a query that is passed on because `may_pass_on` allows it.
    pub(crate) async fn run_query_or(
        &self,
        ask: &Ask,
        source: &Source,
        may_pass_on: MayPassOn,
    ) -> Result<(Selection, Done), Unanswered> {
        let mut offer = (!ask.offline).then(|| OfferedQuery::new(self, ask));
        let settled = self.place_until_run(ask, source, &mut offer).await;
        let settled = settled.map_err(|error| Unanswered {
            is_passed_on: may_pass_on(&error, ask, source),
            error,
        });
        match (&mut offer, &settled) {
            (Some(offer), Ok((_, done))) => offer.answer(done),
            (Some(offer), Err(unanswered)) if unanswered.is_passed_on => offer.pass_on(),
            (Some(offer), Err(unanswered)) => offer.refuse(&unanswered.error),
            (None, _) => {}
        }
        settled
    }

    async fn place_until_run(
        &self,
        ask: &Ask,
        source: &Source,
        offer: &mut Option<OfferedQuery<'_>>,
    ) -> Result<(Selection, Done), QueryError> {
        // The error of the last placement, if it says more than the reason why there is no other placement.
        let mut cause: Option<QueryError> = None;
        // The error of the last placement whose worker or engine was lost.
        let mut lost: Option<QueryError> = None;
        let (mut placements, mut losses) = (0, 0);
        loop {
            let revision = *self.revision.borrow();
            let mut chosen = match (self.choose(ask), &cause) {
                (Ok(chosen), _) => chosen,
                (Err(error), _) if is_away(&error) && self.is_reaching(ask).await => continue,
                (Err(error), Some(_)) if self.is_leading() => return Err(cause.unwrap_or(error)),
                (Err(error), _) => return Err(error),
            };
            if let Some(offer) = offer {
                offer.queue(&chosen.known);
            }
            let inputs = source.inputs(&chosen, ask, placements);
            let charge = chosen.charge.take();
            let refusal = match self.run(&chosen, (inputs, charge), ask).await {
                Ok(done) => {
                    if let Some(under_way) = &chosen.under_way {
                        under_way.answered(chosen.known.ordinal, done.timings.exec_us / 1e6);
                    }
                    return Ok((chosen, done));
                }
                Err(refusal) => refusal,
            };
            placements += 1;
            losses += u32::from(is_loss(&refusal));
            let retry = retry(&refusal, chosen.load)
                .filter(|_| placements < PLACEMENTS && losses < LOSSES)
                .filter(|_| ask.deadline().is_none_or(|by| Instant::now() < by));
            let is_unplaced = matches!(refusal, Refusal::Dropped(DropReason::Gone));
            if retry.is_none() && is_unplaced && self.is_reaching(ask).await {
                continue;
            }
            let Some(retry) = retry else {
                // If the engine was lost with this very query, that says more than a LOAD that failed.
                let lost = lost.filter(|_| matches!(refusal, Refusal::Dropped(_)));
                return Err(lost.unwrap_or_else(|| self.error(&chosen, &refusal, ask)));
            };
            if is_loss(&refusal) {
                lost = Some(self.error(&chosen, &refusal, ask));
            }
            cause = (retry == Retry::AtOnce).then(|| self.error(&chosen, &refusal, ask));
            if retry == Retry::AfterNews {
                self.await_news(revision).await;
            }
        }
    }

    /// Waits for workers that were not reached yet, and returns whether another look may find one that can answer. This
    /// is rare, so the future is boxed and takes no room in the futures of all queries.
    async fn is_reaching(&self, ask: &Ask) -> bool {
        Box::pin(self.gathering.wait(ask.deadline())).await
    }

    /// Waits briefly for an index newer than `revision`. A worker knows of an unload before the feed has told the
    /// dispatcher, so the same choice would fail again.
    async fn await_news(&self, revision: u64) {
        let mut revisions = self.revision.subscribe();
        let newer = revisions.wait_for(|now| *now != revision);
        // Even without news the next placement may find another worker.
        drop(tokio::time::timeout(NEWS_WAIT, newer).await);
    }

    async fn run(
        &self,
        chosen: &Selection,
        (inputs, charge): (Inputs, Option<Charge>),
        ask: &Ask,
    ) -> Reply {
        let (reply, receiver) = oneshot::channel();
        let deadline = ask
            .deadline()
            .map_or(NEVER, |deadline| self.clock.nanos(deadline));
        let known = &chosen.known;
        let payload = Pending {
            number: known.ordinal,
            shape: ask.extent.shape(&known.variant),
            variant: Arc::clone(&known.variant),
            inputs,
            online: !ask.offline,
            charge,
            reply,
        };
        self.driver.enqueue(Request {
            payload,
            rows: ask.rows,
            deadline,
        });
        let longest = match chosen.load && deadline == NEVER {
            true => Duration::from_millis(self.config.max_load_wait_ms),
            false => Duration::MAX,
        };
        match tokio::time::timeout(longest, receiver).await {
            Ok(reply) => reply.unwrap_or(Err(Refusal::Worker(InferError::ShuttingDown))),
            Err(_) => Err(Refusal::Dropped(DropReason::Expired)),
        }
    }

    /// The error of a query that was not answered.
    fn error(&self, chosen: &Selection, refusal: &Refusal, ask: &Ask) -> QueryError {
        match chosen.load {
            _ if !self.is_leading() && matches!(refusal, Refusal::Dropped(DropReason::Gone)) => {
                standing_by()
            }
            true => self.cold(&chosen.known, refusal, ask),
            false => refused(refusal, &chosen.known, ask),
        }
    }

    /// The error of a query that was not answered and whose variant had to be loaded.
    fn cold(&self, known: &IndexedVariant, refusal: &Refusal, ask: &Ask) -> QueryError {
        match (refusal, self.driver.load_failure(known.ordinal)) {
            (Refusal::Dropped(DropReason::Gone), failure)
            | (Refusal::Dropped(DropReason::Expired), failure @ Some(_)) => {
                unloadable(known, failure, self.snapshot.load().unreached)
            }
            (Refusal::Dropped(DropReason::Expired | DropReason::Infeasible), None) => {
                warming(known)
            }
            (refusal, _) => refused(refusal, known, ask),
        }
    }
}

impl Source {
    /// The inputs for one placement.
    fn inputs(&self, chosen: &Selection, ask: &Ask, placement: u32) -> Inputs {
        match self {
            Self::Here(inputs) => Inputs::Here(inputs.clone()),
            Self::Held { ticket, holder } => Inputs::Held(Box::new(RemoteInputs {
                ticket: Ticket {
                    attempt: ticket.attempt.saturating_add(placement),
                    ..*ticket
                },
                holder: Arc::clone(holder),
                suits: suits(ask, &chosen.known),
                load: chosen.load,
                explanation: chosen.explanation.clone(),
            })),
        }
    }
}

/// What another placement has to wait for, if one may help. `load` says whether the query's variant had to be loaded.
fn retry(refusal: &Refusal, load: bool) -> Option<Retry> {
    match refusal {
        // A LOAD that failed on every worker would fail again.
        Refusal::Dropped(DropReason::Gone) => (!load).then_some(Retry::AfterNews),
        Refusal::Dropped(_) => None,
        Refusal::Worker(error) => match error {
            InferError::NotLoaded(_) | InferError::WeightsChanged(_) => Some(Retry::AfterNews),
            InferError::Lost { .. }
            | InferError::Disconnected { .. }
            | InferError::ShuttingDown
            | InferError::TooLate
            | InferError::InputsMissing => Some(Retry::AtOnce),
            InferError::TooEarly
            | InferError::NoMemory(_)
            | InferError::BadShape(_)
            | InferError::Failed { .. } => None,
        },
    }
}

/// Whether no worker was found that could answer.
fn is_away(error: &QueryError) -> bool {
    error.code == Code::Unavailable
}

fn is_loss(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Worker(InferError::Lost { .. } | InferError::Disconnected { .. })
    )
}
