//! Which variants are loaded on which device.
//!
//! A device holds variants in a fixed number of pages and loads one at a time. A request for a variant that is loaded
//! nowhere needs a LOAD first. A [`Placement`] observes requests, batches and LOADs and answers with [`Action`]s. It
//! holds no requests; `sextant_controller` holds them and joins a placement with a [`sextant_schedule::Scheduler`].
//!
//! Words: a *replica* is a variant on one device, from the moment its LOAD is issued. *Demand* is the device time for
//! which waiting requests ask. A request is *hopeful* while a LOAD that starts now could still help it.
//!
//! Policies, by [`Policy`] name: ours (`sextant`), `clockwork` (OSDI 2020, section 5.3) and `lru`.
//! Each policy's module says why it decides as it does.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

use sextant_schedule::Nanos;
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

mod burst_period;
mod choose;
mod clockwork;
mod demand;
mod device;
mod events;
mod keep;
mod kinds;
mod least_recent;
mod machine;
mod options;
mod pages;
mod prefetch;
mod relocate;
mod replicas;
mod rule;
mod sextant;
mod variant;

pub use burst_period::{BurstForecast, BurstPeriod};
pub use demand::Demand;
pub use options::{Options, Policy, UnknownPolicy};

/// What a placement must know of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantSpec {
    /// Pages that it takes on a device for itself.
    pub pages: u32,
    /// Pages that it shares with other variants.
    pub shared: Option<Shared>,
    /// Estimated time of its LOAD, ns. [`Placement::on_load_estimate`] gives the times for kinds of devices.
    pub load: Nanos,
    /// The least time of the first LOAD on a device, ns, if later LOADs reuse what the first prepared; 0 if all take
    /// the same time.
    pub first_load: Nanos,
    /// Estimated run time of one request alone, ns.
    pub run: Nanos,
}

/// What a placement must know of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Its kind. All devices of a kind load and run a variant alike.
    pub kind: KindIx,
    /// Pages for variants.
    pub pages: u32,
}

/// How a variant is kept loaded, whether or not there are queries for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredPlacement {
    /// The number of devices; `u32::MAX` for every one that can run it.
    pub devices: u32,
    /// Whether it is never unloaded once it is loaded, and loaded even if others must be unloaded for it.
    pub pinned: bool,
    /// Order of preference if there is not room for all, least first.
    pub order: u32,
}

/// Pages that a device holds once for all variants of a group, because variants of one model have the same weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Identifies the group.
    pub group: u32,
    /// Its pages, the same for every member.
    pub pages: u32,
}

/// An action that the caller must carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Load a variant. The caller answers with [`Placement::on_load_result`] or [`Placement::on_load_late`].
    Load {
        /// The device.
        device: DeviceIx,
        /// The variant.
        variant: VariantIx,
        /// The LOAD must not start before this, because another LOAD runs until then.
        earliest: Nanos,
        /// The LOAD must not start after this, because it would help no request; [`NEVER`](sextant_schedule::NEVER) if
        /// it is not for waiting requests, or if one of them has no target.
        latest: Nanos,
        /// Expected time, ns.
        expected: Nanos,
    },
    /// Free a variant's pages. The caller answers with [`Placement::on_unloaded`]. The pages count as free at once,
    /// because a device carries out UNLOADs and LOADs in the order in which they were sent.
    Unload {
        /// The device.
        device: DeviceIx,
        /// The variant.
        variant: VariantIx,
    },
}

/// The list in which the actions of an event are collected.
pub type Actions = Vec<Action>;

/// The state of a variant on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// Its LOAD was issued and is not answered yet.
    Loading,
    /// Loaded.
    Loaded,
    /// Its UNLOAD was issued and is not answered yet.
    Leaving,
}

/// A placement policy as a state machine. `now` never decreases.
///
/// Contract: the pages of the variants that are loading or loaded on a device never exceed its pages. Variants that
/// must make room for a LOAD are unloaded by actions before it. The following are never unloaded: a variant with a
/// batch running on the device, the only replica of a variant for which requests wait, a variant that is loading, and a
/// variant that is pinned. A pinned variant may move. A LOAD that failed is tried elsewhere, and again after a pause
/// that doubles. A device loads one variant at a time: the windows of its LOADs follow each other, and a LOAD is issued
/// only while less than the look-ahead is outstanding. A variant that is on a device in any state is not loaded there
/// again.
///
/// The caller reports every request once by [`Self::on_request`], and once more when it leaves: by [`Self::on_served`]
/// or [`Self::on_dropped`]. Devices, variants and requests may be named in any order. Events of unknown ones change
/// nothing.
pub trait Placement: std::fmt::Debug + Send {
    /// A device is up with all pages free and nothing loaded, and has had no variant before. If it was up, it is first
    /// taken down.
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions,
    );

    /// A device that is up is of another kind from now on, with what is loaded on it.
    fn on_device_kind(&mut self, now: Nanos, device: DeviceIx, kind: KindIx);

    /// A device is gone with everything on it. Its LOADs and UNLOADs are no longer answered.
    fn on_device_down(&mut self, now: Nanos, device: DeviceIx, actions: &mut Actions);

    /// Requests for a variant may come from now on, or its estimates have changed.
    fn on_variant(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        spec: VariantSpec,
        actions: &mut Actions,
    );

    /// Requests for a variant no longer come. It is unloaded where it runs nothing, once no request waits for it.
    fn on_retired(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions);

    /// Forgets a retired variant with its history, if it is on no device and no request waits for it. Returns whether
    /// nothing is known of it from now on.
    fn forget(&mut self, variant: VariantIx) -> bool;

    /// Sets what is kept loaded, by variant in order. A variant that is not listed is not kept. A variant that is not
    /// kept and was not used for `idle_unload` ns is unloaded; [`NEVER`](sextant_schedule::NEVER) leaves it loaded
    /// until its pages are needed.
    fn on_desired(
        &mut self,
        now: Nanos,
        desired: &[(VariantIx, DesiredPlacement)],
        idle_unload: Nanos,
        actions: &mut Actions,
    );

    /// Sets the kinds of devices that can run a variant, with the time of a LOAD there, 0 for the time in its
    /// specification. Until this is called no kind can.
    fn on_kinds(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        kinds: &[(KindIx, Nanos)],
        actions: &mut Actions,
    );

    /// The LOAD of a variant on devices of a kind that can run it is expected to take `load` ns, as was learnt.
    fn on_load_estimate(&mut self, now: Nanos, kind: KindIx, variant: VariantIx, load: Nanos);

    /// An UNLOAD on devices of a kind is expected to take `unload` ns, as was learnt; 0 until this is called. A LOAD
    /// waits for the UNLOADs that were sent to its device before it.
    fn on_unload_estimate(&mut self, now: Nanos, kind: KindIx, unload: Nanos);

    /// A request waits, whether or not its variant is loaded. `deadline` is [`NEVER`](sextant_schedule::NEVER) without
    /// a target.
    fn on_request(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        deadline: Nanos,
        actions: &mut Actions,
    );

    /// A batch of requests with these deadlines was sent to a device.
    fn on_served(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        deadlines: &[Nanos],
        actions: &mut Actions,
    );

    /// A batch has left its device, whatever its outcome.
    fn on_finished(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    );

    /// A waiting request was given up.
    fn on_dropped(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        deadline: Nanos,
        actions: &mut Actions,
    );

    /// A request was refused that the variant would have met if it had been loaded. It counts as demand, and the
    /// variant is loaded where no variant that is worth more must be unloaded.
    fn on_missed(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions);

    /// A LOAD has ended. A success without a LOAD reports a variant that was found on the device. It is there whether
    /// or not these records have room for it.
    fn on_load_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        ok: bool,
        actions: &mut Actions,
    );

    /// A LOAD was not started, because its window had closed: the device had more work than was expected. Nothing is
    /// wrong with the variant, and it is loaded there or elsewhere as soon as that helps a request.
    fn on_load_late(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    );

    /// An UNLOAD was carried out, or a device has lost a variant.
    fn on_unloaded(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    );

    /// A device no longer takes work for a variant, which counts as unloaded there. The device is not asked to load it
    /// again for a pause.
    fn on_lost(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions);

    /// Something else slows a variant down on the device `from`. The variant is moved to the first of `to` that can
    /// take it into free pages, and stays where it is if there is none. It is unloaded from `from` once it is loaded
    /// there and no batch of it runs on `from`. For a minute it is not loaded on `from` again. Returns whether a move
    /// begins.
    fn on_relocate(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        from: DeviceIx,
        to: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool;

    /// Something else slows a variant down on the device `from`, and other devices already have it. It is unloaded from
    /// `from` once no batch of it runs there, and is not loaded there again for a minute while others have it. The time
    /// doubles, up to eight minutes, if it has come back and leaves again, but not for requests that need another
    /// replica. Nothing happens if none of `stay` has it. Returns whether it begins to leave.
    fn on_withdraw(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        from: DeviceIx,
        stay: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool;

    /// Time has passed.
    fn on_timer(&mut self, now: Nanos, actions: &mut Actions);

    /// When [`Self::on_timer`] should next be called. O(1).
    fn next_timer(&self) -> Option<Nanos>;

    /// The last moment at which a LOAD, including one under way, can make a variant ready by `ready_by`.
    fn last_chance(&self, variant: VariantIx, ready_by: Nanos) -> Nanos;

    /// Whether a variant is loaded or may be loaded: some device that can run it has pages for it beside the pinned
    /// variants, and has not failed to load it lately.
    fn may_load(&self, now: Nanos, variant: VariantIx) -> bool;

    /// Whether a LOAD of a variant on a device is a first one, which says nothing about later ones.
    fn is_first_load(&self, device: DeviceIx, variant: VariantIx) -> bool;

    /// Whether any variant is pinned. If so, what may be loaded can change with every LOAD.
    fn pins(&self) -> bool;

    /// The state of a variant on a device.
    fn presence(&self, device: DeviceIx, variant: VariantIx) -> Presence;

    /// Free pages of a device; 0 for a device that is not up.
    fn free_pages(&self, device: DeviceIx) -> u32;

    /// The demand as the policy counts it.
    fn demand(&self) -> &Demand;

    /// The number of variants of which something is known, and of histories of their requests.
    fn entries(&self) -> usize;
}

/// Makes the placement that `options` names.
pub fn build(options: &Options) -> Box<dyn Placement> {
    use machine::Machine;
    match options.policy {
        Policy::Sextant => Box::new(Machine::new(options, sextant::Sextant::new(options))),
        Policy::Clockwork => Box::new(Machine::new(options, clockwork::Clockwork)),
        Policy::Lru => Box::new(Machine::new(options, least_recent::LeastRecent)),
    }
}
