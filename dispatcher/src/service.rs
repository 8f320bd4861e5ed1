//! Keeps the index current: follows the metadata store's change feed.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use sextant_metadata::{MetadataStore, View};
use sextant_rpc::WorkerInfo;
use sextant_types::{Variant, WorkerId};

use crate::{
    Dispatcher,
    driver::Driver,
    families::Families,
    index::{Interner, Snapshot},
};

/// Pause after a failure of the store before it is asked again.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Time between two looks at estimates that nothing confirms.
const REFRESH: Duration = Duration::from_secs(1);

/// The dispatcher's background work.
pub struct Service {
    dispatcher: Arc<Dispatcher>,
    metadata: Arc<dyn MetadataStore>,
    interner: Interner,
    workers: Vec<WorkerId>,
    /// By position: whether the scheduler takes the worker to be up.
    up: Vec<bool>,
    /// The (worker, variant) pairs of which the driver was told.
    loaded: BTreeSet<(usize, u32)>,
    /// By variant: the publication of which the driver was told.
    published: BTreeMap<u32, Arc<Variant>>,
}

impl Service {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, metadata: Arc<dyn MetadataStore>) -> Self {
        let workers: Vec<WorkerId> = dispatcher
            .driver
            .workers()
            .iter()
            .map(|worker| worker.info().worker)
            .collect();
        Self {
            dispatcher,
            metadata,
            interner: Interner::default(),
            up: vec![false; workers.len()],
            workers,
            loaded: BTreeSet::new(),
            published: BTreeMap::new(),
        }
    }

    /// Runs until `shutdown`. While the store is away the last index stays in use.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let driver = Arc::clone(&self.dispatcher.driver);
        let _ticking = driver.tick();
        tokio::select! {
            () = shutdown => {}
            () = self.follow() => {}
            () = refresh_estimates(driver) => {}
        }
    }

    async fn follow(&mut self) {
        loop {
            let followed = self.follow_from_snapshot().await;
            if let Err(error) = followed {
                tracing::warn!(%error, "the change feed broke off; reading everything again");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }

    async fn follow_from_snapshot(&mut self) -> Result<(), sextant_metadata::Error> {
        let mut view = View::from(self.metadata.snapshot().await?);
        loop {
            self.publish(&view);
            self.metadata.changed(view.cursor).await?;
            let changes = self.metadata.changes(view.cursor).await?;
            view.follow(&changes);
        }
    }

    /// Builds the new index, tells the scheduler what came and went, then lets queries see it.
    fn publish(&mut self, view: &View) {
        let mut snapshot = Snapshot::build(view, &self.workers, &mut self.interner);
        snapshot.families = self.families(&snapshot);
        self.tell_of_workers(view);
        self.tell_of_variants(&snapshot);
        self.dispatcher.snapshot.store(Arc::new(snapshot));
        self.dispatcher
            .revision
            .send_modify(|revision| *revision += 1);
    }

    /// The families of the variants; what they have learnt is kept.
    fn families(&self, snapshot: &Snapshot) -> Families {
        let Some(policy) = self.dispatcher.config.parallelism else {
            return Families::default();
        };
        let workers = self.dispatcher.driver.workers();
        let infos: Vec<WorkerInfo> = workers.iter().map(|worker| worker.info()).collect();
        let before = self.dispatcher.snapshot.load();
        before.families.build(policy, snapshot.all(), |known| {
            let runs = |info: &&WorkerInfo| info.engines.contains(&known.variant.spec.engine);
            infos.iter().find(runs).map_or(1, |info| info.cores)
        })
    }

    fn tell_of_workers(&mut self, view: &View) {
        let driver = &self.dispatcher.driver;
        for (at, (worker, up)) in self.workers.iter().zip(&mut self.up).enumerate() {
            let is_up = view.workers.contains_key(worker);
            match (std::mem::replace(up, is_up), is_up) {
                (false, true) => driver.on_worker_up(at),
                (true, false) => driver.on_worker_down(at),
                _ => {}
            }
        }
    }

    fn tell_of_variants(&mut self, snapshot: &Snapshot) {
        self.tell_of_publications(snapshot);
        let mut loaded = BTreeSet::new();
        for known in snapshot.all() {
            for at in &known.workers {
                loaded.insert((*at, known.ordinal));
            }
        }
        let driver = &self.dispatcher.driver;
        for (at, ordinal) in loaded.difference(&self.loaded) {
            driver.on_loaded(*at, *ordinal);
        }
        for (at, ordinal) in self.loaded.difference(&loaded) {
            driver.on_unloaded(*at, *ordinal);
        }
        self.loaded = loaded;
    }

    /// Tells of variants that are new, changed or retired.
    fn tell_of_publications(&mut self, snapshot: &Snapshot) {
        let driver = &self.dispatcher.driver;
        let infos: Vec<WorkerInfo> = driver
            .workers()
            .iter()
            .map(|worker| worker.info())
            .collect();
        let mut published = BTreeMap::new();
        for known in snapshot.all() {
            let (ordinal, variant) = (known.ordinal, &known.variant);
            let before = self.published.remove(&ordinal);
            if !before.is_some_and(|before| Arc::ptr_eq(&before, variant)) {
                let runs = |info: &&WorkerInfo| info.engines.contains(&variant.spec.engine);
                let page_bytes = infos
                    .iter()
                    .find(runs)
                    .map_or(1, |info| info.pages.page_bytes);
                let weights = self.interner.weights(variant);
                let eligible = (0u32..)
                    .zip(&infos)
                    .filter(|(_, info)| runs(info))
                    .map(|(at, _)| at)
                    .collect();
                let spec = known.resident_model(&self.dispatcher.config, page_bytes, weights);
                driver.on_variant(ordinal, variant, spec, eligible);
            }
            published.insert(ordinal, Arc::clone(variant));
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
