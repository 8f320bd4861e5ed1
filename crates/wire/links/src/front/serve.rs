//! The dispatcher's half of a link to a front end.
//!
//! The task that receives the messages of a front end also polls its queries: a query enters the scheduler without
//! another task in between.

use std::{
    collections::HashMap, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Instant,
};

use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use parking_lot::{Mutex, MutexGuard};

use sextant_rpc::{Ask, Assignment, CacheHit, DispatcherClient, Holder, Query, QueryError};
use sextant_types::Code;

use super::{FromDispatcher, FrontReport, FrontRequest, QueryInputs, QueryMessage, ToDispatcher};
use crate::link::{Broken, Clock, Link, Peer};

/// What serves front ends.
#[derive(Clone)]
pub struct DispatcherHalf {
    /// Places their queries.
    pub dispatcher: DispatcherClient,
    /// Whether the dispatcher leads now. If it does not, queries are declined.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The local clock.
    pub clock: Clock,
}

type ServerLink = Arc<dyn Link<FromDispatcher, ToDispatcher>>;

/// What is needed to send reports.
struct Reporter {
    link: ServerLink,
    peer: Mutex<Peer>,
}

/// A running query: its number and the report about it; `None` if it was given up.
type InFlightQuery = BoxFuture<'static, Option<(u64, FrontReport)>>;

/// Serves the front end at the other end of `link`, until `shutdown`. Queries that still run then are given up.
///
/// # Errors
/// If the link breaks.
pub async fn serve(
    half: DispatcherHalf,
    link: ServerLink,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Broken> {
    let mut serving = Serving {
        reporter: Arc::new(Reporter {
            link: Arc::clone(&link),
            peer: Mutex::new(Peer::new(half.clock)),
        }),
        half,
        queries: FuturesUnordered::new(),
        handles: HashMap::new(),
    };
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            ended = serving.queries.next(), if !serving.queries.is_empty() => {
                if let Some((query, report)) = ended.flatten() {
                    serving.report(query, report)?;
                }
            }
            message = link.receive() => serving.receive(message?)?,
        }
    }
}

struct Serving {
    half: DispatcherHalf,
    reporter: Arc<Reporter>,
    queries: FuturesUnordered<InFlightQuery>,
    /// By the number of the query.
    handles: HashMap<u64, AbortHandle>,
}

impl Serving {
    fn receive(&mut self, message: ToDispatcher) -> Result<(), Broken> {
        self.reporter.peer().arrived(&message.stamp);
        match message.body {
            FrontRequest::Beat => self.reporter.send(FrontReport::Beat {
                utilization: self.half.dispatcher.utilization(),
                leads: (self.half.leads)(),
            }),
            FrontRequest::Ask(ask) if (self.half.leads)() => {
                self.take_on(*ask);
                Ok(())
            }
            FrontRequest::Ask(ask) => {
                let query = ask.ticket.query;
                self.reporter.send(FrontReport::Declined { query })
            }
            FrontRequest::GiveUp { query } => {
                if let Some(handle) = self.handles.remove(&query) {
                    handle.abort();
                }
                Ok(())
            }
        }
    }

    fn take_on(&mut self, ask: QueryMessage) {
        let query = ask.ticket.query;
        let reporter = Arc::clone(&self.reporter);
        let dispatcher = Arc::clone(&self.half.dispatcher);
        let (handle, registration) = AbortHandle::new_pair();
        let report = async move { (query, reporter.report(dispatcher, ask).await) };
        let report = Abortable::new(report, registration);
        self.queries.push(report.map(Result::ok).boxed());
        // The same number again is the same query, asked again: the earlier asking is void.
        if let Some(earlier) = self.handles.insert(query, handle) {
            earlier.abort();
        }
    }

    fn report(&mut self, query: u64, report: FrontReport) -> Result<(), Broken> {
        self.handles.remove(&query);
        let is_refusal = matches!(
            report,
            FrontReport::Done {
                outcome: Err(_),
                ..
            } | FrontReport::Answered {
                outcome: Err(_),
                ..
            }
        );
        // A refusal by a dispatcher that does not lead any more says nothing about the query.
        if is_refusal && !(self.half.leads)() {
            return self.reporter.send(FrontReport::Declined { query });
        }
        self.reporter.send(report)
    }
}

fn panicked() -> QueryError {
    QueryError::new(Code::Internal, "the dispatcher failed on the query")
}

// === impl Reporter ===

impl Reporter {
    fn send(&self, body: FrontReport) -> Result<(), Broken> {
        // The lock is held while sending, so that stamps are sent in the order of their times.
        let peer = self.peer();
        let stamp = peer.stamp();
        self.link.send(FromDispatcher { stamp, body })
    }

    /// Answers a query, or places it if the front end keeps its inputs. A query that panics does not affect others.
    async fn report(
        self: Arc<Self>,
        dispatcher: DispatcherClient,
        ask: QueryMessage,
    ) -> FrontReport {
        let query = ask.ticket.query;
        let arrived = self.arrived(ask.arrived_ns);
        match ask.inputs {
            QueryInputs::Kept { rows, dims, kept } => {
                let ask = Ask {
                    ticket: ask.ticket,
                    route: ask.route,
                    rows,
                    dims,
                    targets: ask.targets,
                    best_effort: ask.best_effort,
                    explain: ask.explain,
                    sticky: ask.sticky,
                    kept,
                    composites: ask.composites,
                    offline: ask.offline,
                    step: ask.step,
                    arrived,
                };
                let holder = Arc::new(QueryHolder {
                    reporter: self,
                    has: Mutex::new(None),
                });
                let placed = dispatcher.place(ask, Arc::clone(&holder) as _);
                let placed = AssertUnwindSafe(placed).catch_unwind();
                let outcome = placed.await.unwrap_or_else(|_| Err(panicked()));
                match holder.has.lock().take().filter(|_| outcome.is_ok()) {
                    Some(has) => FrontReport::Has(Box::new(has)),
                    None => FrontReport::Done { query, outcome },
                }
            }
            QueryInputs::Here(Ok(inputs)) => {
                let ask = Query {
                    route: ask.route,
                    inputs,
                    targets: ask.targets,
                    best_effort: ask.best_effort,
                    explain: ask.explain,
                    sticky: ask.sticky,
                    serial: ask.serial,
                    composites: ask.composites,
                    offline: ask.offline,
                    step: ask.step,
                    arrived,
                };
                let answered = AssertUnwindSafe(dispatcher.query(ask)).catch_unwind();
                let outcome = answered.await.unwrap_or_else(|_| Err(panicked()));
                let outcome = outcome.map(Box::new);
                FrontReport::Answered { query, outcome }
            }
            QueryInputs::Here(Err(reason)) => FrontReport::Answered {
                query,
                outcome: Err(QueryError::new(Code::InvalidTensor, reason)),
            },
        }
    }

    /// When a query arrived, on the local clock.
    fn arrived(&self, arrived_ns: u64) -> Instant {
        let peer = self.peer();
        let now = peer.clock().now();
        // Before the clocks are compared the best guess is that it has just arrived.
        match peer.is_known() {
            true => peer.instant(arrived_ns).min(now),
            false => now,
        }
    }

    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock()
    }
}

/// The holder of one query.
struct QueryHolder {
    reporter: Arc<Reporter>,
    /// The hit that was reported, if the chosen variant's answer is cached.
    has: Mutex<Option<CacheHit>>,
}

impl Holder for QueryHolder {
    /// If the link is broken, the front end is not told: the worker's batch runs without the inputs.
    fn assign(&self, assignment: Assignment) {
        let report = FrontReport::Assign(Box::new(assignment));
        let _ = self.reporter.send(report);
    }

    /// The front end is told when the query ends.
    fn has(&self, kept: CacheHit) {
        *self.has.lock() = Some(kept);
    }
}
