//! Messages of links, and the opening and loss of links.

use sextant_metadata::Leader;
use sextant_rpc::{Answer, Assignment, CacheHit, InferError, QueryError, Ticket};
use sextant_types::{Code, WorkerId};

use super::{DispatcherEnd, MailboxEnd, State, lost_worker};
use crate::{
    front::{
        DispatcherLink, FrontRequest, MailboxLink, ToDispatcher,
        end::entry::{Phase, QueryOutcome, Settlement},
    },
    link::{Broken, Peer, Stamp},
    mailbox::{PartOutputs, ToMailbox},
};

// === impl State ===

impl State {
    /// Changes to a link to the leading dispatcher, and asks it the queries that are not placed. Returns the link's
    /// number.
    pub(in crate::front::end) fn open_dispatcher(
        &mut self,
        leader: Leader,
        link: DispatcherLink,
    ) -> u64 {
        self.links += 1;
        self.dispatcher = Some(DispatcherEnd {
            number: self.links,
            link,
            peer: Peer::new(self.clock),
            leader,
            leads: true,
            utilization: 0.0,
        });
        self.ask_all_unasked();
        self.links
    }

    /// A link to a dispatcher is lost: the queries that it has not placed wait for the next.
    pub(in crate::front::end) fn lose_dispatcher(&mut self, number: u64) -> Vec<Settlement> {
        self.dispatcher.take_if(|end| end.number == number);
        let since = self.clock.now();
        for entry in self.queries.values_mut() {
            if matches!(entry.phase, Phase::Asked { link } if link == number) {
                entry.phase = Phase::Unasked { since };
            }
        }
        let lost = self.select(|entry| {
            let is_failed = matches!(
                entry.phase,
                Phase::Assigned {
                    failed: Some(_),
                    ..
                }
            );
            entry.link() == Some(number) && (is_failed || !self.is_reached(entry))
        });
        lost.into_iter()
            .filter_map(|query| self.end_orphan(query))
            .collect()
    }

    /// Refuses a query that another worker would refuse as well, and asks for another placement otherwise.
    fn end_orphan(&mut self, query: u64) -> Option<Settlement> {
        let entry = self.queries.get(&query)?;
        let error = match &entry.phase {
            Phase::Assigned {
                assignment,
                failed: Some(error),
                ..
            } => final_error(assignment, error),
            _ => None,
        };
        match error {
            Some(error) => Some(self.queries.remove(&query)?.refuse(error)),
            None => self.ask_again(query),
        }
    }

    /// Sends a sign of life.
    pub(in crate::front::end) fn beat(&mut self, number: u64) -> Result<(), Broken> {
        let end = self.dispatcher.as_mut().filter(|end| end.number == number);
        end.ok_or(Broken)?.send(FrontRequest::Beat)
    }

    pub(in crate::front::end) fn on_stamp(&mut self, number: u64, stamp: &Stamp) {
        if let Some(end) = &mut self.dispatcher
            && end.number == number
        {
            end.peer.arrived(stamp);
        }
    }

    pub(in crate::front::end) fn on_beat(&mut self, number: u64, utilization: f64, leads: bool) {
        let Some(end) = self.dispatcher.as_mut().filter(|end| end.number == number) else {
            return;
        };
        end.utilization = utilization;
        let led = std::mem::replace(&mut end.leads, leads);
        if leads && !led {
            self.ask_all_unasked();
        }
    }

    /// The dispatcher has found a worker: the inputs are sent to it.
    pub(in crate::front::end) fn on_assign(&mut self, number: u64, assignment: Box<Assignment>) {
        let ticket = assignment.ticket;
        if ticket.holder != self.holder {
            return;
        }
        match self.queries.get_mut(&ticket.query) {
            Some(entry) if entry.takes(number, &ticket) => {
                entry.phase = Phase::Assigned {
                    link: number,
                    assignment,
                    sent: None,
                    ran: None,
                    failed: None,
                };
                self.send_inputs(ticket.query);
            }
            Some(_) => {}
            None => {
                if let Some(end) = self.mailboxes.get(&assignment.worker) {
                    let reason = InferError::InputsMissing;
                    let _ = end.link.send(ToMailbox::Withheld { ticket, reason });
                }
            }
        }
    }

    /// The dispatcher has no further message about the query.
    pub(in crate::front::end) fn on_done(
        &mut self,
        number: u64,
        query: u64,
        outcome: Result<(), QueryError>,
    ) -> Option<Settlement> {
        let now = self.clock.now();
        let entry = self.queries.get_mut(&query)?;
        if entry.link() != Some(number) {
            return None;
        }
        if let Err(error) = outcome {
            return Some(self.queries.remove(&query)?.refuse(error));
        }
        if let Phase::Assigned { ran, .. } = &mut entry.phase {
            *ran = Some(now);
        }
        // The outputs come on another link, or were lost with it.
        let is_reached = self
            .queries
            .get(&query)
            .is_some_and(|entry| self.is_reached(entry));
        if is_reached {
            return None;
        }
        self.ask_again(query)
    }

    /// The dispatcher has chosen a variant whose answer is cached here.
    pub(in crate::front::end) fn on_has(
        &mut self,
        number: u64,
        has: Box<CacheHit>,
    ) -> Option<Settlement> {
        let query = has.ticket.query;
        let entry = self.queries.get(&query)?;
        if entry.link() != Some(number) || !entry.is_asked_as(&has.ticket) {
            return None;
        }
        let (reply, _) = self.queries.remove(&query)?.into_parts();
        Some(Settlement::new(reply, Ok(QueryOutcome::Kept(has))))
    }

    /// The dispatcher has answered or refused a query that was sent with its inputs.
    pub(in crate::front::end) fn on_answered(
        &mut self,
        number: u64,
        query: u64,
        outcome: Result<Box<Answer>, QueryError>,
    ) -> Option<Settlement> {
        let entry = self.queries.get(&query)?;
        if entry.link() != Some(number) {
            return None;
        }
        let entry = self.queries.remove(&query)?;
        let (reply, _) = entry.into_parts();
        Some(Settlement::new(reply, outcome.map(QueryOutcome::Answered)))
    }

    /// The dispatcher does not lead.
    pub(in crate::front::end) fn on_declined(&mut self, number: u64, query: u64) {
        if let Some(end) = self.dispatcher.as_mut().filter(|end| end.number == number) {
            end.leads = false;
        }
        let since = self.clock.now();
        if let Some(entry) = self.queries.get_mut(&query)
            && entry.link() == Some(number)
        {
            entry.phase = Phase::Unasked { since };
        }
    }

    /// Sends its inputs to the worker to which a query was assigned, if there is a link.
    fn send_inputs(&mut self, query: u64) {
        let Some(entry) = self.queries.get_mut(&query) else {
            return;
        };
        let Phase::Assigned {
            assignment, sent, ..
        } = &mut entry.phase
        else {
            return;
        };
        let Some(end) = self.mailboxes.get(&assignment.worker) else {
            return;
        };
        let message = ToMailbox::Inputs {
            ticket: assignment.ticket,
            rows: entry.rows,
            inputs: entry.inputs.clone(),
        };
        if end.link.send(message).is_ok() {
            *sent = Some((end.number, self.clock.now()));
        }
    }

    /// Changes to a link to a worker's mailbox, and sends it the waiting inputs. Returns the link's number.
    pub(in crate::front::end) fn open_mailbox(
        &mut self,
        worker: &WorkerId,
        link: MailboxLink,
    ) -> u64 {
        self.links += 1;
        let number = self.links;
        self.mailboxes
            .insert(worker.clone(), MailboxEnd { number, link });
        for query in self.select(|entry| entry.worker() == Some(worker)) {
            self.send_inputs(query);
        }
        number
    }

    /// A link to a worker's mailbox is lost. The dispatcher places again the queries that it still has.
    pub(in crate::front::end) fn lose_mailbox(
        &mut self,
        worker: &WorkerId,
        number: u64,
    ) -> Vec<Settlement> {
        if self.mailboxes.get(worker).map(|end| end.number) == Some(number) {
            self.mailboxes.remove(worker);
        }
        let lost = self.select(|entry| {
            let ran = matches!(entry.phase, Phase::Assigned { ran: Some(_), .. });
            entry.worker() == Some(worker)
                && !self.is_reached(entry)
                && (ran || self.is_orphaned(entry))
        });
        lost.into_iter()
            .filter_map(|query| self.ask_again(query))
            .collect()
    }

    /// A worker reports the result for inputs. If the ticket is not the present one, the report is stale.
    pub(in crate::front::end) fn on_outputs(
        &mut self,
        ticket: Ticket,
        outcome: Result<PartOutputs, InferError>,
    ) -> Option<Settlement> {
        let entry = self.queries.get_mut(&ticket.query)?;
        let Phase::Assigned {
            assignment, failed, ..
        } = &mut entry.phase
        else {
            return None;
        };
        if assignment.ticket != ticket {
            return None;
        }
        *failed = Some(match outcome {
            Ok(outputs) => return self.answer(ticket.query, outputs),
            Err(error) => error,
        });
        // The dispatcher was told as well. As long as it is reached, it decides.
        let entry = self.queries.get(&ticket.query)?;
        match self.is_orphaned(entry) {
            true => self.end_orphan(ticket.query),
            false => None,
        }
    }

    fn answer(&mut self, query: u64, outputs: PartOutputs) -> Option<Settlement> {
        let entry = self.queries.remove(&query)?;
        let (reply, phase) = entry.into_parts();
        let ran = match phase {
            Phase::Assigned {
                assignment, sent, ..
            } => Ok(QueryOutcome::There {
                assignment,
                outputs,
                sent: sent.map_or_else(|| self.clock.now(), |(_, at)| at),
            }),
            Phase::Unasked { .. } | Phase::Asked { .. } => Err(lost_worker()),
        };
        Some(Settlement::new(reply, ran))
    }
}

/// The client's error, if another worker would fail in the same way.
fn final_error(assignment: &Assignment, error: &InferError) -> Option<QueryError> {
    let id = &assignment.variant;
    match error {
        InferError::BadShape(reason) => Some(QueryError::new(
            Code::InvalidTensor,
            format!("variant `{id}` does not take these inputs: {reason}"),
        )),
        InferError::Failed { code, reason } => {
            let message = format!("variant `{id}` failed: {reason}");
            Some(QueryError::new(*code, message))
        }
        _ => None,
    }
}

// === impl DispatcherEnd ===

impl DispatcherEnd {
    pub(super) fn send(&mut self, body: FrontRequest) -> Result<(), Broken> {
        let stamp = self.peer.stamp();
        self.link.send(ToDispatcher { stamp, body })
    }
}
