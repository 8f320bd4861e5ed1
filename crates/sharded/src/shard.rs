//! The models of one thread: their requests, and the candidates that their rule forms.
//!
//! Pure but for the ends of its lane, which never wait. The order of what is written matters: a
//! model's candidate is published before the reply to its grant, so that the ranker never ranks a
//! candidate whose requests have been sent.

use std::collections::VecDeque;

use sextant_policies::schedule::{
    Cause, Delay, DropReason, Fleet, Formed, IndexedHeap, LocalQueue, NEVER, Nanos, Pool,
    QueueSpec, Request, Rule, Surroundings, WorkerSpec,
};

use crate::{
    board::{Candidate, Writer},
    links::{Grant, Reply, Ticket},
    ring::Sender,
};

/// What a shard has to know beside its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSettings {
    /// Delays to make room for.
    pub delay: Delay,
    /// Slots of the pool.
    pub slots: u32,
}

/// A batch to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<T> {
    /// Its model, within the shard.
    pub model: u32,
    /// Its requests, earliest deadline first.
    pub requests: Vec<Request<T>>,
    /// Not to be started before this.
    pub earliest: Nanos,
    /// Not to be started after this.
    pub latest: Nanos,
    /// Expected run time, ns.
    pub expected: Nanos,
    /// On which slot; to be handed to [`ModelShard::on_done`] when it has left it.
    pub ticket: Ticket,
}

/// What the caller has to do. Every request leaves in exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Run a batch.
    Run(Batch<T>),
    /// Answer with a refusal.
    Drop {
        /// The model, within the shard.
        model: u32,
        /// The request.
        request: Request<T>,
        /// Why.
        reason: DropReason,
    },
}

/// The models of one thread.
#[derive(Debug)]
pub struct ModelShard<T, R: Rule> {
    rule: R,
    settings: ShardSettings,
    /// All devices, idle: whether they are is for the ranker to know.
    fleet: Fleet,
    models: Vec<LocalQueue<T, R>>,
    published: Vec<Candidate>,
    /// Models by the time at which their candidate has to be formed anew.
    events: IndexedHeap,
    writer: Writer,
    replies: Sender<3>,
    /// Replies that found no room.
    unsent: VecDeque<[u64; 3]>,
    /// Whether something was handed to the ranker since the last [`ModelShard::take_told`].
    told: bool,
}

// === impl ModelShard ===

impl<T, R: Rule> ModelShard<T, R> {
    /// With the shard's ends of its lane, which has to be for as many models.
    pub fn new(
        rule: R,
        settings: ShardSettings,
        models: Vec<QueueSpec>,
        (writer, replies): (Writer, Sender<3>),
    ) -> Self {
        let mut fleet = Fleet::default();
        let spec = WorkerSpec { pool: 0, slots: 1 };
        for worker in 0..settings.slots {
            fleet.up(worker, spec);
        }
        // Without a device there is still a pool.
        fleet.pool_mut(0);
        Self {
            rule,
            settings,
            fleet,
            published: vec![Candidate::NONE; models.len()],
            models: models.into_iter().map(LocalQueue::new).collect(),
            events: IndexedHeap::default(),
            writer,
            replies,
            unsent: VecDeque::new(),
            told: false,
        }
    }

    /// A request arrives.
    pub fn on_request(
        &mut self,
        now: Nanos,
        model: u32,
        request: Request<T>,
        out: &mut Vec<Outcome<T>>,
    ) {
        let Some(of) = self.models.get_mut(model as usize) else {
            let reason = DropReason::Gone;
            return out.push(Outcome::Drop {
                model,
                request,
                reason,
            });
        };
        match of.push(now, self.settings.delay, request) {
            Ok(()) => self.refresh(now, model, Cause::Queue, out),
            Err((request, reason)) => out.push(Outcome::Drop {
                model,
                request,
                reason,
            }),
        }
    }

    /// A model of this shard may use a slot: a batch is sent, or the slot is given back at once.
    pub fn on_grant(&mut self, now: Nanos, grant: Grant, out: &mut Vec<Outcome<T>>) {
        let Grant { model, ticket, .. } = grant;
        let formed = self.form(now, model, Cause::Device, grant.free_at, out);
        let again = formed.map_or(NEVER, |formed| formed.ready_at);
        let ready = formed.filter(|formed| formed.ready_at <= now);
        let until = ready.and_then(|formed| self.send(now, &formed, grant, out));
        self.refresh(now, model, Cause::Queue, out);
        let reply = until.map_or(Reply::Unused { again }, |until| Reply::Used { until });
        self.reply(model, ticket, reply);
    }

    /// A batch has left its slot, whatever became of it.
    pub fn on_done(&mut self, model: u32, ticket: Ticket) {
        self.reply(model, ticket, Reply::Done);
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Nanos, out: &mut Vec<Outcome<T>>) {
        while let Some((at, model)) = self.events.first()
            && at <= now
        {
            self.refresh(now, model, Cause::Timer, out);
        }
    }

    /// When [`Self::on_timer`] is next worth calling.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.events.first().map(|(at, _)| at)
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.models.iter().map(LocalQueue::len).sum()
    }

    /// Hands back everything that waits.
    pub fn clear(&mut self, out: &mut Vec<Outcome<T>>) {
        for model in 0..self.models.len() as u32 {
            let requests = self.models[model as usize].clear(self.settings.delay);
            out.extend(requests.into_iter().map(|request| Outcome::Drop {
                model,
                request,
                reason: DropReason::Gone,
            }));
            self.events.remove(model);
            self.publish(model, Candidate::NONE);
        }
    }

    /// Puts replies into the lane that found no room before; tells whether all are in.
    pub fn flush(&mut self) -> bool {
        while let Some(reply) = self.unsent.front() {
            if !self.replies.send(*reply) {
                return false;
            }
            self.unsent.pop_front();
            self.told = true;
        }
        true
    }

    /// Whether the ranker was told something since the last call.
    pub fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.told)
    }

    fn form(
        &mut self,
        now: Nanos,
        model: u32,
        cause: Cause,
        free_at: Nanos,
        out: &mut Vec<Outcome<T>>,
    ) -> Option<Formed> {
        let around = Surroundings {
            now,
            cause,
            free_at,
            pool: pool(&self.fleet),
            delay: self.settings.delay,
        };
        let of = self.models.get_mut(model as usize)?;
        of.form(&mut self.rule, &around, |(request, reason)| {
            out.push(Outcome::Drop {
                model,
                request,
                reason,
            });
        })
    }

    /// Forms a candidate anew, publishes it if it has changed, and sets its timer.
    fn refresh(&mut self, now: Nanos, model: u32, cause: Cause, out: &mut Vec<Outcome<T>>) {
        let Some(formed) = self.form(now, model, cause, 0, out) else {
            self.events.remove(model);
            if (model as usize) < self.models.len() {
                self.publish(model, Candidate::NONE);
            }
            return;
        };
        let is_ready = formed.ready_at <= now;
        // When it becomes ready is for the ranker to notice.
        self.events.set(model, formed.until.max(now + 1));
        let candidate = Candidate {
            ready_at: if is_ready { 0 } else { formed.ready_at },
            key: self.models[model as usize].key(&formed),
        };
        self.publish(model, candidate);
    }

    fn publish(&mut self, model: u32, candidate: Candidate) {
        let published = &mut self.published[model as usize];
        if *published != candidate {
            *published = candidate;
            self.writer.publish(model, candidate);
            self.told = true;
        }
    }

    /// Sends the batch; tells when it should end.
    fn send(
        &mut self,
        now: Nanos,
        formed: &Formed,
        grant: Grant,
        out: &mut Vec<Outcome<T>>,
    ) -> Option<Nanos> {
        let delay = self.settings.delay;
        let of = self.models.get_mut(grant.model as usize)?;
        let (requests, rows) = of.take(formed, delay);
        if requests.is_empty() {
            return None;
        }
        let expected = of.spec().latency.of(rows);
        let earliest = now
            .saturating_add(delay.before_start(rows))
            .max(grant.free_at);
        out.push(Outcome::Run(Batch {
            model: grant.model,
            requests,
            earliest,
            latest: formed.latest.max(earliest),
            expected,
            ticket: grant.ticket,
        }));
        Some(earliest.saturating_add(expected).min(NEVER - 1))
    }

    fn reply(&mut self, model: u32, ticket: Ticket, reply: Reply) {
        self.unsent.push_back(reply.words(model, ticket));
        self.flush();
    }
}

fn pool(fleet: &Fleet) -> &Pool {
    fleet.pool(0).expect("made with the shard")
}
