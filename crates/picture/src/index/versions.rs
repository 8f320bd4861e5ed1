//! Which versions of models answer. Only this module separates versions that are not current.

use std::{collections::BTreeSet, sync::Arc};

use sextant_types::{Line, ModelId, Releases, Route};

use super::{IndexedVariant, Scope, Snapshot};

/// Which versions there are, and which of them answer.
#[derive(Default)]
pub(super) struct Versions {
    releases: Releases,
    /// The models that take part in what applications answer.
    answering: BTreeSet<ModelId>,
    /// Whether any version other than the current ones may answer, or is a shadow.
    has_others: bool,
}

impl Versions {
    pub(super) fn new(releases: Releases) -> Self {
        let lines = releases.lines();
        Self {
            answering: lines.iter().filter_map(Line::model).cloned().collect(),
            has_others: lines.iter().any(Line::has_others),
            releases,
        }
    }

    /// The model that a reference stands for.
    pub(super) fn model(&self, reference: &ModelId) -> Option<&ModelId> {
        self.releases.model(reference)
    }

    /// Whether a model takes part in the answers of its application.
    pub(super) fn answers(&self, model: &ModelId) -> bool {
        self.answering.contains(model)
    }

    /// The variants of an application that take part in its answers.
    pub(super) fn answering(&self, members: &[Arc<IndexedVariant>]) -> Vec<Arc<IndexedVariant>> {
        let answering = members.iter().filter(|it| self.answers(&it.variant.model));
        answering.cloned().collect()
    }
}

impl Snapshot {
    /// The scope of a model and of no other version of its name.
    pub fn model_exactly(&self, id: &ModelId) -> Option<&Scope> {
        self.models.get(id).map(Arc::as_ref)
    }

    /// Whether a model is the current version of its name.
    pub fn is_current(&self, model: &ModelId) -> bool {
        self.versions.answers(model)
    }

    /// Whether any version other than the current ones takes part in answering.
    pub fn has_others(&self) -> bool {
        self.versions.has_others
    }

    /// The names whose current versions answer a route.
    pub fn lines<'a>(&'a self, route: &'a Route) -> Box<dyn Iterator<Item = &'a Line> + 'a> {
        let releases = &self.versions.releases;
        match route {
            Route::Application(id) => Box::new(releases.lines_of(id)),
            Route::Model(reference) => Box::new(releases.whole(reference).into_iter()),
            Route::Variant(_) => Box::new(std::iter::empty()),
        }
    }

    /// The variants that may answer a route.
    pub fn members<'a>(
        &'a self,
        route: &'a Route,
    ) -> Box<dyn Iterator<Item = &'a Arc<IndexedVariant>> + 'a> {
        let scope = match route {
            Route::Application(id) => self.application(id),
            Route::Model(reference) => self.model(reference),
            Route::Variant(id) => return Box::new(self.variant(id).into_iter()),
        };
        Box::new(scope.into_iter().flat_map(|scope| &scope.members))
    }
}
