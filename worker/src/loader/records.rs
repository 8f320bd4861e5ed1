//! Corrects the store's records of this worker's instances.
//!
//! Only this worker writes these records, and still they may differ from what is loaded: the answer to a command was
//! lost although the command was carried out, a command never arrived, or the store was restored with older content. A
//! record that says `loading` would then refuse every further load.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use sextant_metadata::{Command, Error, InstanceKey, InstanceState, Transition};
use sextant_types::{ApplicationId, Variant, VariantId, time::unix_ms};

use crate::Worker;

/// Variants whose records may be wrong, with their applications.
#[derive(Default)]
pub(crate) struct DoubtfulRecords(Mutex<BTreeMap<VariantId, ApplicationId>>);

impl DoubtfulRecords {
    pub(crate) fn add(&self, variant: VariantId, application: ApplicationId) {
        self.lock().insert(variant, application);
    }

    fn take(&self) -> BTreeMap<VariantId, ApplicationId> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<VariantId, ApplicationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Records that a variant is being loaded. The caller holds the lock of its turn, and the variant is not loaded.
    pub(crate) async fn note_loading(&self, variant: &Variant) -> Result<(), Error> {
        match self.tell(variant, Command::Load).await {
            Err(Error::Rejected(_) | Error::OtherApplication { .. }) => {
                self.correct(&variant.id, &variant.application).await?;
                self.tell(variant, Command::Load).await
            }
            told => told,
        }
    }

    /// Sends a command for this worker's instance of a variant. If the store may not have received it, the record is
    /// checked later.
    pub(crate) async fn tell(&self, variant: &Variant, command: Command) -> Result<(), Error> {
        let transition = self.transition(variant, command);
        let told = self.metadata.transition(&transition, unix_ms()).await;
        if told.is_err() {
            self.doubtful
                .add(variant.id.clone(), variant.application.clone());
        }
        told.map(drop)
    }

    /// Marks the records of all loaded variants as doubtful, after the store was away. The store may come back with older
    /// content. It may also have carried out a heartbeat whose answer, that nothing is recorded, was lost. An instance
    /// without queries sends no report that would reveal this.
    pub(crate) fn doubt_loaded(&self) {
        for instance in self.shared.instances() {
            let variant = &instance.variant;
            let application = variant.application.clone();
            self.doubtful.add(variant.id.clone(), application);
        }
    }

    /// Checks every record that may be wrong. Variants that are being loaded or unloaded are checked later.
    pub(crate) async fn correct_records(&self) {
        for (variant, application) in self.doubtful.take() {
            let turn = self.turn(&variant);
            let corrected = match turn.try_lock() {
                Ok(_turn) => self.correct(&variant, &application).await,
                Err(_) => {
                    self.doubtful.add(variant, application);
                    continue;
                }
            };
            if let Err(error) = corrected {
                tracing::debug!(%variant, %error, "an instance's record could not be corrected");
                self.doubtful.add(variant, application);
            }
        }
    }

    /// Corrects the record of a variant. `application` owns the record if the variant is not loaded. The caller holds
    /// the lock of its turn.
    pub(super) async fn correct(
        &self,
        variant: &VariantId,
        application: &ApplicationId,
    ) -> Result<(), Error> {
        let key = InstanceKey::new(variant.clone(), self.config.worker.clone());
        let record = self.metadata.instance(&key).await?;
        let loaded = self.shared.instance(variant);
        let loaded = loaded.map(|it| it.variant.application.clone());
        let application = loaded.as_ref().unwrap_or(application);
        let (state, mut owner) = match record {
            Some(record) => (record.state, record.application),
            None => (InstanceState::Inactive, application.clone()),
        };
        let steps = match owner == *application {
            true => steps(state, loaded.is_some()),
            // The record is left from a model that another application had under the same name.
            false => [
                steps(state, false),
                steps(InstanceState::Inactive, loaded.is_some()),
            ]
            .concat(),
        };
        if !steps.is_empty() {
            tracing::info!(%variant, %state, "the record of an instance is corrected");
        }
        for command in steps {
            if command == Command::Load {
                owner.clone_from(application);
            }
            let transition = Transition {
                key: key.clone(),
                application: owner.clone(),
                expected_version: None,
                command,
            };
            self.metadata.transition(&transition, unix_ms()).await?;
        }
        Ok(())
    }
}

/// The commands that lead from the state of a record to that of an instance that is, or is not, loaded.
fn steps(state: InstanceState, is_loaded: bool) -> Vec<Command> {
    use InstanceState::{Active, Draining, Failed, Inactive, Interfered, Loading, Overloaded};
    let reason = || "the worker's word was lost".to_owned();
    match (state, is_loaded) {
        (Active | Overloaded | Interfered, true) | (Inactive | Failed, false) => Vec::new(),
        (Loading, true) => vec![Command::Loaded],
        (Inactive | Failed, true) => vec![Command::Load, Command::Loaded],
        (Draining, true) => vec![
            Command::Fail { reason: reason() },
            Command::Load,
            Command::Loaded,
        ],
        (Loading, false) => vec![Command::LoadFailed { reason: reason() }, Command::Unloaded],
        (Active | Overloaded | Interfered, false) => {
            vec![Command::Fail { reason: reason() }, Command::Unloaded]
        }
        (Draining, false) => vec![Command::Unloaded],
    }
}

#[cfg(test)]
mod tests {
    use sextant_metadata::{Instance, apply};
    use sextant_types::WorkerId;

    use super::*;

    const STATES: [InstanceState; 7] = [
        InstanceState::Inactive,
        InstanceState::Loading,
        InstanceState::Active,
        InstanceState::Overloaded,
        InstanceState::Interfered,
        InstanceState::Draining,
        InstanceState::Failed,
    ];

    #[test]
    fn every_record_can_be_brought_to_what_is_true() {
        let key = InstanceKey::new(
            VariantId::new("v").expect("a name"),
            WorkerId::new("w").expect("a name"),
        );
        let application = ApplicationId::new("a").expect("a name");
        for (state, is_loaded) in STATES.into_iter().flat_map(|it| [(it, true), (it, false)]) {
            let mut record = Instance::absent(key.clone(), application.clone(), 0);
            record.state = state;
            for command in steps(state, is_loaded) {
                record = apply(&record, &command, 1).expect("it applies");
            }
            let is_right = match is_loaded {
                true => record.state.is_serving(),
                false => matches!(
                    record.state,
                    InstanceState::Inactive | InstanceState::Failed
                ),
            };
            assert!(is_right, "{state}, {is_loaded}: {}", record.state);
        }
    }
}
