//! The loop of the thread that ranks.

use sextant_policies::schedule::Nanos;

use super::Place;
use crate::{
    board::Reader,
    links::{Grant, Reply},
    ranker::{Placed, Ranker},
    ring::{Receiver, Sender},
    sync::{Arc, mpsc},
    waker::Waker,
};

/// What is handed to the ranker from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// A slot is up, with nothing on it.
    Up(u32),
    /// A slot is gone; what became of its batches is the caller's to decide.
    Down(u32),
}

/// The state of the thread that ranks.
#[derive(Debug)]
pub struct RankThread {
    pub(super) ranker: Ranker,
    pub(super) lanes: Vec<RankLane>,
    /// By the ranker's number of a model.
    pub(super) places: Vec<Place>,
    pub(super) control: mpsc::Receiver<Control>,
    pub(super) found: Option<Control>,
    pub(super) waker: Arc<Waker>,
    pub(super) grants: Vec<Grant>,
    pub(super) operations: u64,
}

#[derive(Debug)]
pub(super) struct RankLane {
    /// The ranker's number of the lane's first model.
    pub(super) first: u32,
    pub(super) reader: Reader,
    pub(super) replied: Receiver<3>,
    pub(super) granted: Sender<3>,
    pub(super) waker: Arc<Waker>,
    pub(super) woken: bool,
}

// === impl RankThread ===

impl RankThread {
    pub(super) fn new(ranker: Ranker, control: mpsc::Receiver<Control>, waker: Arc<Waker>) -> Self {
        Self {
            ranker,
            lanes: Vec::new(),
            places: Vec::new(),
            control,
            found: None,
            waker,
            grants: Vec::new(),
            operations: 0,
        }
    }

    pub(super) fn add(&mut self, mut lane: RankLane, models: u32) {
        let shard = self.lanes.len() as u32;
        lane.first = self.places.len() as u32;
        self.lanes.push(lane);
        let places = (0..models).map(|model| Place { shard, model });
        self.places.extend(places);
    }

    /// Does everything that there is to do now; tells whether there was something. Never waits.
    pub fn step(&mut self, now: Nanos) -> bool {
        let before = self.operations;
        let found = self.found.take();
        for control in found.into_iter().chain(self.control.try_iter()) {
            self.operations += 1;
            match control {
                Control::Up(slot) => self.ranker.on_up(now, slot),
                Control::Down(slot) => self.ranker.on_down(slot),
            }
        }
        for lane in &mut self.lanes {
            while let Some(words) = lane.replied.receive() {
                let (model, ticket, reply) = Reply::from_words(words);
                let latest = match reply {
                    Reply::Done => None,
                    Reply::Used { .. } | Reply::Unused { .. } => lane.reader.latest(model),
                };
                let reply = (lane.first + model, ticket, reply);
                self.ranker.on_reply(now, reply, latest);
                self.operations += 1;
            }
            let (ranker, operations) = (&mut self.ranker, &mut self.operations);
            let first = lane.first;
            lane.reader.drain(|model, candidate| {
                ranker.on_candidate(now, first + model, candidate);
                *operations += 1;
            });
        }
        if self.ranker.next_timer().is_some_and(|at| at <= now) {
            self.operations += 1;
        }
        self.ranker.grant(now, &mut self.grants);
        self.pass_on();
        self.operations > before
    }

    /// When the next step is worth it if nothing is handed over before.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.ranker.next_timer()
    }

    /// Whether something was handed over.
    pub fn has_work(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.control.try_recv().ok();
        }
        let idle = |lane: &RankLane| lane.replied.is_empty() && lane.reader.is_empty();
        self.found.is_some() || !self.lanes.iter().all(idle)
    }

    /// What is known of a slot.
    pub fn placed(&self, slot: u32) -> Placed {
        self.ranker.placed(slot)
    }

    /// Candidates, replies, timers and controls handled so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    fn pass_on(&mut self) {
        for mut grant in self.grants.drain(..) {
            let Place { shard, model } = self.places[grant.model as usize];
            grant.model = model;
            let lane = &mut self.lanes[shard as usize];
            let sent = lane.granted.send(grant.words());
            assert!(sent, "one grant per model at a time, and room for as many");
            lane.woken = true;
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.woken) {
            lane.woken = false;
            lane.waker.wake();
        }
    }
}
