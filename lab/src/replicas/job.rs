//! A job: router, queue and replicas.

use std::collections::{BTreeMap, VecDeque};

use super::Nanos;

/// Most requests of a replica, the running one included.
const OUTSTANDING: usize = 4;

/// A request in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) arrived: Nanos,
    pub(super) failed: bool,
    /// Whether it passes the router on the way out.
    pub(super) outward: bool,
}

#[derive(Debug, Default)]
pub(super) struct Replica {
    waiting: VecDeque<Request>,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    router: VecDeque<Request>,
    queue: VecDeque<Request>,
    /// A request that was taken out of the queue and waits until a replica has room.
    held: Option<Request>,
    /// Replicas that run requests or may get some.
    replicas: BTreeMap<u32, Replica>,
    /// Replicas that may get requests, in the order in which they are asked.
    turn: Vec<u32>,
    next: usize,
    /// Replicas that may get requests, in the order of their starts.
    started: Vec<u32>,
    numbers: u32,
}

impl Job {
    /// Number of replicas that take requests.
    pub(super) fn running(&self) -> u32 {
        self.started.len() as u32
    }

    /// Number of requests that were admitted and that no replica runs yet.
    pub(super) fn waiting(&self) -> u32 {
        let behind = |replica: &Replica| replica.waiting.len().saturating_sub(1);
        let behind: usize = self.replicas.values().map(behind).sum();
        (self.queue.len() + usize::from(self.is_held()) + behind) as u32
    }

    /// Brings a request to the router; returns whether it passes at once.
    pub(super) fn route(&mut self, request: Request) -> bool {
        self.router.push_back(request);
        self.router.len() == 1
    }

    /// The first request in the router has passed; returns it, and whether another one follows.
    pub(super) fn routed(&mut self) -> (Option<Request>, bool) {
        let request = self.router.pop_front();
        (request, !self.router.is_empty())
    }

    /// Admits a request to the queue, or returns it if more than `limit` requests wait.
    pub(super) fn admit(&mut self, request: Request, limit: usize) -> Result<(), Request> {
        if self.queue.len() > limit {
            return Err(request);
        }
        self.queue.push_back(request);
        Ok(())
    }

    /// Whether the dispatcher waits for a replica.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Assigns requests to replicas; returns the replicas that have begun to run one.
    pub(super) fn dispatch(&mut self) -> Vec<u32> {
        let mut begun = Vec::new();
        loop {
            let Some(request) = self.held.take().or_else(|| self.queue.pop_front()) else {
                return begun;
            };
            let Some(number) = self.find() else {
                self.held = Some(request);
                return begun;
            };
            let replica = self.replicas.entry(number).or_default();
            replica.waiting.push_back(request);
            if replica.waiting.len() == 1 {
                begun.push(number);
            }
        }
    }

    /// The next replica in turn that has room.
    fn find(&mut self) -> Option<u32> {
        let count = self.turn.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let number = self.turn[at];
            if self.replicas.get(&number)?.waiting.len() < OUTSTANDING {
                self.next = (at + 1) % count;
                return Some(number);
            }
        }
        None
    }

    /// A replica has run its first request; returns it, and whether the replica runs another one.
    pub(super) fn served(&mut self, number: u32) -> (Option<Request>, bool) {
        let Some(replica) = self.replicas.get_mut(&number) else {
            return (None, false);
        };
        let request = replica.waiting.pop_front();
        let runs = !replica.waiting.is_empty();
        if !runs && !self.turn.contains(&number) {
            self.replicas.remove(&number);
        }
        (request, runs)
    }

    /// Adds a replica; `shuffle` orders the turns.
    pub(super) fn join(&mut self, shuffle: impl FnOnce(&mut [u32])) {
        self.numbers += 1;
        self.replicas.insert(self.numbers, Replica::default());
        self.started.push(self.numbers);
        self.reorder(shuffle);
    }

    /// The replica that started last takes no more requests.
    pub(super) fn leave(&mut self, shuffle: impl FnOnce(&mut [u32])) {
        if let Some(number) = self.started.pop()
            && self
                .replicas
                .get(&number)
                .is_some_and(|of| of.waiting.is_empty())
        {
            self.replicas.remove(&number);
        }
        self.reorder(shuffle);
    }

    fn reorder(&mut self, shuffle: impl FnOnce(&mut [u32])) {
        self.turn.clone_from(&self.started);
        shuffle(&mut self.turn);
        self.next = 0;
    }
}
