//! What a front end knows of the variants: enough to check a query and to name its outputs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use sextant_metadata::{InstanceState, View};
use sextant_rpc::QueryError;
use sextant_types::{ApplicationId, Code, ModelId, Releases, Route, Variant, VariantId, WorkerId};

/// Advised time until a retry before the metadata was read, ms.
const UNREAD_RETRY_MS: f64 = 500.0;

/// Published variants. All variants that answer for one application or model have the same
/// signature, so any of them represents it.
#[derive(Default)]
pub(super) struct Catalog {
    applications: HashMap<ApplicationId, Arc<Variant>>,
    models: HashMap<ModelId, Arc<Variant>>,
    /// The meaning of references to models.
    releases: Releases,
    variants: HashMap<VariantId, Arc<Variant>>,
    /// The variants of applications that cache answers.
    cached: HashMap<ApplicationId, Vec<Arc<Variant>>>,
    /// Whether it was read from the metadata store. Before that, the published variants are not
    /// known.
    is_read: bool,
}

/// Where variants are served, and where they may be loaded.
#[derive(Default)]
pub(super) struct Serving {
    served: BTreeSet<VariantId>,
    /// Number of workers that accept new queries.
    workers: usize,
    /// Whether pools start workers.
    has_pools: bool,
    /// By variant: the number of these workers on which it could not be loaded.
    failures: BTreeMap<VariantId, usize>,
}

// === impl Catalog ===

impl Catalog {
    pub(super) fn new(view: &View) -> Self {
        let variants = view.variants.values();
        let released = variants.map(|it| (&it.application, &it.model, &it.release));
        let mut catalog = Self {
            is_read: true,
            releases: Releases::of(released),
            ..Self::default()
        };
        for (id, variant) in &view.variants {
            let application = catalog.applications.entry(variant.application.clone());
            application.or_insert_with(|| Arc::clone(variant));
            let model = catalog.models.entry(variant.model.clone());
            model.or_insert_with(|| Arc::clone(variant));
            catalog.variants.insert(id.clone(), Arc::clone(variant));
            if variant.resources.cache_bytes > 0 {
                let cached = catalog.cached.entry(variant.application.clone());
                cached.or_default().push(Arc::clone(variant));
            }
        }
        catalog
    }

    /// A variant whose signature is that of the application, model or variant in `route`.
    pub(super) fn find(&self, route: &Route) -> Result<&Arc<Variant>, QueryError> {
        let found = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.releases.model(id).and_then(|id| self.models.get(id)),
            Route::Variant(id) => self.variants.get(id),
        };
        found.ok_or_else(|| match self.is_read {
            true => QueryError::not_found(route),
            false => unread(),
        })
    }

    /// The variants of an application that caches answers.
    pub(super) fn cached(&self, application: &ApplicationId) -> &[Arc<Variant>] {
        self.cached.get(application).map_or(&[], Vec::as_slice)
    }

    pub(super) fn variant(&self, id: &VariantId) -> Option<&Arc<Variant>> {
        self.variants.get(id)
    }

    /// Whether a variant of `route` serves or may be loaded.
    pub(super) fn is_ready(&self, route: &Route, serving: &Serving) -> bool {
        let mut variants = self.variants.values();
        match route {
            Route::Variant(id) => self.variants.contains_key(id) && serving.may_answer(id),
            Route::Application(id) => {
                variants.any(|it| it.application == *id && serving.may_answer(&it.id))
            }
            Route::Model(id) => {
                let id = self.releases.model(id);
                variants.any(|it| Some(&it.model) == id && serving.may_answer(&it.id))
            }
        }
    }
}

fn unread() -> QueryError {
    let message = "the front end starts and has not read yet what is registered; try again";
    QueryError::new(Code::Unavailable, message).retry_after_ms(UNREAD_RETRY_MS)
}

// === impl Serving ===

impl Serving {
    pub(super) fn new(view: &View) -> Self {
        let is_usable = |id: &WorkerId| {
            let worker = view.workers.get(id);
            worker.is_some_and(|worker| !worker.record.draining)
        };
        let mut serving = Self {
            workers: view.workers.keys().filter(|id| is_usable(id)).count(),
            has_pools: view.has_pools(),
            ..Self::default()
        };
        for instance in view.instances.values() {
            let variant = &instance.key.variant;
            if instance.state.is_serving() {
                serving.served.insert(variant.clone());
            } else if instance.state == InstanceState::Failed && is_usable(&instance.key.worker) {
                *serving.failures.entry(variant.clone()).or_default() += 1;
            }
        }
        serving
    }

    /// Whether a worker exists or may be started.
    pub(super) fn has_workers(&self) -> bool {
        self.workers > 0 || self.has_pools
    }

    fn may_answer(&self, variant: &VariantId) -> bool {
        let failures = self.failures.get(variant).copied().unwrap_or_default();
        self.served.contains(variant) || failures < self.workers
    }
}
