//! The workers of a dispatcher, which come and go.
//!
//! Each worker has a position that it keeps for ever, so a worker that returns takes its old place in the scheduler and
//! in the index. A caller that uses earlier knowledge of a worker names the *life* in which it had that knowledge: what
//! was begun in one life says nothing about the next.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sextant_rpc::WorkerClient;
use sextant_types::{
    WorkerId,
    index::{DeviceIx, IndexVec},
};
use tokio::sync::watch;

/// The workers by position, readable without a lock.
pub(crate) struct Workers {
    members: ArcSwap<IndexVec<DeviceIx, Member>>,
    /// Held while the list is replaced.
    writing: Mutex<()>,
    lives: AtomicU64,
    revision: watch::Sender<u64>,
}

/// The worker at a position.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) id: WorkerId,
    /// `None` while it is away.
    pub(crate) client: Option<WorkerClient>,
    /// A number that changes whenever the worker comes or goes.
    pub(crate) life: u64,
}

impl Workers {
    pub(crate) fn new() -> Self {
        Self {
            members: ArcSwap::default(),
            writing: Mutex::default(),
            lives: AtomicU64::new(0),
            revision: watch::Sender::new(0),
        }
    }

    /// The list at this moment.
    pub(crate) fn load(&self) -> Guard<Arc<IndexVec<DeviceIx, Member>>> {
        self.members.load()
    }

    /// Changes whenever the list does.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Puts a worker at its position, replacing the client that was there.
    pub(crate) fn add(&self, client: WorkerClient) {
        let id = client.info().worker;
        self.change(|members, life| {
            let client = Some(client);
            match members.iter_mut().find(|member| member.id == id) {
                Some(member) => (member.client, member.life) = (client, life),
                None => drop(members.push(Member { id, client, life })),
            }
        });
    }

    /// Takes a worker away. Returns its position if it was there.
    pub(crate) fn remove(&self, id: &WorkerId) -> Option<DeviceIx> {
        self.change(|members, life| {
            let at = members.numbered().find(|(_, member)| member.id == *id)?.0;
            members[at].life = life;
            members[at].client.take().map(|_| at)
        })
    }

    /// Ends the life of every worker: what was begun before no longer counts.
    pub(crate) fn renew(&self) {
        self.change(|members, life| {
            members.iter_mut().for_each(|member| member.life = life);
        });
    }

    /// The client at a position, if the worker is still in the life `life`.
    pub(crate) fn client_in(&self, at: DeviceIx, life: u64) -> Option<WorkerClient> {
        let members = self.load();
        let member = members.get(at).filter(|member| member.life == life)?;
        member.client.clone()
    }

    /// Whether no worker is at a position.
    pub(crate) fn is_away(&self, at: DeviceIx) -> bool {
        let members = self.load();
        members.get(at).is_none_or(|member| member.client.is_none())
    }

    fn change<T>(&self, change: impl FnOnce(&mut IndexVec<DeviceIx, Member>, u64) -> T) -> T {
        let _writing = self.writing.lock();
        let mut members = IndexVec::clone(&self.members.load());
        let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let result = change(&mut members, life);
        self.members.store(Arc::new(members));
        self.revision.send_modify(|revision| *revision += 1);
        result
    }
}
