//! Which variants are loaded on which device.
//!
//! A device holds variants in pages of a fixed number and loads one at a time; a request of a variant
//! that is loaded nowhere needs a LOAD first. A [`Placement`] watches requests, batches and LOADs
//! go by and answers with [`Action`]s. It holds no request: `sextant_controller` does, which joins a
//! placement with a [`sextant_schedule::Scheduler`].
//!
//! Words: a *replica* is a variant on one device, from the moment its LOAD is issued; *demand* is the
//! device time that waiting requests ask for; a request is *hopeful* while a LOAD that starts now
//! could still help it.
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

/// What a placement needs to know of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantSpec {
    /// Pages that it takes on a device for itself.
    pub pages: u32,
    /// Pages that it takes together with others.
    pub shared: Option<Shared>,
    /// Estimated time of its LOAD, ns; [`Placement::on_load_estimate`] tells of kinds of devices.
    pub load: Nanos,
    /// The least that the first LOAD on a device takes, ns, where later ones find what it prepared; 0 where all are alike.
    pub first_load: Nanos,
    /// Estimated run time of one request alone, ns.
    pub run: Nanos,
}

/// What a placement needs to know of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Which kind it is of: all devices of a kind load and run a variant alike.
    pub kind: KindIx,
    /// Pages for variants.
    pub pages: u32,
}

/// What is to be kept loaded of a variant, whether or not it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredPlacement {
    /// On how many devices; `u32::MAX` for every one that can run it.
    pub devices: u32,
    /// Never unloaded once it is loaded, and loaded where others have to go for it.
    pub pinned: bool,
    /// Least first, where there is not room for all.
    pub order: u32,
}

/// Pages that a device holds once for all variants of a group, as variants of one model have the same
/// weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Names the group.
    pub group: u32,
    /// Its pages, the same for every member.
    pub pages: u32,
}

/// What the caller has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Load a variant. To be answered by [`Placement::on_load_result`] or [`Placement::on_load_late`].
    Load {
        /// On which device.
        device: DeviceIx,
        /// Which variant.
        variant: VariantIx,
        /// Not to be started before this: another LOAD runs until then.
        earliest: Nanos,
        /// Not to be started after this: it would help nobody;
        /// [`NEVER`](sextant_schedule::NEVER) when it is not for those who wait, or one of them has no target.
        latest: Nanos,
        /// Expected time, ns.
        expected: Nanos,
    },
    /// Give a variant's pages back. To be answered by [`Placement::on_unloaded`]; the pages count as
    /// free at once, because a device carries UNLOADs and LOADs out in the order they were sent.
    Unload {
        /// On which device.
        device: DeviceIx,
        /// Which variant.
        variant: VariantIx,
    },
}

/// Where the actions of an event are collected.
pub type Actions = Vec<Action>;

/// What there is of a variant on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// Its LOAD was issued and is not answered.
    Loading,
    /// Loaded.
    Loaded,
    /// Its UNLOAD was issued and is not answered.
    Leaving,
}

/// A placement policy as a state machine. `now` never decreases.
///
/// Contract: the pages of what is loading and loaded on a device never exceed its pages; whatever
/// has to go for a LOAD is unloaded by actions before it. A variant with a batch running on a device,
/// the only replica of a variant for which requests wait, what is loading and what is pinned is never
/// unloaded; what is pinned may move. A LOAD that failed is tried elsewhere, and again after a pause
/// that doubles. A device loads one variant at a time: the windows of its LOADs follow each other, and
/// one is issued only while less than the look-ahead is outstanding. A variant that is on a device in
/// any form is not loaded there again.
///
/// The caller tells of every request once by [`Self::on_request`], and once more when it leaves: by
/// [`Self::on_served`] or [`Self::on_dropped`]. Devices, variants and requests may be named in any
/// order; events of unknown ones change nothing.
pub trait Placement: std::fmt::Debug + Send {
    /// A device is up with all pages free and nothing loaded, and has had no variant before. One that was up is first taken
    /// down.
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions,
    );

    /// A device that is up is of another kind from now on, with what is loaded on it.
    fn on_device_kind(&mut self, now: Nanos, device: DeviceIx, kind: KindIx);

    /// A device is gone with everything on it; its LOADs and UNLOADs are not answered any more.
    fn on_device_down(&mut self, now: Nanos, device: DeviceIx, actions: &mut Actions);

    /// A variant may be asked for from now on, or its estimates are new.
    fn on_variant(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        spec: VariantSpec,
        actions: &mut Actions,
    );

    /// A variant is not asked for any more: it is unloaded once nothing waits for it, where it does not
    /// run.
    fn on_retired(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions);

    /// What is to be kept loaded, by variant in order; nothing of what is not listed. What is not to
    /// be kept and was not used for `idle_unload` ns is unloaded; [`NEVER`](sextant_schedule::NEVER)
    /// to leave it until its pages are needed.
    fn on_desired(
        &mut self,
        now: Nanos,
        desired: &[(VariantIx, DesiredPlacement)],
        idle_unload: Nanos,
        actions: &mut Actions,
    );

    /// The kinds of devices that can run a variant, with the time of a LOAD there, 0 for what its spec
    /// says. Until this is called none can.
    fn on_kinds(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        kinds: &[(KindIx, Nanos)],
        actions: &mut Actions,
    );

    /// The LOAD of a variant on devices of a kind that can run it is expected to take `load` ns, as
    /// was learnt.
    fn on_load_estimate(&mut self, now: Nanos, kind: KindIx, variant: VariantIx, load: Nanos);

    /// A request waits, loaded or not; `deadline` is [`NEVER`](sextant_schedule::NEVER) without a
    /// target.
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

    /// A batch has left its device, whatever became of it.
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

    /// A request was turned away that the variant would have met if it had been loaded. It counts as
    /// asked for, and is loaded where nothing has to go that is worth more.
    fn on_missed(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions);

    /// A LOAD has ended. A success without a LOAD tells of a variant that was found on the device: it
    /// is there whether or not these books have room for it.
    fn on_load_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        ok: bool,
        actions: &mut Actions,
    );

    /// A LOAD was not started, as its window had closed: the device had more to do than was expected. Nothing is wrong with
    /// the variant, which is loaded there or elsewhere as soon as that helps somebody.
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

    /// A device takes no work for a variant any more, which counts as unloaded there: it is not asked
    /// to load it again for a pause.
    fn on_lost(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions);

    /// Something else slows a variant down on a device, `from`: it is moved to the first of `to` that can
    /// take it into free pages, and stays where it is if there is none. It leaves `from` once it is
    /// loaded there and no batch of it runs here any more; for a minute it is not loaded on `from`
    /// again. Returns whether a move begins.
    fn on_relocate(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        from: DeviceIx,
        to: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool;

    /// Something else slows a variant down on a device, `from`, and others have it already: it leaves `from` once no
    /// batch of it runs there, and is not loaded there again for a minute while others have it. That doubles, up to eight
    /// minutes, where it has come back and leaves again, but for requests that need one more. Nothing happens where none
    /// of `stay` has it. Returns whether it begins to leave.
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

    /// When [`Self::on_timer`] is next worth calling. O(1).
    fn next_timer(&self) -> Option<Nanos>;

    /// The last moment at which a LOAD, one under way included, can make a variant ready by
    /// `ready_by`.
    fn last_chance(&self, variant: VariantIx, ready_by: Nanos) -> Nanos;

    /// Whether a variant is there or may be loaded: some device that can run it has pages for it beside
    /// what is pinned, and has not failed to load it lately.
    fn may_load(&self, now: Nanos, variant: VariantIx) -> bool;

    /// Whether a LOAD of a variant on a device is a first one, which tells nothing of those that follow.
    fn is_first_load(&self, device: DeviceIx, variant: VariantIx) -> bool;

    /// Whether anything is pinned: what may be loaded can change with every LOAD.
    fn pins(&self) -> bool;

    /// What there is of a variant on a device.
    fn presence(&self, device: DeviceIx, variant: VariantIx) -> Presence;

    /// Pages of a device that are free; 0 for one that is not up.
    fn free_pages(&self, device: DeviceIx) -> u32;

    /// What the policy counts as demand.
    fn demand(&self) -> &Demand;
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
