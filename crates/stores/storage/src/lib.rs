//! Who uses what of the artefact store, and giving back what nobody does.
//!
//! Entry points: [`Storage::meet`], [`Storage::sweep`] and [`Storage::run_while`], [`Storage::usage`].
//!
//! A sweep forgets the jobs that ended and the models that failed long enough ago, then removes what was
//! kept for jobs that are over, then the blobs to which nothing refers. Each step is harmless where it is
//! interrupted or done twice, also by two processes at the same time: what is left is found by the next.
//!
//! # Why no blob is lost that is needed
//!
//! A blob comes before the rows that refer to it: a form's model is stored while its validation set is
//! still on its way, a generated file before the step that names it. Three things protect it meanwhile.
//!
//! - **Grace.** Only blobs that were last stored longer than [`Config::grace`] ago are looked at, and
//!   storing the same content again makes a blob young. So what is on its way is left alone, unless it
//!   takes longer than the grace.
//! - **Condemnation**, which does not rest on any clock. [`Registry::condemn`] looks for references and
//!   notes the blobs that have none in one transaction; while a blob is noted, every transaction that
//!   would refer to it is refused, and whoever wanted to tries again. So between the look at the
//!   references and the removal none can come.
//! - **A second look.** Whoever has referred to a blob looks afterwards whether it is there. At that
//!   moment it cannot be condemned: the reference was either seen, or made after the acquittal, when the
//!   removal was over. So what it finds, stays; and where it finds nothing (the blob was stored between
//!   the store's last look at its age and the removal, or before a sweep that its sender was slower than)
//!   it stores the blob again or says that it has to be sent again. A row that refers to nothing does not
//!   outlive the call that made it.
//!
//! A removal is conditional: what was stored again since it was listed stays
//! ([`ObjectStore::delete_blob_stored_by`]), so an upload of the same content during a sweep survives it.
//!
//! A process may be held up after it has condemned. It removes nothing once [`REMOVE_WITHIN`] has passed;
//! what it has condemned is acquitted by others only after [`ABANDONED_AFTER`], twice as long, so that
//! clocks may differ by as much as the rest. The same holds for a removal that the store has not confirmed.
//! What remains is a process that is stopped between the look
//! at the clock and the removal, for minutes, over a bucket: a folder compares and removes in one step.
//!
//! Processes of the version before do not look for the condemned; while a fleet is upgraded the grace
//! alone protects what they store.
//!
//! [`backup`] writes both into a folder and restores them. Nothing is swept from a store that belongs to another registry ([`Storage::meet`]).
//!
//! **Invariant:** nothing is removed but by what the registry says at that moment, or by a name that
//! only this service gives.
//!
//! [`Registry::condemn`]: sextant_registry::Registry::condemn
//! [`ObjectStore::delete_blob_stored_by`]: sextant_objects::ObjectStore::delete_blob_stored_by

pub mod backup;
mod blobs;
mod error;
mod feedback;
mod files;
mod identity;
mod names;
mod service;
mod sweep;
mod usage;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use sextant_objects::ObjectStore;
use sextant_registry::Registry;
use tokio::sync::{Mutex, watch};

pub use blobs::{ABANDONED_AFTER, REMOVE_WITHIN};
pub use error::Error;
pub use identity::IdentityMismatch;
pub use sweep::SweepReport;
pub use usage::{Kind, Usage, Use};

/// What is kept for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Time between two sweeps; `None` sweeps only when asked to.
    pub every: Option<Duration>,
    /// A blob to which nothing refers is kept for so long after it was last stored.
    pub grace: Duration,
    /// The row of a job that has ended is kept for so long; `None`: for ever.
    pub keep_ended_jobs: Option<Duration>,
    /// A model whose registration failed is kept for so long; `None`: for ever.
    pub keep_failed_models: Option<Duration>,
    /// An entry of the audit record is kept for so long; `None`: for ever.
    pub keep_audit: Option<Duration>,
    /// Time between two looks at feedback that is too old or too much.
    pub feedback_every: Duration,
    /// Most bytes that the store may hold, for people to see.
    pub limit_bytes: Option<u64>,
}

/// A number of objects and their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// How many.
    pub objects: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// The artefact store and what refers to it. Cheap to clone; clones sweep one after the other.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    objects: Arc<dyn ObjectStore>,
    config: Config,
    /// Locked by the sweep under way.
    sweeping: Mutex<()>,
    /// Locked while blobs are condemned.
    removing: Arc<Mutex<()>>,
    /// Nothing more is to be removed.
    stopping: AtomicBool,
    /// Whether the two belong together; `None` until it was looked at.
    standing: watch::Sender<Option<Result<(), IdentityMismatch>>>,
}

// === impl Storage ===

impl Storage {
    /// The store `objects`, to which the rows of `registry` refer and no others.
    pub fn new(registry: Registry, objects: Arc<dyn ObjectStore>, config: Config) -> Self {
        Self {
            inner: Arc::new(Inner {
                registry,
                objects,
                config,
                sweeping: Mutex::default(),
                removing: Arc::default(),
                stopping: AtomicBool::new(false),
                standing: watch::Sender::new(None),
            }),
        }
    }
}

// === impl Amount ===

impl Amount {
    /// Counts one more object.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}
