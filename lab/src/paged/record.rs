//! Counts during a run.

use std::collections::BTreeMap;

use sextant_schedule::Nanos;
use sextant_types::index::{IndexVec, VariantIx};

use super::{
    Paging, Reason,
    telemetry::{Class, Failure, Interval, Report},
    worker::RunSpan,
};
use sextant_simulator::Span;

/// Records events.
#[derive(Debug)]
pub(super) struct Recorder {
    span: Span,
    length: Nanos,
    /// By model: its class.
    classes: IndexVec<VariantIx, u32>,
    /// By model: the interval of its last cold request, from 1.
    last_cold: IndexVec<VariantIx, u32>,
    pub(super) report: Report,
    /// Requests of the span without an answer.
    pub(super) open: u64,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) model: VariantIx,
    pub(super) arrived: Nanos,
    pub(super) answered: Nanos,
    pub(super) in_time: bool,
    pub(super) cold: bool,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(paging: &Paging, devices: u32, span: Span) -> Self {
        let length = paging.interval.max(1);
        let whole = span.until.saturating_sub(span.from);
        let classes = paging.classes.iter().max().map_or(1, |last| last + 1);
        let interval = |at: u64| Interval {
            seconds: (whole - at * length).min(length) as f64 / 1e9,
            classes: vec![Class::default(); classes as usize],
            ..Interval::default()
        };
        Self {
            length,
            classes: paging.classes.iter().copied().collect(),
            last_cold: paging.classes.iter().map(|_| 0).collect(),
            report: Report {
                intervals: (0..whole.div_ceil(length)).map(interval).collect(),
                devices,
                seconds: whole as f64 / 1e9,
                ..Report::default()
            },
            open: 0,
            span,
        }
    }

    /// The interval of a time, if the time counts.
    fn interval(&self, at: Nanos) -> Option<usize> {
        let counts = at >= self.span.from && at < self.span.until;
        counts.then(|| ((at - self.span.from) / self.length) as usize)
    }

    fn class(&mut self, arrived: Nanos, model: VariantIx) -> Option<&mut Class> {
        let at = self.interval(arrived)?;
        let class = self.classes[model] as usize;
        self.report.intervals[at].classes.get_mut(class)
    }

    pub(super) fn arrived(&mut self, now: Nanos, model: VariantIx, cold: bool) {
        self.report.simulated += 1;
        let Some(at) = self.interval(now) else {
            return;
        };
        self.open += 1;
        let class = self.classes[model] as usize;
        let interval = &mut self.report.intervals[at];
        interval.classes[class].sent += 1;
        if cold {
            interval.classes[class].cold += 1;
            let last = &mut self.last_cold[model];
            if *last != at as u32 + 1 {
                *last = at as u32 + 1;
                interval.cold_models += 1.0;
            }
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        let latency = answer.answered - answer.arrived;
        let Some(class) = self.class(answer.arrived, answer.model) else {
            return;
        };
        class.latency_sum += u128::from(latency);
        class.latency_max = class.latency_max.max(latency);
        if answer.in_time {
            class.good += 1;
            class.cold_good += u64::from(answer.cold);
        } else {
            class.late += 1;
        }
        self.report.latencies.add(latency);
        self.open -= 1;
    }

    pub(super) fn missed(&mut self, model: VariantIx, arrived: Nanos, reason: Reason) {
        if let Some(class) = self.class(arrived, model) {
            *class.missed.entry(reason).or_default() += 1;
            self.open -= 1;
        }
    }

    /// A batch ran.
    pub(super) fn ran(&mut self, ran: RunSpan, rows: u32, predicted: Nanos) {
        self.busy(ran, |interval| &mut interval.exec_busy);
        if let Some(at) = self.interval(ran.start) {
            self.report.infer.add(predicted, ran.end - ran.start);
            self.report.intervals[at].batches += 1;
            self.report.intervals[at].rows += u64::from(rows);
        }
    }

    /// A LOAD has ended.
    pub(super) fn loaded(&mut self, now: Nanos, ran: Result<RunSpan, Failure>, predicted: Nanos) {
        let begun = ran.map_or(now, |ran| ran.start);
        if let Ok(ran) = ran {
            self.busy(ran, |interval| &mut interval.load_busy);
        }
        let Some(at) = self.interval(begun) else {
            return;
        };
        let interval = &mut self.report.intervals[at];
        match ran {
            Ok(ran) => {
                interval.loads += 1;
                self.report.load.add(predicted, ran.end - ran.start);
            }
            Err(failure) => count(&mut interval.failed_loads, failure),
        }
    }

    /// Distributes a busy time over the intervals in which it lies.
    fn busy(&mut self, ran: RunSpan, part: impl Fn(&mut Interval) -> &mut Nanos) {
        let (mut from, until) = (ran.start.max(self.span.from), ran.end.min(self.span.until));
        while from < until {
            let Some(at) = self.interval(from) else {
                return;
            };
            let end = self.span.from + (at as u64 + 1) * self.length;
            *part(&mut self.report.intervals[at]) += end.min(until) - from;
            from = end;
        }
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    *counts.entry(key).or_default() += 1;
}
