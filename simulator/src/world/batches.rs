//! Batches on their way: start, end, answers, refusals.

use std::cmp::Reverse;

use rand::Rng;
use sextant_schedule::{BatchId, Delay, DropReason, Nanos, Request, Schedulers};
use sextant_types::index::{DeviceIx, VariantIx};

use super::{Batch, Event, Source, Token, World, report::REASONS};

impl<S: Schedulers> World<'_, S> {
    pub(super) fn on_end(&mut self, at: u32, source: &mut dyn Source) {
        let Some(batch) = self.batches[at as usize].take() else {
            return;
        };
        self.vacant.push(at);
        self.control.on_result(self.now, batch.id);
        let answered = self.now + self.network(|delay| delay.response);
        for request in &batch.requests {
            self.answer(
                request,
                batch.ran.then_some((batch.start, answered)),
                source,
            );
        }
    }

    fn answer(
        &mut self,
        request: &Request<Token>,
        ran: Option<(Nanos, Nanos)>,
        source: &mut dyn Source,
    ) {
        let Token {
            arrived,
            model,
            client,
        } = request.payload;
        match ran {
            Some((_, end)) => source.on_answer(end, model.get(), client),
            None => source.on_drop(self.now, model.get(), client),
        }
        if !self.counts(arrived) {
            return;
        }
        self.open -= 1;
        let tally = &mut self.tallies[model];
        let Some((start, answered)) = ran else {
            tally.failed += 1;
            return self.look_at_misses(model);
        };
        let latency = answered - arrived;
        self.report.latencies.add(latency);
        self.report.waits.add(start.saturating_sub(arrived));
        if self.setting.histograms {
            self.report.models[model.get() as usize]
                .latencies
                .add(latency);
        }
        if answered <= request.deadline {
            tally.good += 1;
            tally.max_latency = tally.max_latency.max(latency);
        } else {
            tally.late += 1;
            self.look_at_misses(model);
        }
    }

    pub(super) fn start(
        &mut self,
        model: VariantIx,
        device: DeviceIx,
        requests: Vec<Request<Token>>,
        (earliest, latest): (Nanos, Nanos),
        id: BatchId,
    ) {
        let kind = self.setting.device(device).kind as usize;
        let Some(Some(latency)) = self.setting.model(model).latency.get(kind) else {
            return;
        };
        let rows: u32 = requests.iter().map(|request| request.rows).sum();
        let profile = latency.of(rows);
        let sent = self.now + self.network(|delay| delay.before_start(rows));
        let free_at = self.devices[device].free_at;
        let start = sent.max(earliest).max(free_at);
        let ran = start <= latest;
        let end = if ran {
            start + self.setting.jitter.apply(profile, &mut self.random)
        } else {
            start
        };
        self.devices[device].free_at = end;
        if ran {
            self.count_busy(start, end);
            if self.counts(start) {
                let at = rows as usize;
                if self.rows.len() <= at {
                    self.rows.resize(at + 1, 0);
                }
                self.rows[at] += 1;
                self.count_usage(kind, rows, end - start);
            }
        }
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = Some(Batch {
            id,
            requests,
            ran,
            start,
        });
        self.order += 1;
        self.events
            .push(Reverse((end, self.order, Event::End { batch: at })));
    }

    fn network(&mut self, part: impl Fn(&Delay) -> Nanos) -> Nanos {
        let spread = part(&self.setting.network.spread);
        let more = if spread == 0 {
            0
        } else {
            self.random.random_range(0..=spread)
        };
        part(&self.setting.network.base) + more
    }

    pub(super) fn on_drop(
        &mut self,
        request: &Request<Token>,
        reason: DropReason,
        source: &mut dyn Source,
    ) {
        let Token {
            arrived,
            model,
            client,
        } = request.payload;
        source.on_drop(self.now, model.get(), client);
        if self.counts(arrived) {
            self.open -= 1;
            let at = REASONS.iter().position(|known| *known == reason);
            self.tallies[model].dropped[at.unwrap_or(0)] += 1;
            self.look_at_misses(model);
        }
    }

    fn count_busy(&mut self, start: Nanos, end: Nanos) {
        let (from, until) = (start.max(self.span.from), end.min(self.span.until));
        self.busy += until.saturating_sub(from);
    }

    fn count_usage(&mut self, kind: usize, rows: u32, took: Nanos) {
        let usage = &mut self.report.kinds[kind];
        let took_s = took as f64 / 1e9;
        usage.rows += u64::from(rows);
        usage.busy_s += took_s;
        usage.cost_usd += took_s / 3600.0 * self.setting.price(kind as u32);
    }

    fn look_at_misses(&mut self, model: VariantIx) {
        if let Some(most) = self.span.most_missed.get(model.get() as usize) {
            let tally = &self.tallies[model];
            let missed = tally.late + tally.failed + tally.dropped.iter().sum::<u64>();
            self.report.stopped |= missed > *most;
        }
    }
}
