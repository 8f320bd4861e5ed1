//! Our placement: it uses LOAD time and pages where they save most requests.
//!
//! **What is loaded.** If there is demand for many cold variants, LOAD time is what runs out: one device loads a
//! hundred variants a second. A LOAD is therefore worth the requests that it saves per unit of its time on that device:
//! those of the variant's waiting requests that are still in time when it ends, and of them only the share that the
//! devices with the variant leave unfulfilled ([`super::Demand`]). A variant that is loaded nowhere counts with all its
//! requests; a variant whose devices keep up counts with none. Clockwork's priority counts device time instead, so it
//! puts a slow variant before three fast ones. Among the first desired variants the device compares those that it can
//! help. Of equal ones, the one whose requests expire first goes first. A further replica is worth only as much as the
//! device has capacity to spare. If every device is crowded, a further replica would move requests without saving any,
//! and would drive other variants out. A request stops being hopeful a margin earlier than the arithmetic says, because
//! the device may run a batch when the LOAD ends, and a LOAD that comes just too late costs as much as one in time.
//! Demand counts the run time of a batch of one, as in the paper. With the time per request in a large batch, a full
//! device with many variants, whose batches stay small, would appear idle.
//!
//! **What is unloaded.** Pages are worth keeping if loading them again would cost much and soon: `load time x expected
//! rate / pages`, which is the LOAD time per page that the replica saves. The rate is that of *episodes*: requests
//! within a second count once, because all of them together find an unloaded variant missing once. A burst of five says
//! nothing about the next one. Episodes are forgotten exponentially. All variants forget at the same pace, so the order
//! of two variants changes only when there is a request for one of them, and the logarithm of the sum at a fixed moment
//! is a key that does not change with time. Among variants that were requested once this is LRU. A variant in steady
//! use outlives any number of others that were used once after it, which is where LRU fails. A variant whose first LOAD
//! is still to come is worth that LOAD: until then it is late for every request, and a variant that is unloaded for it
//! comes back by an ordinary LOAD. A further replica counts with all requests that the others cannot take. These are
//! not delayed but lost while it is away.
//!
//! A variant that is desired to be loaded counts as requested once, one memory time ago. It is unloaded after variants
//! for which there was no request since, and before variants in use.
//!
//! **What is expected.** A variant with a period ([`super::BurstPeriod`]) is worth little from the ebb of a burst on,
//! and much when the next one is due. It is loaded ahead only on a device that has nothing else to load, and only into
//! free pages or in exchange for variants that are worth less than one burst in the time in which it is expected. A
//! wrong guess costs idle LOAD time.

use super::{
    BurstPeriod, Nanos, Options,
    rule::{Foresight, LoadSite, Rule, View},
    variant::Variant,
};
use sextant_schedule::{IndexedHeap, RateMeter};
use sextant_types::index::{IndexVec, VariantIx};

/// How long before a burst its variant is loaded, ns: the time of some LOADs, because others may come first.
const LEAD: Nanos = 250_000_000;

/// The number of desired variants that are compared for a device.
const BREADTH: usize = 8;

/// The worth of a variant with a period while its next burst is not due, relative to the worth by its rate.
const BETWEEN_BURSTS: f64 = 0.01;

/// A burst has ended when no request came for this long, ns.
const EBB: Nanos = 5_000_000_000;

/// Requests that follow each other faster than this count as one, ns, because all of them together find the variant
/// missing once.
const EPISODE: Nanos = 1_000_000_000;

/// The worth of a replica that the others can replace, relative to the worth of one that is needed.
const SPARE: f64 = 0.01;

/// The share of a device that a variant can be expected to use well.
const USABLE_SHARE: f64 = 0.7;

/// The memory of a variant's requests.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// Logarithm of the sum of `exp(arrival / memory)` over its episodes. It does not change between requests.
    log_sum: Option<f64>,
    /// When the last episode was counted.
    counted: Nanos,
    requests: RateMeter,
    bursts: BurstPeriod,
}

/// The rule of `sextant`.
#[derive(Debug)]
pub(super) struct Sextant {
    margin: Nanos,
    memory: f64,
    prefetch: bool,
    variants: IndexVec<VariantIx, Option<Box<Memory>>>,
    /// By variant: when it should be loaded ahead of its next burst.
    due: IndexedHeap<VariantIx>,
}

impl Sextant {
    pub fn new(options: &Options) -> Self {
        Self {
            margin: options.margin,
            memory: options.memory.max(1) as f64,
            prefetch: options.prefetch,
            variants: IndexVec::default(),
            due: IndexedHeap::default(),
        }
    }

    /// Logarithm of the remembered episodes, comparable between variants at any time.
    fn log_episodes(&self, now: Nanos, variant: VariantIx) -> f64 {
        let at = now as f64 / self.memory;
        let memory = self.variants.known(variant);
        let memory = memory.map(|memory| **memory).unwrap_or_default();
        // A variant that was never requested is worth less than one that was requested long ago.
        let log_sum = memory.log_sum.unwrap_or(at - 10.0);
        let Some(expected) = memory.bursts.expected().filter(|_| self.prefetch) else {
            return log_sum;
        };
        let last = memory.bursts.last_request().unwrap_or(0);
        if now > expected.until || now < last + EBB {
            return log_sum;
        }
        if now < expected.from.saturating_sub(LEAD) {
            return log_sum + BETWEEN_BURSTS.ln();
        }
        // One burst in the time in which it is expected.
        let window = (expected.until - expected.from).max(1) as f64;
        let soon = at + (self.memory / window).ln().max(0.0);
        log_sum.max(soon)
    }

    /// Logarithm of the number of requests in the memory time that `others` replicas cannot take, comparable with
    /// [`Self::log_episodes`].
    fn log_overflow(&self, now: Nanos, variant: VariantIx, of: &Variant, others: f64) -> f64 {
        let memory = self.variants.known(variant);
        let rate = memory.map_or(0.0, |memory| memory.requests.per_nano());
        let needed = rate * of.spec.run as f64 / USABLE_SHARE;
        let share = (needed - others) / needed.max(f64::MIN_POSITIVE);
        let requests = rate * self.memory * share.clamp(SPARE, 1.0);
        now as f64 / self.memory + requests.max(SPARE).ln()
    }
}

impl Rule for Sextant {
    fn margin(&self) -> Nanos {
        self.margin
    }

    fn requested(&mut self, now: Nanos, variant: VariantIx, _: &Variant) {
        let moment = now as f64 / self.memory;
        let memory = self.variants.grown(variant).get_or_insert_default();
        let log_sum = match memory.log_sum {
            None => moment,
            Some(sum) if now < memory.counted.saturating_add(EPISODE) => sum,
            // ln(exp(a) + exp(b)) without computing either exponential.
            Some(sum) => sum.max(moment) + (-(sum - moment).abs()).exp().ln_1p(),
        };
        if memory.log_sum.replace(log_sum) != Some(log_sum) {
            memory.counted = now;
        }
        memory.requests.add(now, 1);
        if memory.bursts.add(now) && self.prefetch {
            match memory.bursts.expected() {
                Some(_) => self.due.set(variant, now + EBB),
                None => drop(self.due.remove(variant)),
            }
        }
    }

    fn want(&self, view: &View<'_>) -> Option<u64> {
        let of = view.of;
        // A further replica helps if some device has capacity to spare.
        let alone = of.replicas.is_empty();
        if !alone && !view.spare {
            return None;
        }
        let work = of.hoped_work().max(1) as f64;
        let unfulfilled = of.hopeful() as f64 * (view.priority / work).min(1.0);
        let gain = unfulfilled / of.least_load.max(1) as f64;
        // Gains that differ by about one in a hundred count as equal. The most urgent variant then goes first.
        let coarse = (!gain.max(0.0).to_bits()) >> 45;
        let urgent = of.deadlines().map_or(0, |(first, _)| first >> 15);
        Some(coarse << 45 | urgent.min((1 << 45) - 1))
    }

    fn breadth(&self) -> usize {
        BREADTH
    }

    fn gain(&self, view: &View<'_>, there: &LoadSite) -> f64 {
        let work = view.of.hoped_work().max(1) as f64;
        let unfulfilled = (view.priority / work).min(1.0);
        let ready = there.ready.saturating_add(self.margin);
        let saved = view.of.saved_by(ready) as f64 * unfulfilled;
        let able = if view.of.replicas.is_empty() {
            1.0 / there.crowding.max(1.0)
        } else {
            1.0 - there.crowding
        };
        saved * able / there.load.max(1) as f64
    }

    fn worth(&self, now: Nanos, variant: VariantIx, of: &Variant, _: Nanos) -> u64 {
        let per_page = of.next_load().max(1) as f64 / f64::from(of.spec.pages.max(1));
        let copies = of.replicas.loaded();
        let missed = if copies > 1 {
            self.log_overflow(now, variant, of, (copies - 1) as f64)
        } else {
            self.log_episodes(now, variant)
        };
        let missed = match of.desired {
            Some(_) => missed.max(now as f64 / self.memory - 1.0),
            None => missed,
        };
        let worth = missed + per_page.ln();
        ordered(worth)
    }

    fn compares_victims(&self) -> bool {
        true
    }

    fn next_foreseen(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| at)
    }

    fn take_foreseen(&mut self, now: Nanos) -> Option<Foresight> {
        let (_, variant) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(variant);
        let bursts = self.variants.known(variant)?.bursts;
        let expected = bursts.expected()?;
        let last = bursts.last_request()?;
        if now < last.saturating_add(EBB) {
            // The burst continues.
            self.due.set(variant, last.saturating_add(EBB));
        } else if now < expected.from.saturating_sub(LEAD) {
            self.due.set(variant, expected.from.saturating_sub(LEAD));
        } else {
            let until = expected.until;
            return Some(Foresight::Burst { variant, until });
        }
        Some(Foresight::Ebb { variant })
    }

    fn entries(&self) -> usize {
        self.variants.iter().flatten().count()
    }

    fn forget(&mut self, variant: VariantIx) {
        self.due.remove(variant);
        if let Some(memory) = self.variants.get_mut(variant) {
            *memory = None;
        }
    }

    fn postpone(&mut self, variant: VariantIx, at: Nanos) {
        self.due.set(variant, at);
    }
}

/// A key in the order of numbers of either sign.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}
