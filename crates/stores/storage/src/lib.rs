//! Who uses the artefact store, and the removal of what nobody uses.
//!
//! Entry points: [`Storage::meet`], [`Storage::sweep`] and [`Storage::run_while`], [`Storage::usage`].
//!
//! A sweep removes old rows of ended jobs and of failed models, then the files that were kept for ended jobs, then the
//! blobs to which nothing refers. Each step is harmless if it is interrupted or done twice, also by two processes at
//! the same time: the next sweep finds the rest.
//!
//! # Why no needed blob is lost
//!
//! A blob is stored before the rows that refer to it: a form's model is stored while its validation set is still on its
//! way, a generated file before the step that names it. Three things protect it in the meantime.
//!
//! - **Grace.** A sweep considers only blobs that were last stored longer than [`Config::grace`] ago, and storing the
//!   same content again updates that time. So it leaves alone a blob that is on its way, unless that takes longer than
//!   the grace.
//! - **Condemnation**, which does not depend on a clock. [`Registry::condemn`] looks for references and condemns the
//!   blobs that have none in one transaction. While a blob is condemned, every transaction that would refer to it is
//!   refused, and its caller retries. So no reference can be added between the look at the references and the removal.
//! - **A second look.** A caller that has referred to a blob checks afterwards whether the blob exists. At that moment
//!   the blob cannot be condemned: either the sweep has seen the reference, or the reference was made after the
//!   acquittal, when the removal was over. So a blob that the caller finds stays. If it finds none (the blob was stored
//!   between the store's last look at its age and the removal, or before a sweep that its sender was slower than), it
//!   stores the blob again or reports that it must be sent again. A row that refers to a missing blob does not outlive
//!   the call that made it.
//!
//! A removal is conditional: a blob that was stored again since it was listed stays
//! ([`ObjectStore::delete_blob_stored_by`]). So an upload of the same content during a sweep survives the sweep.
//!
//! A process may be held up after it has condemned blobs. It removes nothing once [`REMOVE_WITHIN`] has passed. Other
//! processes acquit what it has condemned only after [`ABANDONED_AFTER`], twice as long, so clocks may differ by the
//! rest. The same holds for a removal that the store has not confirmed. One case remains: a process that is stopped for
//! minutes between the look at the clock and the removal, with a bucket as the store. A folder compares and removes in
//! one step.
//!
//! Processes of the previous version do not check for condemned blobs. While a fleet is upgraded, only the grace
//! protects what they store.
//!
//! [`backup`] writes the registry and the store into a folder and restores them. Nothing is swept from a store that
//! belongs to another registry ([`Storage::meet`]).
//!
//! **Invariant:** an object is removed only by what the registry says at that moment, or by a name that only this
//! service gives.
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

/// How long unused things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Time between two sweeps; `None` sweeps only on request.
    pub every: Option<Duration>,
    /// Time for which a blob without references is kept after it was last stored.
    pub grace: Duration,
    /// Time for which the row of an ended job is kept; `None`: for ever.
    pub keep_ended_jobs: Option<Duration>,
    /// Time for which a model whose registration failed is kept; `None`: for ever.
    pub keep_failed_models: Option<Duration>,
    /// Time for which an entry of the audit record is kept; `None`: for ever.
    pub keep_audit: Option<Duration>,
    /// Time between two removals of feedback that is too old or too much.
    pub feedback_every: Duration,
    /// Largest number of bytes that the store may hold, to be shown to people.
    pub limit_bytes: Option<u64>,
}

/// A number of objects and their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// The number of objects.
    pub objects: u64,
    /// Their total size, bytes.
    pub bytes: u64,
}

/// The artefact store and the references to it. Cheap to clone. Sweeps of all clones run one after the other.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    objects: Arc<dyn ObjectStore>,
    config: Config,
    /// Locked by the running sweep.
    sweeping: Mutex<()>,
    /// Locked while blobs are condemned.
    removing: Arc<Mutex<()>>,
    /// Whether nothing more may be removed.
    stopping: AtomicBool,
    /// Whether registry and store belong together; `None` until it was checked.
    standing: watch::Sender<Option<Result<(), IdentityMismatch>>>,
}

// === impl Storage ===

impl Storage {
    /// The store `objects`, to which only the rows of `registry` refer.
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
