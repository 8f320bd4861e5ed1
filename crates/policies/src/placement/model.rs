//! A model's replicas and the requests that wait for it.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{ModelSpec, Nanos, Presence};
use crate::schedule::NEVER;

/// A waiting request that a LOAD could still help.
#[derive(Debug, Clone, Copy)]
struct Hope {
    deadline: Nanos,
    /// What it adds to the demand, ns.
    work: Nanos,
}

/// A model on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica {
    pub device: u32,
    pub presence: Presence,
    /// Batches under way.
    pub running: u32,
    /// When a batch was last sent, or else the LOAD was issued.
    pub used: Nanos,
}

/// A LOAD that failed: not tried again on that device before `until`.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    device: u32,
    until: Nanos,
}

#[derive(Debug)]
pub(super) struct Model {
    pub spec: ModelSpec,
    pub replicas: SmallVec<[Replica; 2]>,
    /// Requests that wait, hopeful or not.
    pub waiting: u32,
    /// Not offered to devices before this while it has replicas.
    pub offer_again_at: Nanos,
    /// Of a LOAD on the fastest device.
    pub least_load: Nanos,
    /// By device; 0 where nothing but the spec is known.
    loads: Vec<Nanos>,
    refusals: SmallVec<[Refusal; 1]>,
    /// In order of deadline.
    hopes: VecDeque<Hope>,
    hoped_work: Nanos,
}

// === impl Model ===

impl Model {
    pub fn new(spec: ModelSpec) -> Self {
        Self {
            spec,
            replicas: SmallVec::new(),
            waiting: 0,
            offer_again_at: 0,
            least_load: spec.load,
            loads: Vec::new(),
            refusals: SmallVec::new(),
            hopes: VecDeque::new(),
            hoped_work: 0,
        }
    }

    pub fn replica(&self, device: u32) -> Option<&Replica> {
        self.replicas
            .iter()
            .find(|replica| replica.device == device)
    }

    pub fn replica_mut(&mut self, device: u32) -> Option<&mut Replica> {
        self.replicas
            .iter_mut()
            .find(|replica| replica.device == device)
    }

    pub fn loaded(&self) -> usize {
        let is_loaded = |replica: &&Replica| replica.presence == Presence::Loaded;
        self.replicas.iter().filter(is_loaded).count()
    }

    /// Whether a replica may be unloaded.
    pub fn is_evictable(&self, replica: &Replica) -> bool {
        replica.presence == Presence::Loaded
            && replica.running == 0
            && !self.spec.pinned
            && (self.waiting == 0 || self.loaded() > 1)
    }

    /// Time of a LOAD on a device, ns.
    pub fn load_on(&self, device: u32) -> Nanos {
        match self.loads.get(device as usize) {
            None | Some(0) => self.spec.load,
            Some(load) => *load,
        }
    }

    pub fn estimate(&mut self, device: u32, load: Nanos) {
        if self.loads.len() <= device as usize {
            self.loads.resize(device as usize + 1, 0);
        }
        self.loads[device as usize] = load;
    }

    /// Takes the fastest of the devices that are up.
    pub fn compare_loads(&mut self, devices: impl Iterator<Item = u32>) {
        let least = devices.map(|device| self.load_on(device)).min();
        self.least_load = least.unwrap_or(self.spec.load);
    }

    /// Whether it cannot run on a device at all.
    pub fn is_barred(&self, device: u32) -> bool {
        self.load_on(device) == NEVER
    }

    /// Not to be loaded on a device for a while.
    pub fn refuse(&mut self, device: u32, until: Nanos) {
        self.refusals.retain(|refusal| refusal.device != device);
        self.refusals.push(Refusal { device, until });
    }

    pub fn is_refused(&self, now: Nanos, device: u32) -> bool {
        let still = |refusal: &Refusal| refusal.device == device && refusal.until > now;
        self.refusals.iter().any(still)
    }

    /// The last moment at which a LOAD that takes `load` helps a request, with `margin` to spare.
    fn hopeful_until(&self, deadline: Nanos, load: Nanos, margin: Nanos) -> Option<Nanos> {
        match deadline {
            NEVER => Some(NEVER),
            _ => deadline.checked_sub((self.spec.run.saturating_add(load)).saturating_add(margin)),
        }
    }

    /// Counts a request that a LOAD could help.
    pub fn hope(&mut self, now: Nanos, deadline: Nanos, counted: Counted) {
        let until = self.hopeful_until(deadline, self.least_load, counted.margin);
        let Some(until) = until.filter(|until| *until >= now) else {
            return;
        };
        let window = match until {
            NEVER => counted.capacity,
            _ => (until - now).max(counted.least_window),
        };
        // How much of a device the request asks for in the time that is left to it.
        let share = counted.capacity as f64 / window as f64;
        let work = ((counted.run as f64 * share) as Nanos).max(1);
        let hope = Hope { deadline, work };
        self.hoped_work += work;
        let in_order = self.hopes.back().is_none_or(|l| l.deadline <= deadline);
        if in_order {
            self.hopes.push_back(hope);
        } else {
            let at = self.hopes.partition_point(|h| h.deadline <= deadline);
            self.hopes.insert(at, hope);
        }
    }

    /// A request with this deadline has left.
    pub fn leave(&mut self, deadline: Nanos) {
        self.waiting = self.waiting.saturating_sub(1);
        let first = self.hopes.front().map(|hope| hope.deadline);
        let at = match first {
            Some(first) if first == deadline => 0,
            Some(first) if first < deadline => {
                self.hopes.partition_point(|hope| hope.deadline < deadline)
            }
            _ => return,
        };
        if self.hopes.get(at).is_some_and(|h| h.deadline == deadline)
            && let Some(hope) = self.hopes.remove(at)
        {
            self.hoped_work -= hope.work;
        }
    }

    /// Gives up the hopes that no LOAD can help any more.
    pub fn expire(&mut self, now: Nanos, margin: Nanos) {
        while let Some(hope) = self.hopes.front()
            && self
                .hopeful_until(hope.deadline, self.least_load, margin)
                .is_none_or(|until| until < now)
        {
            self.hoped_work -= hope.work;
            self.hopes.pop_front();
        }
    }

    /// When the first hope is given up; `None` when there is none that can be.
    pub fn next_expiry(&self, margin: Nanos) -> Option<Nanos> {
        let first = self.hopes.front()?;
        match self.hopeful_until(first.deadline, self.least_load, margin) {
            Some(NEVER) => None,
            until => Some(until.map_or(0, |until| until + 1)),
        }
    }

    /// Requests that a LOAD could still help.
    pub fn hopeful(&self) -> usize {
        self.hopes.len()
    }

    /// Their demand, ns.
    pub fn hoped_work(&self) -> Nanos {
        self.hoped_work
    }

    /// How many of them are still in time when a batch can start at `ready`.
    pub fn saved_by(&self, ready: Nanos) -> usize {
        let end = ready.saturating_add(self.spec.run);
        self.hopes.len() - self.hopes.partition_point(|hope| hope.deadline < end)
    }

    /// The first and the last deadline of the hopeful; `None` when there is none.
    pub fn deadlines(&self) -> Option<(Nanos, Nanos)> {
        Some((self.hopes.front()?.deadline, self.hopes.back()?.deadline))
    }
}

/// How requests are counted as demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub run: Nanos,
    pub capacity: Nanos,
    pub margin: Nanos,
    /// Requests with less time than this count as if they had it, ns.
    pub least_window: Nanos,
}
