//! The mailbox in which a worker receives the inputs that front ends hold.
//!
//! A batch and the inputs of its parts come on different links, in any order. The thread that receives the last of them
//! passes the batch to the worker, without waiting for another task. A timer runs only for batches with missing inputs.
//! So a front end that is slow, cut off or gone does not fail the queries of other front ends.

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use sextant_rpc::{
    Infer, InferError, Load, LoadTimings, Ticket, VariantUsage, Work, WorkError, WorkerClient,
    WorkerInfo, WorkerStats,
};
use sextant_types::VariantId;
use tokio::sync::Notify;

use crate::link::{Broken, Link};

mod forward;
mod messages;
mod table;

pub use self::messages::{FromMailbox, PartOutputs, ToMailbox};

use self::table::{AddOutcome, Batch, Content, Due, Put, Table};

/// The time limits and size limits of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxOptions {
    /// Time after its earliest start for which a batch waits for the inputs of some of its parts. It doubles with each
    /// time that they were missed before. The transfer time of large inputs at a gigabit a second is added.
    pub patience: Duration,
    /// The limit of that doubling. A batch without any inputs waits for this time after its arrival, which doubles as
    /// well. No batch waits until after its latest start.
    pub longest_wait: Duration,
    /// Time after which inputs are dropped if their batch does not come.
    pub keep: Duration,
    /// Largest number of bytes of waiting inputs.
    pub max_bytes: u64,
}

impl Default for MailboxOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_millis(50),
            longest_wait: Duration::from_millis(500),
            keep: Duration::from_secs(2),
            max_bytes: 256 << 20,
        }
    }
}

/// The mailbox's end of a link to a front end.
type ServerLink = Arc<dyn Link<FromMailbox, ToMailbox>>;

/// A worker that accepts batches whose inputs come from front ends.
pub struct Mailbox {
    worker: WorkerClient,
    options: MailboxOptions,
    table: Mutex<Table>,
    /// Notified if the next expiry is earlier than the keeper knows.
    sooner: Arc<Notify>,
}

/// Receives the inputs of the front end at the other end of `link`, until `shutdown`.
///
/// # Errors
/// If the link breaks.
pub async fn serve_mailbox(
    mailbox: Arc<Mailbox>,
    link: ServerLink,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Broken> {
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            message = link.receive() => match message? {
                ToMailbox::Beat => link.send(FromMailbox::Beat)?,
                ToMailbox::Inputs { ticket, rows, inputs } => {
                    mailbox.put(ticket, Content::Inputs { inputs, rows }, &link);
                }
                ToMailbox::Withheld { ticket, reason } => {
                    mailbox.put(ticket, Content::Never(reason), &link);
                }
            },
        }
    }
}

// === impl Mailbox ===

impl Mailbox {
    /// Puts a mailbox in front of `worker`. Must be called inside a tokio runtime.
    pub fn new(worker: WorkerClient, options: MailboxOptions) -> Arc<Self> {
        let sooner = Arc::<Notify>::default();
        let mailbox = Arc::new(Self {
            worker,
            options,
            table: Mutex::new(Table::new(options)),
            sooner: Arc::clone(&sooner),
        });
        tokio::spawn(expire(Arc::downgrade(&mailbox), sooner));
        mailbox
    }

    /// Bytes of inputs that wait for their batch.
    pub fn held_bytes(&self) -> u64 {
        self.table().bytes()
    }

    fn put(&self, ticket: Ticket, content: Content, link: &ServerLink) {
        let put = self.table().put(ticket, content, link, now());
        match put {
            Put::Complete(batch) => self.forward(*batch),
            Put::NoRoom => {
                let most = self.options.max_bytes;
                let reason = format!("the mailbox keeps at most `{most}` bytes");
                refuse(link, ticket, InferError::NoMemory(reason));
            }
            Put::Kept { sooner: true } => self.sooner.notify_one(),
            Put::Kept { sooner: false } => {}
        }
    }

    /// Gives up what is due. Returns when to look again.
    fn give_up(&self) -> Option<Instant> {
        let Due {
            batches,
            inputs,
            next,
        } = self.table().take_due(now());
        for batch in batches {
            self.forward(batch);
        }
        for (ticket, link) in inputs {
            refuse(&link, ticket, InferError::TooLate);
        }
        next
    }

    fn forward(&self, batch: Batch) {
        if let Some(infer) = forward::forward(batch, now()) {
            self.worker.infer(infer);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

#[async_trait]
impl Work for Mailbox {
    fn info(&self) -> WorkerInfo {
        self.worker.info()
    }

    fn usage(&self) -> Vec<VariantUsage> {
        self.worker.usage()
    }

    fn is_draining(&self) -> bool {
        self.worker.is_draining()
    }

    fn infer(&self, infer: Infer) {
        let batch = match Batch::new(infer, now()) {
            Ok(batch) => batch,
            Err(infer) => return self.worker.infer(infer),
        };
        let added = self.table().add(batch);
        match added {
            AddOutcome::Complete(batch) => self.forward(*batch),
            AddOutcome::Waits { sooner: true } => self.sooner.notify_one(),
            AddOutcome::Waits { sooner: false } => {}
        }
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        self.worker.load(load).await
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        self.worker.unload(variant).await
    }

    async fn repin(&self) -> Result<Vec<u16>, WorkError> {
        self.worker.repin().await
    }

    async fn leave(&self) -> Result<(), WorkError> {
        self.worker.leave().await
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        self.worker.stats().await
    }
}

impl Drop for Mailbox {
    /// The worker shuts down: waiting batches are answered.
    fn drop(&mut self) {
        for batch in self.table().take_all() {
            forward::refuse_all(batch, InferError::ShuttingDown);
        }
        self.sooner.notify_one();
    }
}

/// Gives up what waits too long, as long as the mailbox exists.
async fn expire(mailbox: Weak<Mailbox>, sooner: Arc<Notify>) {
    let mut next: Option<Instant> = None;
    loop {
        match next {
            None => sooner.notified().await,
            Some(due) => {
                // Whether it was woken early or in time, it looks again.
                let notified = sooner.notified();
                drop(tokio::time::timeout_at(due.into(), notified).await);
            }
        }
        match mailbox.upgrade() {
            Some(mailbox) => next = mailbox.give_up(),
            None => return,
        }
    }
}

/// Sends an error to the front end. If the link is broken, the front end knows.
fn refuse(link: &ServerLink, ticket: Ticket, error: InferError) {
    let outcome = Err(error);
    let _ = link.send(FromMailbox::Outputs { ticket, outcome });
}

/// Tokio's time, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
