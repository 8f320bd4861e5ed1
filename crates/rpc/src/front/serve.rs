//! The dispatcher's half of a link to a front end.
//!
//! The placements of one front end are polled by the task that receives its messages: a query goes
//! into the scheduler without another task in between.

use std::{collections::HashMap, future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use parking_lot::{Mutex, MutexGuard};

use sextant_types::Code;

use super::wire::{FromDispatcher, FrontReport, FrontRequest, ToDispatcher, WireAsk};
use crate::{
    Ask, Assignment, DispatcherClient, Holder, QueryError,
    link::{Broken, Clock, Link, Peer},
};

/// Whom front ends are served with.
#[derive(Clone)]
pub struct DispatcherHalf {
    /// Places their queries.
    pub dispatcher: DispatcherClient,
    /// Whether the dispatcher leads now. While it does not, queries are declined.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The clock here.
    pub clock: Clock,
}

type ServerLink = Arc<dyn Link<FromDispatcher, ToDispatcher>>;

/// What reports need.
struct Reporter {
    link: ServerLink,
    peer: Mutex<Peer>,
}

/// A placement under way: the query's number and what became of it, nothing if it was given up.
type Placement = BoxFuture<'static, Option<(u64, Result<(), QueryError>)>>;

/// Serves the front end at the other end of `link`, until `shutdown`. Queries that are being placed
/// when it ends are given up.
///
/// # Errors
/// When the link breaks.
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
        placements: FuturesUnordered::new(),
        handles: HashMap::new(),
    };
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            settled = serving.placements.next(), if !serving.placements.is_empty() => {
                if let Some((query, outcome)) = settled.flatten() {
                    serving.settle(query, outcome)?;
                }
            }
            message = link.receive() => serving.take_in(message?)?,
        }
    }
}

struct Serving {
    half: DispatcherHalf,
    reporter: Arc<Reporter>,
    placements: FuturesUnordered<Placement>,
    /// By the query's number.
    handles: HashMap<u64, AbortHandle>,
}

impl Serving {
    fn take_in(&mut self, message: ToDispatcher) -> Result<(), Broken> {
        self.reporter.peer().arrived(&message.stamp);
        match message.body {
            FrontRequest::Beat => self.reporter.send(FrontReport::Beat {
                utilization: self.half.dispatcher.utilization(),
                leads: (self.half.leads)(),
            }),
            FrontRequest::Ask(ask) if (self.half.leads)() => {
                self.place(ask);
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

    fn place(&mut self, ask: WireAsk) {
        let query = ask.ticket.query;
        let ask = self.reporter.ask(ask);
        let (dispatcher, holder) = (
            Arc::clone(&self.half.dispatcher),
            Arc::clone(&self.reporter) as Arc<dyn Holder>,
        );
        let (handle, registration) = AbortHandle::new_pair();
        let placing = async move {
            // One that panics harms no other query.
            let placed = AssertUnwindSafe(dispatcher.place(ask, holder)).catch_unwind();
            (query, placed.await.unwrap_or_else(|_| Err(panicked())))
        };
        let placing = Abortable::new(placing, registration);
        self.placements.push(placing.map(Result::ok).boxed());
        // The same number again is the same query, asked anew: the earlier placement is void.
        if let Some(earlier) = self.handles.insert(query, handle) {
            earlier.abort();
        }
    }

    fn settle(&mut self, query: u64, outcome: Result<(), QueryError>) -> Result<(), Broken> {
        self.handles.remove(&query);
        // What a dispatcher refuses when it leads no more says nothing of the query.
        if outcome.is_err() && !(self.half.leads)() {
            return self.reporter.send(FrontReport::Declined { query });
        }
        self.reporter.send(FrontReport::Done { query, outcome })
    }
}

fn panicked() -> QueryError {
    QueryError::new(Code::Internal, "the dispatcher failed on the query")
}

// === impl Reporter ===

impl Reporter {
    fn send(&self, body: FrontReport) -> Result<(), Broken> {
        // Under the lock, so that stamps are sent in the order of their times.
        let peer = self.peer();
        let stamp = peer.stamp();
        self.link.send(FromDispatcher { stamp, body })
    }

    fn ask(&self, ask: WireAsk) -> Ask {
        let peer = self.peer();
        let now = peer.clock().now();
        // Before the clocks are compared the best guess is that it arrived just now.
        let arrived = match peer.is_known() {
            true => peer.instant(ask.arrived_ns).min(now),
            false => now,
        };
        Ask {
            ticket: ask.ticket,
            route: ask.route,
            rows: ask.rows,
            dims: ask.dims,
            targets: ask.targets,
            best_effort: ask.best_effort,
            explain: ask.explain,
            arrived,
        }
    }

    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock()
    }
}

impl Holder for Reporter {
    /// Over a broken link nobody is told: the worker's batch goes without the inputs.
    fn assign(&self, assignment: Assignment) {
        let _ = self.send(FrontReport::Assign(Box::new(assignment)));
    }
}
