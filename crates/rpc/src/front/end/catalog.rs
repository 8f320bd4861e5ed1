//! What a front end knows of the variants: enough to check a query and to name its outputs.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use sextant_metadata::{InstanceKey, View};
use sextant_types::{ApplicationId, ModelId, Variant, VariantId};

use crate::{QueryError, Route};

/// Published variants. All that answer for one application or model have the same signature, so that
/// any of them stands for it.
#[derive(Default)]
pub(super) struct Catalog {
    applications: HashMap<ApplicationId, Arc<Variant>>,
    models: HashMap<ModelId, Arc<Variant>>,
    variants: HashMap<VariantId, Arc<Variant>>,
}

/// Instances that serve.
#[derive(Default)]
pub(super) struct Serving(BTreeSet<InstanceKey>);

// === impl Catalog ===

impl Catalog {
    pub(super) fn new(view: &View) -> Self {
        let mut catalog = Self::default();
        for (id, variant) in &view.variants {
            let application = catalog.applications.entry(variant.application.clone());
            application.or_insert_with(|| Arc::clone(variant));
            let model = catalog.models.entry(variant.model.clone());
            model.or_insert_with(|| Arc::clone(variant));
            catalog.variants.insert(id.clone(), Arc::clone(variant));
        }
        catalog
    }

    /// A variant whose signature is that of what `route` addresses.
    pub(super) fn find(&self, route: &Route) -> Result<&Arc<Variant>, QueryError> {
        let found = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.models.get(id),
            Route::Variant(id) => self.variants.get(id),
        };
        found.ok_or_else(|| QueryError::not_found(route))
    }

    pub(super) fn variant(&self, id: &VariantId) -> Option<&Arc<Variant>> {
        self.variants.get(id)
    }

    /// Whether one of the serving instances answers for `route`.
    pub(super) fn is_ready(&self, route: &Route, serving: &Serving) -> bool {
        let answers = |variant: &VariantId| match route {
            Route::Variant(id) => variant == id,
            Route::Application(id) => self
                .variant(variant)
                .is_some_and(|variant| variant.application == *id),
            Route::Model(id) => self
                .variant(variant)
                .is_some_and(|variant| variant.model == *id),
        };
        serving.0.iter().any(|key| answers(&key.variant))
    }
}

// === impl Serving ===

impl Serving {
    pub(super) fn new(view: &View) -> Self {
        let instances = view.instances.values();
        let serving = instances.filter(|instance| instance.state.is_serving());
        Self(serving.map(|instance| instance.key.clone()).collect())
    }
}
