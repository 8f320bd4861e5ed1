//! The autoscaler's decisions, as they are made. The process follows the metadata store once for all streams, and only
//! while there are streams.

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

/// The latest decisions.
#[derive(Debug, Clone, Default)]
pub struct News {
    /// Grows each time that the numbers begin again, because the store was lost and nobody had its content.
    pub turn: u64,
    /// Contains the kept decisions.
    desired: Option<Arc<DesiredState>>,
}

struct Latest {
    news: watch::Sender<News>,
    /// The task that follows the store; `None` while there are no streams.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The greatest number of the kept decisions; 0 if there are none.
pub fn newest(desired: Option<&Arc<DesiredState>>) -> u64 {
    let last = desired.and_then(|desired| desired.decisions.last());
    last.map_or(0, |decision| decision.number)
}

// === impl Feed ===

impl Feed {
    /// A feed that does not follow the store yet.
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

    /// Takes a place among the streams.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| {
            let detail = format!("`{MOST_STREAMS}` streams are open already: end one of them");
            Problem::new(Code::Overloaded, detail).retry_after_ms(1000)
        })
    }

    /// A receiver of further decisions. It begins with the latest ones, which may be none.
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
            // Forgotten decisions are not reported. If the numbers begin again, the next decision shows it.
            if now == before || now == 0 {
                return false;
            }
            news.turn += u64::from(now < before);
            news.desired = desired.cloned();
            true
        });
    }

    /// Whether there are no more streams; if so, forgets the decisions.
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
