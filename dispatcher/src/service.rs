//! Keeps the index current: follows the metadata store's change feed and the workers that come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use sextant_fleet::{Follower, News};
use sextant_metadata::{MetadataStore, View};
use sextant_rpc::WorkerInfo;
use sextant_types::{EngineName, Variant, WorkerId};

use crate::{
    Dispatcher,
    driver::Driver,
    families::Families,
    index::{Interner, Known, Snapshot},
    workers::Member,
};

/// Time between two looks at estimates that nothing confirms.
const REFRESH: Duration = Duration::from_secs(1);

/// The dispatcher's background work.
pub struct Service {
    follower: Follower,
    teller: Teller,
}

/// What the driver and the queries have been told.
struct Teller {
    dispatcher: Arc<Dispatcher>,
    interner: Interner,
    /// By position: the life in which the scheduler takes the worker to be up.
    up: Vec<Option<u64>>,
    /// The (worker, variant) pairs of which the driver was told.
    loaded: BTreeSet<(usize, u32)>,
    /// By variant: what the driver was told of it.
    published: BTreeMap<u32, Published>,
}

/// A variant as the driver knows it.
struct Published {
    variant: Arc<Variant>,
    page_bytes: u64,
    /// Positions of the workers that have its engine.
    eligible: Vec<u32>,
}

/// A worker that can be reached.
struct Present {
    at: usize,
    id: WorkerId,
    life: u64,
    info: WorkerInfo,
}

impl Service {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            follower: Follower::new(metadata),
            teller: Teller {
                dispatcher,
                interner: Interner::default(),
                up: Vec::new(),
                loaded: BTreeSet::new(),
                published: BTreeMap::new(),
            },
        }
    }

    /// Runs until `shutdown`. While the store is away the last index stays in use.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let driver = Arc::clone(&self.teller.dispatcher.driver);
        let _ticking = driver.tick();
        tokio::select! {
            () = shutdown => {}
            () = self.follow() => {}
            () = refresh_estimates(driver) => {}
        }
    }

    async fn follow(&mut self) {
        let driver = Arc::clone(&self.teller.dispatcher.driver);
        let mut workers = driver.workers().subscribe();
        self.follower.changed().await;
        loop {
            workers.mark_unchanged();
            self.teller.publish(self.follower.view());
            loop {
                tokio::select! {
                    news = self.follower.changed() => if news == News::Structure { break },
                    // The sender lives as long as the driver.
                    _ = workers.changed() => break,
                }
            }
        }
    }
}

impl Teller {
    /// Builds the new index, tells the scheduler what came and went, then lets queries see it.
    fn publish(&mut self, view: &View) {
        let driver = Arc::clone(&self.dispatcher.driver);
        let leads = driver.leads();
        let present: Vec<Present> = driver
            .workers()
            .load()
            .iter()
            .enumerate()
            .filter_map(Present::of)
            .collect();
        let usable: Vec<&Present> = present.iter().filter(|one| one.is_usable(view)).collect();
        let positions = usable.iter().map(|one| (&one.id, one.at)).collect();
        let round_trip = driver.round_trip();
        let mut snapshot = Snapshot::build(view, &positions, round_trip, &mut self.interner);
        snapshot.families = self.families(&snapshot, &present);
        self.tell_of_publications(&driver, &snapshot, &present);
        let nothing = Snapshot::default();
        match leads {
            true => {
                self.tell_of_workers(&driver, &usable);
                self.tell_of_instances(&driver, &snapshot);
            }
            false => {
                self.tell_of_workers(&driver, &[]);
                self.tell_of_instances(&driver, &nothing);
            }
        }
        self.dispatcher.snapshot.store(Arc::new(snapshot));
        self.dispatcher
            .revision
            .send_modify(|revision| *revision += 1);
    }

    /// The families of the variants; what they have learnt is kept.
    fn families(&self, snapshot: &Snapshot, present: &[Present]) -> Families {
        let Some(policy) = self.dispatcher.config.parallelism else {
            return Families::default();
        };
        let before = self.dispatcher.snapshot.load();
        before.families.build(policy, snapshot.all(), |known| {
            let engine = &known.variant.spec.engine;
            let first = present.iter().find(|one| one.runs(engine));
            first.map_or(1, |one| one.info.cores)
        })
    }

    fn tell_of_workers(&mut self, driver: &Driver, usable: &[&Present]) {
        let positions = usable.iter().map(|one| one.at + 1).max().unwrap_or(0);
        self.up.resize(self.up.len().max(positions), None);
        let mut lives = vec![None; self.up.len()];
        for one in usable {
            lives[one.at] = Some(one.life);
        }
        for (at, (before, life)) in self.up.iter_mut().zip(lives).enumerate() {
            if *before == life {
                continue;
            }
            // A worker that comes back has nothing until that is told anew.
            self.loaded.retain(|(on, _)| *on != at);
            match life {
                Some(life) => driver.on_worker_up(at, life),
                None => driver.on_worker_down(at),
            }
            *before = life;
        }
    }

    fn tell_of_instances(&mut self, driver: &Driver, snapshot: &Snapshot) {
        let mut loaded = BTreeSet::new();
        for known in snapshot.all() {
            for at in &known.workers {
                loaded.insert((*at, known.ordinal));
            }
        }
        for (at, ordinal) in loaded.difference(&self.loaded) {
            driver.on_loaded(*at, *ordinal);
        }
        for (at, ordinal) in self.loaded.difference(&loaded) {
            driver.on_unloaded(*at, *ordinal);
        }
        self.loaded = loaded;
    }

    /// Tells of variants that are new, changed or retired, and of workers that can load them.
    fn tell_of_publications(&mut self, driver: &Driver, snapshot: &Snapshot, present: &[Present]) {
        let mut published = BTreeMap::new();
        for known in snapshot.all() {
            let now = Published::of(known, present);
            let before = self.published.remove(&known.ordinal);
            match before.filter(|before| before.is_same(&now)) {
                Some(before) if before.eligible == now.eligible => {}
                Some(_) => driver.on_eligible(known.ordinal, now.eligible.clone()),
                None => {
                    let weights = self.interner.weights(&now.variant);
                    let config = &self.dispatcher.config;
                    let spec = known.resident_model(config, now.page_bytes, weights);
                    driver.on_variant(known.ordinal, &now.variant, spec, now.eligible.clone());
                }
            }
            published.insert(known.ordinal, now);
        }
        for retired in std::mem::replace(&mut self.published, published).into_keys() {
            driver.on_retired(retired);
        }
    }
}

async fn refresh_estimates(driver: Arc<Driver>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        driver.refresh_estimates();
    }
}

// === impl Present ===

impl Present {
    fn of((at, member): (usize, &Member)) -> Option<Self> {
        Some(Self {
            at,
            id: member.id.clone(),
            life: member.life,
            info: member.client.as_ref()?.info(),
        })
    }

    /// Whether anything new may be sent to it.
    fn is_usable(&self, view: &View) -> bool {
        let worker = view.workers.get(&self.id);
        worker.is_some_and(|worker| !worker.record.draining)
    }

    fn runs(&self, engine: &EngineName) -> bool {
        self.info.engines.contains(engine)
    }
}

// === impl Published ===

impl Published {
    fn of(known: &Known, present: &[Present]) -> Self {
        let engine = &known.variant.spec.engine;
        let first = present.iter().find(|one| one.runs(engine));
        let eligible = present.iter().filter(|one| one.runs(engine));
        Self {
            variant: Arc::clone(&known.variant),
            page_bytes: first.map_or(1, |one| one.info.pages.page_bytes),
            eligible: eligible.map(|one| one.at as u32).collect(),
        }
    }

    /// Whether the queue and the pages of another telling are the same.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.variant, &other.variant) && self.page_bytes == other.page_bytes
    }
}
