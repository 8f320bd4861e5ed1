//! The loop of a shard.

use sextant_policies::schedule::{DropReason, Nanos, Request, Rule};

use crate::{
    links::{Grant, Ticket},
    ring::Receiver,
    shard::{ModelShard, Outcome},
    sync::{Arc, mpsc},
    waker::Waker,
};

/// What is handed to a shard from outside.
#[derive(Debug)]
pub enum Message<T> {
    /// A request arrives.
    Request {
        /// Its model, within the shard.
        model: u32,
        /// The request.
        request: Request<T>,
    },
    /// A batch has left its slot.
    Done {
        /// Its model, within the shard.
        model: u32,
        /// Which batch.
        ticket: Ticket,
    },
}

/// The state of a shard's thread.
#[derive(Debug)]
pub struct ShardThread<T, R: Rule> {
    pub(super) shard: ModelShard<T, R>,
    pub(super) grants: Receiver<3>,
    pub(super) inbox: mpsc::Receiver<Message<T>>,
    /// A message that was found when looking whether there is one.
    pub(super) found: Option<Message<T>>,
    pub(super) ranker: Arc<Waker>,
    pub(super) waker: Arc<Waker>,
    pub(super) out: Vec<Outcome<T>>,
}

// === impl ShardThread ===

impl<T, R: Rule> ShardThread<T, R> {
    /// Messages that are taken in before grants and timers are looked at again.
    const BURST: usize = 64;

    /// Does everything that there is to do now, at most a burst of messages; tells whether there
    /// was something. Never waits.
    pub fn step(&mut self, now: Nanos, sink: &mut impl FnMut(Outcome<T>)) -> bool {
        let mut busy = false;
        while let Some(words) = self.grants.receive() {
            busy = true;
            let grant = Grant::from_words(words);
            self.shard.on_grant(now, grant, &mut self.out);
        }
        if self.shard.next_timer().is_some_and(|at| at <= now) {
            busy = true;
            self.shard.on_timer(now, &mut self.out);
        }
        for _ in 0..Self::BURST {
            let found = self.found.take();
            let Some(message) = found.or_else(|| self.inbox.try_recv().ok()) else {
                break;
            };
            busy = true;
            self.on_message(now, message);
        }
        busy |= self.pass_on(sink);
        busy
    }

    /// Takes a message in at once, for those who drive a shard without its inbox. What comes of it
    /// is passed on with the next [`Self::step`].
    pub fn on_message(&mut self, now: Nanos, message: Message<T>) {
        match message {
            Message::Request { model, request } => {
                self.shard.on_request(now, model, request, &mut self.out);
            }
            Message::Done { model, ticket } => self.shard.on_done(model, ticket),
        }
    }

    /// When the next step is worth it if nothing is handed over before.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.shard.next_timer()
    }

    /// Whether something was handed over.
    pub fn has_work(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.inbox.try_recv().ok();
        }
        self.found.is_some() || !self.grants.is_empty()
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.shard.waiting()
    }

    /// Hands back every request, waiting or not yet taken in.
    pub fn close(&mut self, sink: &mut impl FnMut(Outcome<T>)) {
        let found = self.found.take();
        for message in found.into_iter().chain(self.inbox.try_iter()) {
            if let Message::Request { model, request } = message {
                self.out.push(Outcome::Drop {
                    model,
                    request,
                    reason: DropReason::Gone,
                });
            }
        }
        self.shard.clear(&mut self.out);
        self.pass_on(sink);
    }

    fn pass_on(&mut self, sink: &mut impl FnMut(Outcome<T>)) -> bool {
        let flushed = self.shard.flush();
        if self.shard.take_told() {
            self.ranker.wake();
        }
        self.out.drain(..).for_each(sink);
        !flushed
    }
}
