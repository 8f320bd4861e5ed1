//! The contract of a metadata store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sextant_types::{
    ApplicationId, DeviceType, DeviceTypeName, EngineName, Surroundings, Variant, VariantId,
    WorkerId,
};

use crate::{Command, Demand, DesiredState, Error, Instance, InstanceKey};

/// A position in the change feed: the holder has seen everything up to it. Positions of one store only grow. A position
/// of another store, or of an earlier life of this one, is answered with [`Error::Trimmed`].
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

/// What a worker reports of itself with each heartbeat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The type of its device; `None` from workers of an earlier version.
    #[serde(default)]
    pub device_type: Option<Arc<DeviceType>>,
    /// The device type of its name in an earlier life, if it was another type.
    #[serde(default)]
    pub former_type: Option<DeviceTypeName>,
    /// When it started, ms since the Unix epoch.
    #[serde(default)]
    pub since_ms: u64,
    /// The address at which other processes reach it, `host:port`; `None` for a worker that only its own process
    /// reaches.
    pub endpoint: Option<Arc<str>>,
    /// The device that runs its batches: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub device: Arc<str>,
    /// Its engines: it can run variants of these.
    pub engines: Vec<EngineName>,
    /// Whether it finishes its accepted batches and leaves. Nothing new may be sent to it.
    pub draining: bool,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
    /// Bytes in use.
    pub memory_used_bytes: u64,
    /// Share of core time that was busy over the last second, 0 to 1.
    pub utilization: f64,
    /// The measured surroundings of its engines; `None` from workers that do not report them.
    #[serde(default)]
    pub surroundings: Option<Surroundings>,
}

/// A worker and its lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name.
    pub id: WorkerId,
    /// Its last report.
    pub record: WorkerRecord,
    /// When its lease lapses, ms since the Unix epoch.
    pub lease_until_ms: u64,
    /// Whether it was marked to leave. It serves until it is told to leave.
    #[serde(default)]
    pub leaving: bool,
}

/// A process that stands for a role that has one leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The role: `dispatcher`, ..
    pub role: Arc<str>,
    /// Unique to this life of this process.
    pub holder: Arc<str>,
    /// The address at which others reach it, `host:port`.
    pub endpoint: Arc<str>,
}

/// The leader of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The elected candidate.
    pub candidate: Candidate,
    /// Fencing token: grows with each change of the holder, also when the store has lost its content. A receiver that
    /// has seen a greater token refuses orders with a lesser one.
    pub token: u64,
    /// When another candidate may take over, ms since the Unix epoch. Renewal is no event.
    pub lease_until_ms: u64,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// When the lease lapses, ms since the Unix epoch.
    pub until_ms: u64,
    /// Whether the worker was unknown or had been expired. Then none of its instances are recorded, and it must
    /// announce again what it holds.
    pub fresh: bool,
    /// Whether the worker is marked to leave ([`MetadataStore::mark_leaving`]). The mark lapses with the lease. A
    /// worker that was told of the mark sets it again.
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
    /// An instance appeared or changed by a transition.
    InstanceChanged(Instance),
    /// An instance is gone: its worker left or its lease lapsed.
    InstanceRemoved(InstanceKey),
    /// A heartbeat: the worker's figures, and the new end of the lease of all its instances.
    WorkerChanged(Worker),
    /// A worker left or its lease lapsed. Its instances were removed just before.
    WorkerRemoved(WorkerId),
    /// A role has another leader.
    LeaderChanged(Leader),
    /// A role has no leader: its holder resigned.
    LeaderGone(Arc<str>),
    /// The desired state has changed.
    DesiredChanged(Arc<DesiredState>),
    /// The dispatcher has written new demand; `None` if a later event of the feed replaces it.
    DemandChanged(Option<Arc<Demand>>),
}

/// The whole content at one moment. Each list is sorted by id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Published variants.
    pub variants: Vec<Arc<Variant>>,
    /// Recorded instances.
    pub instances: Vec<Instance>,
    /// Workers that were not expired.
    pub workers: Vec<Worker>,
    /// The leaders of roles, sorted by role. A leader's lease may have lapsed if no other candidate has taken over.
    pub leaders: Vec<Leader>,
    /// The desired state; `None` before an autoscaler has written it.
    pub desired: Option<Arc<DesiredState>>,
    /// The demand; `None` before a dispatcher has written it.
    pub demand: Option<Arc<Demand>>,
    /// Changes when the store has lost its content. Until its owners have written it again, content that a follower
    /// knew may be missing.
    pub life: u64,
    /// The exact position of the feed that corresponds to this content.
    pub cursor: Cursor,
}

/// The events after a cursor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// The events in the order in which they took effect.
    pub events: Vec<Event>,
    /// The cursor from which to continue.
    pub cursor: Cursor,
}

/// One transition of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The instance.
    pub key: InstanceKey,
    /// The application that its variant answers for.
    pub application: ApplicationId,
    /// `None`: any version; `Some(0)`: the instance must not exist; `Some(n)`: it must be at version n.
    pub expected_version: Option<u64>,
    /// The command.
    pub command: Command,
}

/// The shared state of a fleet.
///
/// Contract, for every backend:
/// - **Linearizable.** A call takes effect at one moment between its beginning and its end, and every later call of any
///   caller sees the effect. Of two transitions that expect the same version exactly one succeeds.
/// - **The store decides nothing.** A transition's outcome is that of [`crate::carry_out`]. The store only persists it
///   if the version still holds.
/// - **Leases.** A worker's heartbeat renews the lease of all its instances. A lease ends when [`expire`](Self::expire)
///   finds it past `now_ms`, not earlier: a late heartbeat that comes before still renews it. After that the worker's
///   instances are gone and its late transitions are refused with [`Error::UnknownWorker`], until its next heartbeat
///   starts it afresh.
/// - **Workers that are to leave.** The mark of a worker lasts as long as the worker's life. Heartbeats keep it. It
///   ends when the worker is removed or expired, and when a worker with another start time announces itself under the
///   name.
/// - **Roles.** A role has at most one holder at a time. Another candidate gets the role only when the lease has ended
///   or the holder has resigned, and always with a greater token.
/// - **Records of leaders.** The desired state and the demand are replaced as a whole. A writer with a token less than
///   one seen in the same record is refused with [`Error::Fenced`], which changes nothing. A write of equal content
///   changes only the least token that is accepted from then on.
/// - **Feed.** Every change is one event, in order, once. Following the events from a snapshot's cursor to the feed's
///   end gives the later state exactly, except for the leases of leaders, whose renewal is no event. The history is
///   bounded. It has the content of demand, which is written all the time, only once: the latest.
/// - **Life.** A store that has lost its content begins a new life: [`Snapshot::life`] differs, and cursors of an
///   earlier life are answered with [`Error::Trimmed`]. A store that can lose its content only together with its users
///   has life 0.
/// - **Clock.** Times are the caller's, unless the store was told to use a clock of its own, so that callers with
///   different clocks agree. In that case every time in an answer is of the store's clock.
/// - **Idempotence.** Publishing a published variant, and retiring or removing what is absent, change nothing and emit
///   nothing.
/// - **Cancellation.** A dropped future leaves the call done or not done, never half done.
#[async_trait]
pub trait MetadataStore: Send + Sync {
    /// Publishes a variant, or replaces it. Returns whether anything changed.
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error>;

    /// Retires a variant; its instances stay until they are drained. Returns whether it was there.
    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error>;

    /// Published variants, sorted by id.
    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error>;

    /// Applies one command to an instance, by compare-and-set, and returns the new record.
    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error>;

    /// Applies many commands, each independently: a failure of one does not affect the others. Commands for one
    /// instance take effect in their order. The answers are in the order of `transitions`. Intended for reports of many
    /// loads at once: it makes them cheap if a call is a round trip.
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

    /// One instance; `None` if it was never loaded or is gone.
    async fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error>;

    /// Announces a worker, or renews its lease for `ttl_ms` from `now_ms`.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error>;

    /// Workers whose lease ends after `now_ms`, sorted by id.
    async fn workers(&self, now_ms: u64) -> Result<Vec<Worker>, Error>;

    /// Marks a worker to leave, and returns it with the mark; `None` if it is not there. If it is marked already,
    /// nothing changes and nothing is emitted.
    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<Worker>, Error>;

    /// Removes a worker that leaves by itself, and its instances. Returns whether it was there.
    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error>;

    /// Removes the workers whose lease has ended at `now_ms`, with their instances.
    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error>;

    /// Takes a role, renews it, or reads its holder: after the call the returned leader holds it. A lease ends by
    /// itself; from then on another candidate may take the role, with a greater token. The last holder keeps its token
    /// until another candidate takes the role: no other process has led since.
    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error>;

    /// The holder of a role. After its lease has lapsed, this is the last holder until another candidate takes the
    /// role.
    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error>;

    /// Gives up a role that the candidate holds. Returns whether it held it.
    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error>;

    /// Replaces the desired state. If only the token is new, there is no event.
    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error>;

    /// Replaces the demand. If only the token is new, there is no event. Refuses a demand that does not pass
    /// [`Demand::check`].
    async fn set_demand(&self, demand: Demand) -> Result<(), Error>;

    /// The whole content, and the cursor from which to follow it.
    async fn snapshot(&self) -> Result<Snapshot, Error>;

    /// The events after `cursor`, at once; possibly none.
    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error>;

    /// Waits until [`changes`](Self::changes) has an answer for `cursor`. Returns at once if it already has one, even
    /// if that is [`Error::Trimmed`]. May be cancelled at any time.
    async fn changed(&self, cursor: Cursor) -> Result<(), Error>;
}

// === impl Worker ===

impl Worker {
    /// Whether it goes on serving: it neither drains nor is marked to leave.
    pub fn stays(&self) -> bool {
        !self.record.draining && !self.leaving
    }
}
