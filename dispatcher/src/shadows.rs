//! The answers of shadows, kept until feedback says what they are worth.
//!
//! The token of the current version's answer has a number, and the shadow's answer to the same query is kept under the
//! same number. A label for the one answer therefore scores the other as well, row by row. Answers wait here until the
//! next look and are then written into the registry together. If more come than can be written, the excess is dropped:
//! the trial takes longer and remains correct.

use std::{collections::VecDeque, future::Future, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_feedback::{LATEST_MS, Prediction};
use sextant_fleet::turned;
use sextant_registry::{Registry, ShadowAnswer};
use sextant_types::{ModelId, Tensor, Variant, time::unix_ms};
use tokio::sync::watch;

use crate::{Dispatcher, agreement::Sample};

/// The most answers that wait.
const MOST_WAITING: usize = 4096;

/// The most answers that are kept, of some tens of bytes each.
const MOST_KEPT: u64 = 200_000;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// Looks between two removals of old answers.
const LOOKS_PER_REMOVAL: u32 = 120;

/// Answers of shadows that are not written yet.
#[derive(Default)]
pub(crate) struct Shadows(Mutex<VecDeque<ShadowAnswer>>);

/// Writes the answers of shadows while the dispatcher leads.
pub struct ShadowService {
    dispatcher: Arc<Dispatcher>,
    registry: Registry,
}

// === impl Shadows ===

impl Shadows {
    /// Takes a shadow's answer to a query, if feedback on it may come and can be scored.
    pub(crate) fn note(
        &self,
        (model, variant): (&ModelId, &Variant),
        sample: &Sample,
        outputs: &[Tensor],
    ) {
        let (Some(serial), [output]) = (sample.serial, outputs) else {
            return;
        };
        let prediction = Prediction::of(variant.accuracy.metric, output, sample.rows);
        if prediction == Prediction::Unknown {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.len() < MOST_WAITING {
            waiting.push_back(ShadowAnswer {
                model: model.clone(),
                serial,
                answered_ms: unix_ms(),
                rows: sample.rows,
                prediction,
            });
        }
    }

    fn take(&self) -> Vec<ShadowAnswer> {
        self.0.lock().drain(..).collect()
    }

    /// Puts back answers that could not be written, as far as there is room.
    fn put_back(&self, answers: Vec<ShadowAnswer>) {
        let mut waiting = self.0.lock();
        let room = MOST_WAITING.saturating_sub(waiting.len());
        for answer in answers.into_iter().take(room).rev() {
            waiting.push_front(answer);
        }
    }
}

// === impl ShadowService ===

impl ShadowService {
    /// Makes a service for the shadows of `dispatcher`.
    pub fn new(dispatcher: Arc<Dispatcher>, registry: Registry) -> Self {
        Self {
            dispatcher,
            registry,
        }
    }

    /// Writes until `shutdown`, and only while `leading` is true.
    pub async fn run_while(
        self,
        mut leading: watch::Receiver<bool>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                () = turned(&mut leading, true) => {}
            }
            tokio::select! {
                () = &mut shutdown => return,
                () = turned(&mut leading, false) => {}
                () = self.write() => {}
            }
        }
    }

    async fn write(&self) {
        let mut looks = 0u32;
        loop {
            tokio::time::sleep(LOOK).await;
            let answers = self.dispatcher.shadows.take();
            if let Err(error) = self.registry.put_shadow_answers(&answers).await {
                tracing::debug!(%error, "what shadows have answered is written later");
                self.dispatcher.shadows.put_back(answers);
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_REMOVAL) {
                let before_ms = unix_ms().saturating_sub(LATEST_MS);
                let removed = self.registry.prune_shadow_answers(before_ms, MOST_KEPT);
                if let Err(error) = removed.await {
                    tracing::debug!(%error, "what shadows have answered is removed later");
                }
            }
        }
    }
}
