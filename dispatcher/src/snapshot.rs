//! The state of the fleet at one moment, and what the dispatcher keeps with it.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use sextant_metadata::View;
use sextant_picture::Interner;
use sextant_types::index::ApplicationIx;

use crate::{budget::Account, clock::Clock, families::Families};

/// The state of the fleet at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(crate) picture: sextant_picture::Snapshot,
    pub(crate) accounts: Accounts,
    /// Groups of variants whose number of threads is chosen by load.
    pub(crate) families: Families,
    /// Whether it was built from a view of the metadata store. Before the first view nothing is known of what is
    /// registered.
    pub(crate) is_read: bool,
    /// Whether a worker is present that stays, or a pool starts workers.
    pub(crate) has_workers: bool,
    /// The number of workers of the fleet that cannot be reached.
    pub(crate) unreached: usize,
}

/// The accounts of the applications that have a budget. They are kept from one snapshot to the next.
#[derive(Clone, Default)]
pub(crate) struct Accounts(BTreeMap<ApplicationIx, Arc<Account>>);

impl Deref for Snapshot {
    type Target = sextant_picture::Snapshot;

    fn deref(&self) -> &Self::Target {
        &self.picture
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// The account of an application that has a budget.
    pub(crate) fn account(&self, application: ApplicationIx) -> Option<&Arc<Account>> {
        self.accounts.0.get(&application)
    }
}

// === impl Accounts ===

impl Accounts {
    /// The accounts of the applications of the published variants.
    pub(crate) fn of(view: &View, before: &Self, interner: &mut Interner, clock: Clock) -> Self {
        let mut accounts: BTreeMap<ApplicationIx, Arc<Account>> = BTreeMap::new();
        for variant in view.variants.values() {
            let Some(budget) = variant.resources.budget_per_hour_usd else {
                continue;
            };
            let number = interner.application(&variant.application);
            // While a change is being published, the first variant of an application decides.
            let known = before.0.get(&number);
            accounts.entry(number).or_insert_with(|| match known {
                Some(known) if known.budget_per_hour_usd() == budget => Arc::clone(known),
                Some(known) => Arc::new(known.with_budget(budget)),
                None => Arc::new(Account::new(variant.application.clone(), budget, clock)),
            });
        }
        Self(accounts)
    }
}
