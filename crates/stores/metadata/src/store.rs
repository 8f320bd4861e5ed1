//! The contract of a metadata store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sextant_types::{
    ApplicationId, DeviceType, DeviceTypeName, EngineName, Surroundings, Variant, VariantId,
    WorkerId,
};

use crate::{Command, Demand, DesiredState, Error, Instance, InstanceKey};

/// A position in the change feed: everything up to it has been seen. Positions of one store only
/// grow; a position of another store, or of an earlier life of this one, is answered with
/// [`Error::Trimmed`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cursor(pub u64);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a worker says about itself with each heartbeat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The type of its device; `None` from workers of an earlier version.
    #[serde(default)]
    pub device_type: Option<Arc<DeviceType>>,
    /// The type that its name stood for in an earlier life, where that was another one.
    #[serde(default)]
    pub former_type: Option<DeviceTypeName>,
    /// When it started, ms since the Unix epoch.
    #[serde(default)]
    pub since_ms: u64,
    /// Where other processes reach it, `host:port`; `None` for a worker that only its own process
    /// reaches.
    pub endpoint: Option<Arc<str>>,
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub device: Arc<str>,
    /// Engines that it has: it can run variants of these.
    pub engines: Vec<EngineName>,
    /// It finishes what it has accepted and leaves: nothing new may be sent to it.
    pub draining: bool,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
    /// Bytes in use.
    pub memory_used_bytes: u64,
    /// Share of core time that was busy over the last second, 0 to 1.
    pub utilization: f64,
    /// What surrounds its engines, as far as it was seen; `None` from workers that do not say.
    #[serde(default)]
    pub surroundings: Option<Surroundings>,
}

/// A worker and its lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name.
    pub id: WorkerId,
    /// What it said last.
    pub record: WorkerRecord,
    /// When it is taken for dead, ms since the Unix epoch.
    pub lease_until_ms: u64,
    /// Somebody has said that it is to leave. It serves until it is told to.
    #[serde(default)]
    pub leaving: bool,
}

/// One who stands for a role that only one may play.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which role: `dispatcher`, ..
    pub role: Arc<str>,
    /// Unique to this life of this process.
    pub holder: Arc<str>,
    /// Where others reach it, `host:port`.
    pub endpoint: Arc<str>,
}

/// Who plays a role that only one may play.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Who won.
    pub candidate: Candidate,
    /// Fencing token: grows with each change of the holder, also over the loss of the store's
    /// content. Who has seen a greater one refuses what comes with a lesser one.
    pub token: u64,
    /// When another may take over, ms since the Unix epoch. Renewal is no event.
    pub lease_until_ms: u64,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// When the lease lapses, ms since the Unix epoch.
    pub until_ms: u64,
    /// The worker was unknown or had been expired: none of its instances are recorded, so it has
    /// to announce again what it holds.
    pub fresh: bool,
    /// The worker is marked to leave ([`MetadataStore::mark_leaving`]). The mark lapses with the lease: a worker that
    /// was told of it sets it again.
    pub leaving: bool,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A variant was published, or published again with other content.
    VariantPublished(Arc<Variant>),
    /// A variant was retired.
    VariantRetired(VariantId),
    /// An instance appeared or took a transition.
    InstanceChanged(Instance),
    /// An instance is gone: its worker left or its lease lapsed.
    InstanceRemoved(InstanceKey),
    /// A heartbeat: the worker's figures, and a later end of the lease of all its instances.
    WorkerChanged(Worker),
    /// A worker left or its lease lapsed; its instances were removed just before.
    WorkerRemoved(WorkerId),
    /// Another plays a role that only one may play.
    LeaderChanged(Leader),
    /// Nobody plays the role any more: its holder stood down.
    LeaderGone(Arc<str>),
    /// Something else is desired to be loaded.
    DesiredChanged(Arc<DesiredState>),
    /// The dispatcher has counted again; `None` in place of what a later event of the feed replaces.
    DemandChanged(Option<Arc<Demand>>),
}

/// Everything at one moment. Each list is sorted by id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Published variants.
    pub variants: Vec<Arc<Variant>>,
    /// Recorded instances.
    pub instances: Vec<Instance>,
    /// Workers that were not expired.
    pub workers: Vec<Worker>,
    /// Who plays the roles that only one may play, sorted by role; possibly with a lease that has
    /// lapsed and that nobody has taken over.
    pub leaders: Vec<Leader>,
    /// What should be loaded; `None` before an autoscaler has said it.
    pub desired: Option<Arc<DesiredState>>,
    /// What is asked for; `None` before a dispatcher has counted.
    pub demand: Option<Arc<Demand>>,
    /// Changes when the store has lost its content: what a follower knew may be missing until
    /// those it concerns have written it again.
    pub life: u64,
    /// The position of the feed that this content corresponds to, exactly.
    pub cursor: Cursor,
}

/// What followed a cursor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// In the order in which they took effect.
    pub events: Vec<Event>,
    /// Where to go on.
    pub cursor: Cursor,
}

/// One step of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Which instance.
    pub key: InstanceKey,
    /// The application that its variant answers for.
    pub application: ApplicationId,
    /// `None`: whatever the version is; `Some(0)`: it must not exist; `Some(n)`: it must be at n.
    pub expected_version: Option<u64>,
    /// What happens to it.
    pub command: Command,
}

/// The shared state of a fleet.
///
/// Contract, for every backend:
/// - **Linearizable.** A call takes effect at one moment between its beginning and its end, and
///   every later call of anyone sees it. Of two transitions that expect the same version exactly
///   one succeeds.
/// - **The store decides nothing.** A transition's outcome is [`crate::carry_out`]'s; the store only
///   persists it when the version still holds.
/// - **Leases.** A worker's heartbeat renews the lease of all its instances. A lease ends when
///   [`expire`](Self::expire) finds it past `now_ms`, no earlier: a late heartbeat that comes
///   before still renews. After that the worker's instances are gone and its late transitions are
///   refused with [`Error::UnknownWorker`], until its next heartbeat starts it afresh.
/// - **Workers that are to leave.** A worker's mark lasts as long as its life: heartbeats keep it; it
///   is gone once the worker has been removed or expired, and when one that started at another time
///   announces itself under the name.
/// - **Roles.** At most one holder has a role at a time: another gets it only when the lease has
///   ended or the holder resigned, and always with a greater token.
/// - **Records of leaders.** What is desired and what is asked for are replaced as a whole. Whoever
///   writes under a lesser token than one seen in the same record is refused with
///   [`Error::Fenced`], which changes nothing. Content that says the same changes nothing but the
///   least token that is taken from then on.
/// - **Feed.** Every change is one event, in order, once. Following events from a snapshot's
///   cursor to the feed's end gives the later state exactly, but for the leases of leaders, whose
///   renewal is no event. The history is bounded; of demand, which is counted again all the time, it
///   has the content only once: the latest.
/// - **Life.** A store that has lost its content begins a new life: [`Snapshot::life`] differs, and
///   cursors of an earlier life are answered with [`Error::Trimmed`]. A store that cannot lose its
///   content without ending with its users has life 0.
/// - **Clock.** Times are the caller's, unless the store was told to use a clock of its own, so
///   that callers whose clocks differ agree; every time that it answers with is of that clock then.
/// - **Idempotence.** Publishing what is published, retiring and removing what is not there
///   change nothing and emit nothing.
/// - **Cancellation.** A dropped future leaves the call done or not done, never half done.
#[async_trait]
pub trait MetadataStore: Send + Sync {
    /// Makes a variant known, or replaces it. Returns whether anything changed.
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error>;

    /// Forgets a variant; its instances stay until they are drained. Returns whether it was there.
    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error>;

    /// Published variants, sorted by id.
    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error>;

    /// Applies one command to an instance, by compare-and-set, and returns the new record.
    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error>;

    /// Applies many commands, each on its own: one's failure leaves the others alone. Those of one
    /// instance take effect in their order; the answers come in the order of `transitions`. For
    /// reports of many loads at once, which it makes cheap where a call is a round trip.
    async fn transitions(
        &self,
        transitions: &[Transition],
        now_ms: u64,
    ) -> Vec<Result<Instance, Error>> {
        let mut answers = Vec::with_capacity(transitions.len());
        for transition in transitions {
            answers.push(self.transition(transition, now_ms).await);
        }
        answers
    }

    /// Recorded instances, sorted by key.
    async fn instances(&self) -> Result<Vec<Instance>, Error>;

    /// One instance; `None` when it was never loaded or is gone.
    async fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error>;

    /// Announces a worker, or renews its lease for `ttl_ms` from `now_ms`.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error>;

    /// Workers whose lease reaches beyond `now_ms`, sorted by id.
    async fn workers(&self, now_ms: u64) -> Result<Vec<Worker>, Error>;

    /// Says that a worker is to leave, and returns it with the mark; `None` when it is not there.
    /// What is said already changes nothing and emits nothing.
    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<Worker>, Error>;

    /// Removes a worker that leaves on its own, and its instances. Returns whether it was there.
    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error>;

    /// Removes the workers whose lease has ended at `now_ms`, with their instances.
    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error>;

    /// Takes a role, renews it, or says who holds it: after the call the answered leader holds it.
    /// A lease lapses at its end by itself; from then on another may take the role, with a greater token.
    /// Who held it last keeps its token as long as nobody did: nobody else has led since.
    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error>;

    /// Who holds a role: after a lease that lapsed, whoever held it, until another takes it.
    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error>;

    /// Gives a role up that the candidate holds. Returns whether it did.
    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error>;

    /// Replaces what should be loaded. No event when nothing but the token is new.
    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error>;

    /// Replaces what is asked for. No event when nothing but the token is new. Refuses what does not
    /// pass [`Demand::check`].
    async fn set_demand(&self, demand: Demand) -> Result<(), Error>;

    /// Everything, and the cursor to follow it from.
    async fn snapshot(&self) -> Result<Snapshot, Error>;

    /// What followed `cursor`, at once; possibly nothing.
    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error>;

    /// Waits until [`changes`](Self::changes) has something to say about `cursor`. Returns at
    /// once when it has already, be it [`Error::Trimmed`]. May be cancelled at any time.
    async fn changed(&self, cursor: Cursor) -> Result<(), Error>;
}

// === impl Worker ===

impl Worker {
    /// Whether it is to serve on: it neither drains nor is to leave.
    pub fn stays(&self) -> bool {
        !self.record.draining && !self.leaving
    }
}
