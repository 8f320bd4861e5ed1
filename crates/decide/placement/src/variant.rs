//! A variant's replicas and the requests that wait for it.

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;

use super::{
    DesiredPlacement, Nanos, Presence, VariantSpec,
    kinds::ByKind,
    relocate::{AWAY, Relocation},
    replicas::{Replica, Replicas},
};
use sextant_schedule::NEVER;
use sextant_types::index::{DeviceIx, KindIx};

/// The first pause after a LOAD that failed, in look-aheads. It doubles with each further failure.
const LOOK_AHEADS_AFTER_FAILURE: Nanos = 2;

/// The longest pause after LOADs that failed, ns.
const LONGEST_PAUSE: Nanos = 60_000_000_000;

/// After this many devices have failed to load a variant, one after the other, it is tried nowhere for a pause.
const TRIES_AT_ONCE: u32 = 2;

/// How often the time for which a variant avoids a device can double if it leaves the device repeatedly.
const MOST_DOUBLINGS: u32 = 3;

/// A waiting request that a LOAD could still help.
#[derive(Debug, Clone, Copy)]
struct Hope {
    deadline: Nanos,
    /// The demand that it adds, ns.
    work: Nanos,
}

/// A LOAD that failed. It is not tried again on that device before `until`.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    device: DeviceIx,
    until: Nanos,
    /// The number of failures in a row.
    failures: u32,
}

/// A device from which the variant was withdrawn.
#[derive(Debug, Clone, Copy)]
struct Withdrawal {
    device: DeviceIx,
    /// The variant is not tried there before this, even if requests need it.
    asked_at: Nanos,
    /// The variant is not tried there before this if no request needs it.
    until: Nanos,
    /// How often the time has doubled.
    doublings: u32,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub spec: VariantSpec,
    /// Whether requests no longer come. The variant is unloaded as soon as it runs nothing.
    pub retired: bool,
    /// How it is kept loaded, whether or not there are requests.
    pub desired: Option<DesiredPlacement>,
    pub replicas: Replicas,
    pub relocations: SmallVec<[Relocation; 1]>,
    /// Requests that wait, hopeful or not.
    pub waiting: u32,
    /// It is not offered to devices before this while it has replicas.
    pub offer_again_at: Nanos,
    /// Time of a LOAD on the fastest device, ns.
    pub least_load: Nanos,
    pub kinds: ByKind,
    /// Devices that have had it since they came up, so that what its first LOAD prepared is there.
    known_on: BTreeSet<DeviceIx>,
    /// The number of LOADs that failed since the last success. `rests_until` is the time before which none is tried
    /// anywhere.
    failures: u32,
    rests_until: Nanos,
    refusals: SmallVec<[Refusal; 1]>,
    /// Usually empty.
    withdrawals: Vec<Withdrawal>,
    /// In order of deadline.
    hopes: VecDeque<Hope>,
    hoped_work: Nanos,
}

// === impl Variant ===

impl Variant {
    pub fn new(spec: VariantSpec) -> Self {
        Self {
            spec,
            retired: false,
            desired: None,
            replicas: Replicas::default(),
            relocations: SmallVec::new(),
            waiting: 0,
            offer_again_at: 0,
            least_load: spec.load,
            kinds: ByKind::default(),
            known_on: BTreeSet::new(),
            failures: 0,
            rests_until: 0,
            refusals: SmallVec::new(),
            withdrawals: Vec::new(),
            hopes: VecDeque::new(),
            hoped_work: 0,
        }
    }

    /// Whether a replica may be unloaded.
    pub fn is_evictable(&self, replica: &Replica) -> bool {
        let pinned = self.desired.is_some_and(|desired| desired.pinned);
        replica.presence == Presence::Loaded
            && replica.running == 0
            && !pinned
            && (self.waiting == 0 || self.replicas.loaded() > 1)
    }

    /// Whether more replicas are desired than there are, on `devices` devices.
    pub fn lacks_desired(&self, devices: usize) -> bool {
        let desired = self.desired.map_or(0, |desired| desired.devices);
        self.replicas.staying() < (desired as usize).min(devices)
    }

    /// Time of a LOAD on a device of a kind, ns.
    pub fn load_on(&self, device: DeviceIx, kind: KindIx) -> Nanos {
        match self.is_first_on(device) {
            true => self.load_again(kind).max(self.spec.first_load),
            false => self.load_again(kind),
        }
    }

    /// The time of a LOAD where the variant was before.
    fn load_again(&self, kind: KindIx) -> Nanos {
        match self.kinds.load(kind) {
            0 => self.spec.load,
            load => load,
        }
    }

    /// Time of the next LOAD by its specification, ns. It is the time of a first LOAD if no device that is up has had
    /// it.
    pub fn next_load(&self) -> Nanos {
        match self.known_on.is_empty() {
            true => self.spec.load.max(self.spec.first_load),
            false => self.spec.load,
        }
    }

    /// Whether a LOAD on a device would be a first one, unlike later ones.
    pub fn is_first_on(&self, device: DeviceIx) -> bool {
        self.spec.first_load > 0 && !self.known_on.contains(&device)
    }

    /// Sets the time of the fastest kind of device that is up and can run it. It is the time of a first LOAD if no
    /// device has had it.
    pub fn compare_loads(&mut self, kinds: impl Iterator<Item = KindIx>) {
        let able = kinds.filter(|kind| self.kinds.is_able(*kind));
        let least = able.map(|kind| self.load_again(kind)).min();
        let least = least.unwrap_or(self.spec.load);
        self.least_load = match self.known_on.is_empty() {
            true => least.max(self.spec.first_load),
            false => least,
        };
    }

    /// Notes that a device has it, or has just come up and has never had it.
    pub fn set_known(&mut self, device: DeviceIx, known: bool) {
        match known {
            true => self.known_on.insert(device),
            false => self.known_on.remove(&device),
        };
    }

    /// A LOAD on a device has failed. It is tried elsewhere, and on the device again after a pause.
    pub fn refuse(&mut self, now: Nanos, device: DeviceIx, look_ahead: Nanos) {
        self.refuse_on(now, device, look_ahead);
        self.failures += 1;
        if self.failures > TRIES_AT_ONCE {
            self.rests_until = pause(now, look_ahead, self.failures - TRIES_AT_ONCE);
        }
    }

    /// A device takes no work for it. It is not tried there for a pause.
    pub fn refuse_on(&mut self, now: Nanos, device: DeviceIx, look_ahead: Nanos) {
        let before = self.refusals.iter().find(|of| of.device == device);
        let failures = before.map_or(0, |of| of.failures) + 1;
        self.refusals.retain(|of| of.device != device);
        self.refusals.push(Refusal {
            device,
            until: pause(now, look_ahead, failures),
            failures,
        });
    }

    /// It is not tried on a device before `until`, although nothing has failed there.
    pub fn avoid(&mut self, device: DeviceIx, until: Nanos) {
        self.refusals.retain(|of| of.device != device);
        self.refusals.push(Refusal {
            device,
            until,
            failures: 0,
        });
    }

    /// It leaves a device that something else slows down. If it has come back since the last time, it stays away for
    /// twice as long as before: nothing runs there in the meantime, so nothing else shows whether the slow-down is
    /// over. A withdrawal is forgotten when the longest such time has passed since its end.
    pub fn withdraw(&mut self, now: Nanos, device: DeviceIx) {
        let longest = AWAY << MOST_DOUBLINGS;
        self.withdrawals
            .retain(|of| of.until.saturating_add(longest) > now);
        let before = self.withdrawals.iter().find(|of| of.device == device);
        let doublings = before.map_or(0, |of| (of.doublings + 1).min(MOST_DOUBLINGS));
        self.withdrawals.retain(|of| of.device != device);
        self.withdrawals.push(Withdrawal {
            device,
            asked_at: now.saturating_add(AWAY),
            until: now.saturating_add(AWAY << doublings),
            doublings,
        });
    }

    /// When the first of the devices that it avoids now may be tried again; `None` if there is none.
    pub fn next_try(&self, now: Nanos) -> Option<Nanos> {
        let refused = self.refusals.iter().map(|of| of.until);
        let withdrawn = self.withdrawals.iter().map(|of| of.until);
        let all = refused.chain(withdrawn);
        let all = all.map(|until| until.max(self.rests_until));
        all.filter(|until| *until > now).min()
    }

    /// The device was replaced by another.
    pub fn renew(&mut self, device: DeviceIx) {
        self.forgive(device);
        self.withdrawals.retain(|of| of.device != device);
    }

    /// A LOAD has succeeded on a device.
    pub fn forgive(&mut self, device: DeviceIx) {
        self.failures = 0;
        self.rests_until = 0;
        self.refusals.retain(|of| of.device != device);
    }

    /// Whether a device must not load it unless a request needs that.
    pub fn is_refused(&self, now: Nanos, device: DeviceIx) -> bool {
        self.has_failed(now, device) || self.is_away(device, |of| of.until > now)
    }

    /// The same if requests need more replicas than there are: a slow answer is better than none.
    pub fn is_refused_to_requests(&self, now: Nanos, device: DeviceIx) -> bool {
        self.has_failed(now, device) || self.is_away(device, |of| of.asked_at > now)
    }

    fn has_failed(&self, now: Nanos, device: DeviceIx) -> bool {
        let still = |of: &Refusal| of.device == device && of.until > now;
        self.rests_until > now || self.refusals.iter().any(still)
    }

    /// Whether it was withdrawn from a device and has a replica elsewhere.
    fn is_away(&self, device: DeviceIx, still: impl Fn(&Withdrawal) -> bool) -> bool {
        let mut withdrawals = self.withdrawals.iter();
        self.replicas.staying() > 0 && withdrawals.any(|of| of.device == device && still(of))
    }

    /// The devices that refuse it now.
    pub fn refusals(&self, now: Nanos) -> impl Iterator<Item = DeviceIx> + '_ {
        let still = self.refusals.iter().filter(move |of| of.until > now);
        still.map(|of| of.device)
    }

    /// Whether no device is asked to load it now.
    pub fn rests(&self, now: Nanos) -> bool {
        self.rests_until > now
    }

    /// The last moment at which a LOAD that takes `load` helps a request, with `margin` to spare.
    #[inline]
    fn hopeful_until(&self, deadline: Nanos, load: Nanos, margin: Nanos) -> Option<Nanos> {
        match deadline {
            NEVER => Some(NEVER),
            _ => deadline.checked_sub((self.spec.run.saturating_add(load)).saturating_add(margin)),
        }
    }

    /// Counts a request that a LOAD could help.
    #[inline]
    pub fn hope(&mut self, now: Nanos, deadline: Nanos, counted: DemandModel) {
        let until = self.hopeful_until(deadline, self.least_load, counted.margin);
        let Some(until) = until.filter(|until| *until >= now) else {
            return;
        };
        let window = match until {
            NEVER => counted.capacity,
            _ => (until - now).max(counted.least_window),
        };
        // The share of a device for which the request asks in the time that is left to it.
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

    /// Removes the hopes that no LOAD can help any longer.
    #[inline]
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

    /// When the first hope ends; `None` if no hope can end.
    pub fn next_expiry(&self, margin: Nanos) -> Option<Nanos> {
        let first = self.hopes.front()?;
        match self.hopeful_until(first.deadline, self.least_load, margin) {
            Some(NEVER) => None,
            until => Some(until.map_or(0, |until| until + 1)),
        }
    }

    /// The number of requests that a LOAD could still help.
    pub fn hopeful(&self) -> usize {
        self.hopes.len()
    }

    /// The demand of these requests, ns.
    pub fn hoped_work(&self) -> Nanos {
        self.hoped_work
    }

    /// The number of these requests that are still in time if a batch can start at `ready`.
    pub fn saved_by(&self, ready: Nanos) -> usize {
        let end = ready.saturating_add(self.spec.run);
        self.hopes.len() - self.hopes.partition_point(|hope| hope.deadline < end)
    }

    /// The first and the last deadline of the hopeful requests; `None` if there are none.
    pub fn deadlines(&self) -> Option<(Nanos, Nanos)> {
        Some((self.hopes.front()?.deadline, self.hopes.back()?.deadline))
    }
}

/// The time before which nothing is tried after this many failures in a row.
fn pause(now: Nanos, look_ahead: Nanos, failures: u32) -> Nanos {
    let first = LOOK_AHEADS_AFTER_FAILURE * look_ahead.max(1);
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(40));
    now.saturating_add(doubled.min(LONGEST_PAUSE))
}

/// How requests are counted as demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemandModel {
    pub run: Nanos,
    pub capacity: Nanos,
    pub margin: Nanos,
    /// Requests with less time than this count as if they had this much, ns.
    pub least_window: Nanos,
}
