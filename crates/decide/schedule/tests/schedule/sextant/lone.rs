//! One queue with a rule, and nothing else: what a scheduler does with a queue, step by step.

use sextant_schedule::{
    Delay, DropReason, Nanos, NextBatch, QueueSpec, Request, RequestQueue, Rule, Surroundings,
};

/// The requests of one queue, and the batch that would run next.
#[derive(Debug)]
pub struct LoneQueue<T, R: Rule> {
    requests: RequestQueue<T>,
    spec: QueueSpec,
    memory: R::Memory,
    rate_changed: bool,
}

/// A request that is given up.
pub type DroppedRequest<T> = (Request<T>, DropReason);

// === impl LoneQueue ===

impl<T, R: Rule> LoneQueue<T, R> {
    /// Without requests.
    pub fn new(spec: QueueSpec) -> Self {
        Self {
            requests: RequestQueue::default(),
            spec,
            memory: R::Memory::default(),
            rate_changed: true,
        }
    }

    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Takes a request in, or hands it back with the reason when it can't be met.
    ///
    /// # Errors
    /// The request and why it is refused.
    pub fn push(
        &mut self,
        now: Nanos,
        delay: Delay,
        mut request: Request<T>,
    ) -> Result<(), DroppedRequest<T>> {
        let waiting = self.requests.rows();
        if let Some(reason) = self.spec.refusal(now, delay, waiting, &request) {
            return Err((request, reason));
        }
        request.deadline = delay.inward(request.deadline);
        let (at, rate_changed) = self.requests.push(now, request);
        self.rate_changed |= rate_changed;
        if at + 1 < self.requests.len() {
            R::inserted(&mut self.memory, at);
        }
        R::arrived(&mut self.memory);
        Ok(())
    }

    /// Asks the rule for the next batch; what it gives up is handed to `dropped`.
    pub fn form(
        &mut self,
        rule: &mut R,
        around: &Surroundings<'_>,
        mut dropped: impl FnMut(DroppedRequest<T>),
    ) -> Option<NextBatch> {
        if self.requests.is_empty() {
            return None;
        }
        let rate_changed = std::mem::take(&mut self.rate_changed);
        let view = around.view(&self.requests, &self.spec, rate_changed);
        let mut formed = rule.form(&view, &mut self.memory);
        if formed.passed > 0 {
            for request in self.remove(around.delay, formed.passed, false) {
                dropped((request, formed.reason));
            }
            formed.passed = 0;
        }
        (formed.rows > 0).then_some(formed)
    }

    /// Takes the requests of a batch out, earliest deadline first, and tells its rows.
    pub fn take(&mut self, formed: &NextBatch, delay: Delay) -> (Vec<Request<T>>, u32) {
        let (count, rows) = if self.spec.batched {
            self.requests.fit(0, formed.rows)
        } else {
            (1.min(self.requests.len()), self.requests.rows_of(0))
        };
        (self.remove(delay, count, true), rows)
    }

    /// Takes every request out.
    pub fn clear(&mut self, delay: Delay) -> Vec<Request<T>> {
        self.remove(delay, self.requests.len(), false)
    }

    fn remove(&mut self, delay: Delay, count: usize, served: bool) -> Vec<Request<T>> {
        let mut requests = self.requests.take(0, count);
        for request in &mut requests {
            request.deadline = delay.outward(request.deadline);
        }
        R::left(&mut self.memory, 0, requests.len());
        if !served {
            R::lost(&mut self.memory, requests.len());
        }
        requests
    }
}

// ===
