//! The autoscaler's decisions as they come: the metadata store is followed once for all streams of the
//! process, and only while there are any.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sextant_fleet::Follower;
use sextant_metadata::{Decision, DesiredState, MetadataStore};
use sextant_types::Code;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
};

use crate::problem::Problem;

/// Most streams at once.
const MOST_STREAMS: usize = 64;

/// Follows the decisions.
pub struct Feed {
    metadata: Arc<dyn MetadataStore>,
    places: Arc<Semaphore>,
    latest: Arc<Latest>,
}

/// What was told last.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// Grows each time that numbers begin again: the store was lost and nobody knew them any more.
    pub turn: u64,
    /// The decisions that are kept are in it.
    desired: Option<Arc<DesiredState>>,
}

struct Latest {
    news: watch::Sender<News>,
    /// The task that follows the store; `None` while nobody listens.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The greatest number among what is kept; 0 where there is none.
pub fn newest(desired: Option<&Arc<DesiredState>>) -> u64 {
    let last = desired.and_then(|desired| desired.decisions.last());
    last.map_or(0, |decision| decision.number)
}

// === impl Feed ===

impl Feed {
    /// Nothing is followed yet.
    pub fn new(metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            metadata,
            places: Arc::new(Semaphore::new(MOST_STREAMS)),
            latest: Arc::new(Latest {
                news: watch::Sender::default(),
                task: Mutex::default(),
            }),
        }
    }

    /// A place among the streams.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| {
            let detail = format!("`{MOST_STREAMS}` streams are open already: end one of them");
            Problem::new(Code::Overloaded, detail).retry_after_ms(1000)
        })
    }

    /// What is told from now on. Begins with what was told last, which may be nothing.
    pub fn subscribe(&self) -> watch::Receiver<News> {
        let mut task = self.latest.task();
        let receiver = self.latest.news.subscribe();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (latest, metadata) = (Arc::clone(&self.latest), Arc::clone(&self.metadata));
            *task = Some(tokio::spawn(latest.follow(metadata)));
        }
        receiver
    }
}

// === impl Latest ===

impl Latest {
    async fn follow(self: Arc<Self>, metadata: Arc<dyn MetadataStore>) {
        let mut follower = Follower::new(metadata);
        loop {
            tokio::select! {
                () = self.news.closed() => if self.rest() { return },
                _ = follower.changed() => self.tell(follower.view().desired.as_ref()),
            }
        }
    }

    fn tell(&self, desired: Option<&Arc<DesiredState>>) {
        self.news.send_if_modified(|news| {
            let (before, now) = (newest(news.desired.as_ref()), newest(desired));
            // What has been forgotten is no news; that numbers begin again shows with the next one.
            if now == before || now == 0 {
                return false;
            }
            news.turn += u64::from(now < before);
            news.desired = desired.cloned();
            true
        });
    }

    /// Whether nobody listens any more; forgets what was told then.
    fn rest(&self) -> bool {
        let mut task = self.task();
        if self.news.receiver_count() > 0 {
            return false;
        }
        self.news.send_modify(|news| news.desired = None);
        *task = None;
        true
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock()
    }
}

// === impl News ===

impl News {
    /// The first decision with a greater number.
    pub fn after(&self, number: u64) -> Option<&Decision> {
        let mut kept = self.desired.iter().flat_map(|desired| &desired.decisions);
        kept.find(|decision| decision.number > number)
    }
}
