//! What feedback says of a version that is tried, beside the current one.
//!
//! Rows are read in the order in which they were given, each once, and those of answers from before the trial are left
//! out. What is given while the trial is looked at is read at the next look: a row may be written a moment after the
//! time that it carries.

use sextant_feedback::{Kind, outcome};
use sextant_judging::{Difference, Outcome, Rules, Side};
use sextant_registry::{Feedback, FeedbackPlace, Model, Registry};
use sextant_types::{Metric, ModelId};

use crate::Error;

/// Rows of one page.
const PAGE: u32 = 1000;

/// Most pages of one look.
const MOST_PAGES: usize = 20;

/// Rows younger than this are left for the next look, ms.
const SETTLES_MS: u64 = 2000;

/// The outcomes of one trial.
pub(super) struct Evidence {
    /// When the version came to its stage, ms since the Unix epoch.
    since_ms: u64,
    /// The version that it is held against.
    current: ModelId,
    metric: Metric,
    difference: Difference,
    after: FeedbackPlace,
}

impl Evidence {
    /// Of a trial beside the current version whose application takes feedback; `None` where it takes none.
    pub(super) async fn of(
        registry: &Registry,
        (model, current): (&Model, &Model),
        rules: &Rules,
    ) -> Result<Option<Self>, Error> {
        let application = registry.application(&model.application).await?;
        if application.feedback.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            since_ms: model.release.since_ms,
            current: current.id.clone(),
            metric: application.metric,
            difference: Difference::new(rules),
            after: (model.release.since_ms, String::new(), 0, Kind::Label),
        }))
    }

    /// Whether it is that of the present trial beside the present current version.
    pub(super) fn is_of(&self, model: &Model, current: &Model) -> bool {
        self.since_ms == model.release.since_ms && self.current == current.id
    }

    /// Reads what was given since the last look.
    pub(super) async fn read(
        &mut self,
        registry: &Registry,
        (model, now_ms): (&Model, u64),
    ) -> Result<&Difference, Error> {
        let settled_ms = now_ms.saturating_sub(SETTLES_MS);
        for _ in 0..MOST_PAGES {
            let page = registry.feedback(&model.application, Some(&self.after), PAGE);
            let rows = page.await?;
            let settled = rows.iter().take_while(|row| row.given_ms <= settled_ms);
            let mut read = 0;
            for row in settled {
                self.take(model, row);
                read += 1;
            }
            if read < PAGE as usize {
                break;
            }
        }
        Ok(&self.difference)
    }

    fn take(&mut self, model: &Model, row: &Feedback) {
        self.after = (row.given_ms, row.query.clone(), row.row, row.kind);
        if row.answered_ms < self.since_ms {
            return;
        }
        let version = match &row.model {
            id if *id == model.id => Side::Tried,
            id if *id == self.current => Side::Current,
            _ => return,
        };
        let score = row.score;
        if let Some(value) = score.and_then(|score| outcome(self.metric, row.kind, score)) {
            self.difference.one(Outcome { version, value });
        }
    }
}
