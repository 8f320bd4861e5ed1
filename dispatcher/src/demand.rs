//! The demand, counted when queries end.
//!
//! A query that ends adds to the [row](counts::Row) of its application, its class of targets and the variant that it
//! was queued for. Rows are found by number in a map that is replaced and never locked, so counting costs a look-up and
//! a few atomic additions. Only the first query of a row takes a lock. Once a second the [`publisher`] writes the
//! additions into the metadata store.

mod counts;
mod publisher;

use std::{sync::Arc, time::Duration};

use sextant_rpc::QueryError;
use sextant_types::TargetClass;

pub(crate) use self::{
    counts::{Counts, QueryOutcome, QueryRows, Totals},
    publisher::{Ticks, class_of},
};
use crate::{Dispatcher, ask::Ask, pending::Done};
use sextant_picture::IndexedVariant;

/// An online query that is being answered. It is counted when this value is dropped.
pub(crate) struct OfferedQuery<'a> {
    dispatcher: &'a Dispatcher,
    ask: &'a Ask,
    /// The variant that it was last queued for.
    variant: Option<Arc<IndexedVariant>>,
    ended: QueryOutcome,
    queueing: Duration,
    /// Whether the query is counted elsewhere: the front end answers it with a composite variant or splits it, or
    /// another version answers it.
    is_elsewhere: bool,
}

impl<'a> OfferedQuery<'a> {
    pub(crate) fn new(dispatcher: &'a Dispatcher, ask: &'a Ask) -> Self {
        Self {
            dispatcher,
            ask,
            variant: None,
            ended: QueryOutcome::GivenUp,
            queueing: Duration::ZERO,
            is_elsewhere: false,
        }
    }

    /// The query is put into the queue of a variant.
    pub(crate) fn queue(&mut self, known: &Arc<IndexedVariant>) {
        self.variant = Some(Arc::clone(known));
    }

    /// The query has been run.
    pub(crate) fn answer(&mut self, done: &Done) {
        let Ask { arrived, .. } = self.ask;
        // Outputs that go straight to a front end arrive one message later.
        let response = Duration::from_nanos(self.dispatcher.config.network.response);
        let took_ms = (arrived.elapsed() + response).as_secs_f64() * 1e3;
        self.ended = match self.ask.longest_ms() {
            Some(most) if took_ms > most => QueryOutcome::Late,
            _ => QueryOutcome::Answered,
        };
        self.queueing = done.timings.started.saturating_duration_since(*arrived);
    }

    /// The query was answered from the cache: no device ran.
    pub(crate) fn answer_kept(mut self, known: &Arc<IndexedVariant>) {
        self.variant = Some(Arc::clone(known));
        self.ended = QueryOutcome::Kept;
    }

    fn asked(&self, worth: f64) -> QueryRows {
        QueryRows {
            rows: self.ask.rows,
            worth,
            runs: self.ask.step.as_ref().map_or(0.0, |step| step.share),
        }
    }

    /// The query was refused or failed.
    pub(crate) fn refuse(&mut self, error: &QueryError) {
        // The steps of the composite variant count themselves, and so do the parts of a query that has too many rows.
        self.is_elsewhere = error.instead.is_some() || error.most_rows.is_some();
        self.ended = QueryOutcome::Refused(error.code);
    }

    /// Another version answers the query, and counts it.
    pub(crate) fn pass_on(&mut self) {
        self.is_elsewhere = true;
    }
}

impl Drop for OfferedQuery<'_> {
    fn drop(&mut self) {
        // A dispatcher that stands by does not count: the query goes to the leader.
        if self.is_elsewhere || !self.dispatcher.is_leading() {
            return;
        }
        let class = (TargetClass::of(&self.ask.targets), self.ask.step.as_deref());
        let counts = &self.dispatcher.counts;
        let target = self.ask.targets.latency_ms;
        match &self.variant {
            Some(known) => {
                let waited = match self.ended {
                    QueryOutcome::Answered | QueryOutcome::Late | QueryOutcome::Kept => {
                        self.queueing
                    }
                    QueryOutcome::Refused(_) | QueryOutcome::GivenUp => self.ask.arrived.elapsed(),
                };
                let application = (known.application, &known.variant.application);
                let variant = Some((known.ordinal, &known.variant.id));
                let asked = self.asked(known.rows_worth(self.ask.extent));
                let ended = (self.ended, asked, waited);
                counts.add(application, class, variant, ended, target);
            }
            None => {
                let snapshot = self.dispatcher.snapshot.load();
                if let Some(application) = snapshot.application_of(&self.ask.route) {
                    let worth = snapshot.rows_worth(&self.ask.route, self.ask.extent);
                    let ended = (self.ended, self.asked(worth), Duration::ZERO);
                    counts.add(application, class, None, ended, target);
                }
            }
        }
    }
}
