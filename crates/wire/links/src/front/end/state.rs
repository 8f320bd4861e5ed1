//! The queries of a front end and its links: who was asked, and who answers.
//!
//! A query is *unasked* until a link to the leading dispatcher takes it, *asked* until the dispatcher has answered it
//! or named a worker, then *assigned*. It leaves once: with outputs under its current ticket, with the dispatcher's
//! answer or refusal, or with a refusal by the front end. Messages of an earlier dispatcher or about an earlier
//! placement are stale: each link to a dispatcher has a number, and asking again raises the attempt beyond all attempts
//! that the earlier dispatcher can have used.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sextant_metadata::Leader;
use sextant_rpc::QueryError;
use sextant_types::{Code, WorkerId};

use super::{
    FrontOptions,
    entry::{Entry, Phase, Settlement},
};
use crate::{
    front::{DispatcherLink, FrontRequest, MailboxLink},
    link::{Clock, Peer},
};

mod links;

/// Time after a worker has run a query within which its outputs arrive, or count as lost.
const OUTPUTS_WAIT: Duration = Duration::from_secs(1);

/// Advised time until a retry while no dispatcher leads.
const LEADER_RETRY_MS: f64 = 1_000.0;

/// Advised time until a retry after a worker was lost.
const WORKER_RETRY_MS: f64 = 100.0;

/// The link to a dispatcher.
struct DispatcherEnd {
    number: u64,
    link: DispatcherLink,
    peer: Peer,
    leader: Leader,
    leads: bool,
    utilization: f64,
}

/// The link to a worker's mailbox.
struct MailboxEnd {
    number: u64,
    link: MailboxLink,
}

pub(super) struct State {
    options: FrontOptions,
    clock: Clock,
    holder: u64,
    queries: HashMap<u64, Entry>,
    dispatcher: Option<DispatcherEnd>,
    mailboxes: HashMap<WorkerId, MailboxEnd>,
    /// Number of links so far.
    links: u64,
    closed: bool,
}

/// The result of a look at a waiting query.
enum Verdict {
    Wait,
    AskAgain,
    Refuse(QueryError),
}

// === impl State ===

impl State {
    pub(super) fn new(options: FrontOptions, clock: Clock, holder: u64) -> Self {
        Self {
            options,
            clock,
            holder,
            queries: HashMap::new(),
            dispatcher: None,
            mailboxes: HashMap::new(),
            links: 0,
            closed: false,
        }
    }

    /// The dispatcher that now takes queries.
    pub(super) fn leader(&self) -> Option<&Leader> {
        let end = self.dispatcher.as_ref().filter(|end| end.leads)?;
        Some(&end.leader)
    }

    pub(super) fn utilization(&self) -> f64 {
        self.dispatcher.as_ref().map_or(0.0, |end| end.utilization)
    }

    /// Number of queries that are not answered yet.
    pub(super) fn waiting(&self) -> usize {
        self.queries.len()
    }

    /// Adds a query and asks it.
    pub(super) fn add(&mut self, query: u64, entry: Entry) -> Result<(), QueryError> {
        if self.closed {
            return Err(closing());
        }
        if self.leader().is_none() && self.queries.len() >= self.options.max_waiting {
            return Err(no_leader());
        }
        self.queries.insert(query, entry);
        self.ask(query);
        Ok(())
    }

    /// Gives up a query whose caller has gone.
    pub(super) fn give_up(&mut self, query: u64) {
        if let Some(entry) = self.queries.remove(&query) {
            self.tell_given_up(query, &entry);
        }
    }

    /// Answers all queries; later queries are refused.
    pub(super) fn close(&mut self) -> Vec<Settlement> {
        self.closed = true;
        let queries = self.queries.drain();
        queries.map(|(_, entry)| entry.refuse(closing())).collect()
    }

    /// Refuses queries that have waited too long, and asks lost queries again.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Settlement> {
        let mut verdicts = Vec::new();
        for (query, entry) in &self.queries {
            match self.verdict(entry, now) {
                Verdict::Wait => {}
                verdict => verdicts.push((*query, verdict)),
            }
        }
        let settled = verdicts
            .into_iter()
            .filter_map(|(query, verdict)| match verdict {
                Verdict::Wait => None,
                Verdict::AskAgain => self.ask_again(query),
                Verdict::Refuse(error) => {
                    let entry = self.queries.remove(&query)?;
                    self.tell_given_up(query, &entry);
                    Some(entry.refuse(error))
                }
            });
        settled.collect()
    }

    fn verdict(&self, entry: &Entry, now: Instant) -> Verdict {
        let deadline = entry.deadline();
        let is_past = deadline.is_some_and(|deadline| now > deadline);
        let last = deadline.unwrap_or(entry.arrived) + self.options.longest;
        match &entry.phase {
            Phase::Unasked { since } if is_past || now > *since + self.options.leader_wait => {
                Verdict::Refuse(no_leader())
            }
            Phase::Assigned { ran, .. } => {
                let orphaned = self.is_orphaned(entry);
                let lost =
                    !self.is_reached(entry) || ran.is_some_and(|ran| now > ran + OUTPUTS_WAIT);
                match (lost, orphaned, ran) {
                    _ if is_past && (lost || orphaned) => Verdict::Refuse(lost_worker()),
                    (true, true, _) | (true, _, Some(_)) => Verdict::AskAgain,
                    _ if now > last => Verdict::Refuse(overdue(self.options.longest)),
                    _ => Verdict::Wait,
                }
            }
            _ if now > last => Verdict::Refuse(overdue(self.options.longest)),
            _ => Verdict::Wait,
        }
    }

    /// Whether the dispatcher that placed the query cannot be reached any more.
    fn is_orphaned(&self, entry: &Entry) -> bool {
        let link = self.dispatcher.as_ref().map(|end| end.number);
        entry.link() != link
    }

    /// Whether the link that took the query's inputs still exists.
    fn is_reached(&self, entry: &Entry) -> bool {
        let Phase::Assigned {
            assignment, sent, ..
        } = &entry.phase
        else {
            return false;
        };
        let mailbox = self.mailboxes.get(&assignment.worker);
        let sent = sent.map(|(number, _)| number);
        sent.is_some() && mailbox.map(|end| end.number) == sent
    }

    /// Asks the leading dispatcher, or makes the query wait for one.
    fn ask(&mut self, query: u64) {
        let Some(entry) = self.queries.get_mut(&query) else {
            return;
        };
        let end = self.dispatcher.as_mut().filter(|end| end.leads);
        let link = end.and_then(|end| {
            let ask = FrontRequest::Ask(Box::new(entry.ask(self.holder, query, &self.clock)));
            end.send(ask).is_ok().then_some(end.number)
        });
        entry.phase = match link {
            Some(link) => Phase::Asked { link },
            None => Phase::Unasked {
                since: self.clock.now(),
            },
        };
    }

    /// Asks a query again whose placement failed and that no dispatcher will place again.
    fn ask_again(&mut self, query: u64) -> Option<Settlement> {
        let entry = self.queries.get_mut(&query)?;
        entry.losses += 1;
        if entry.losses > self.options.most_askings {
            let entry = self.queries.remove(&query)?;
            return Some(entry.refuse(lost_worker()));
        }
        self.ask(query);
        None
    }

    fn ask_all_unasked(&mut self) {
        let waits = |entry: &Entry| matches!(entry.phase, Phase::Unasked { .. });
        for query in self.select(waits) {
            self.ask(query);
        }
    }

    /// The queries for which `wanted` holds, in the order in which they came.
    fn select(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let queries = self.queries.iter().filter(|(_, entry)| wanted(entry));
        let mut queries: Vec<u64> = queries.map(|(query, _)| *query).collect();
        queries.sort_unstable();
        queries
    }

    fn tell_given_up(&mut self, query: u64, entry: &Entry) {
        if let Some(end) = &mut self.dispatcher
            && entry.link() == Some(end.number)
        {
            // If the link is broken, the dispatcher learns of it by that.
            let _ = end.send(FrontRequest::GiveUp { query });
        }
    }
}

fn no_leader() -> QueryError {
    let message = "no dispatcher leads at the moment: the query was not placed; try again";
    unavailable(message, LEADER_RETRY_MS)
}

fn lost_worker() -> QueryError {
    let message = "the worker or the dispatcher that had the query was lost; try again";
    unavailable(message, WORKER_RETRY_MS)
}

fn closing() -> QueryError {
    unavailable("the front end is shutting down", LEADER_RETRY_MS)
}

fn overdue(longest: Duration) -> QueryError {
    let seconds = longest.as_secs();
    let message = format!("no answer for `{seconds}` s after it was wanted");
    QueryError::new(Code::DeadlineExceeded, message)
}

fn unavailable(message: &str, retry_after_ms: f64) -> QueryError {
    QueryError::new(Code::Unavailable, message).retry_after_ms(retry_after_ms)
}
