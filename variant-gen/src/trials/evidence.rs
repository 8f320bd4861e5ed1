//! The feedback on a version that is tried, beside that on the current one.
//!
//! A canary has answered queries of its own: outcomes of both versions come one by one. A shadow has answered queries
//! of the current version a second time, so a label for one answer also scores the other, and the two make a pair. If
//! both are right, or both wrong, the pair shows nothing; only the other pairs count, as in McNemar's test (1947). So
//! far fewer queries decide than if the versions answer different ones.
//!
//! Rows are read in the order in which they were given, each once; rows about answers from before the trial are left
//! out. Rows that are given during a look are read at the next look: a row may be written a moment after the time that
//! it carries.

use std::collections::BTreeMap;

use sextant_feedback::{Kind, Label, Prediction, outcome, score, serial_of};
use sextant_judging::{Difference, Outcome, Rules, Side};
use sextant_registry::{Feedback, FeedbackPlace, Model, Registry};
use sextant_types::{Metric, ModelId, RewardDirection, Stage};

use crate::Error;

/// Rows of one page.
const PAGE: u32 = 1000;

/// Most pages of one look.
const MOST_PAGES: usize = 20;

/// Rows younger than this are left for the next look, ms.
const SETTLES_MS: u64 = 2000;

/// The same for a shadow: its answer may be written this long after the label came.
const SHADOW_SETTLES_MS: u64 = 6000;

/// The outcomes of one trial.
pub(super) struct Evidence {
    /// When the version came to its stage, ms since the Unix epoch.
    since_ms: u64,
    /// The version that it is compared with.
    current: ModelId,
    metric: Metric,
    /// Whether greater or smaller rewards are better.
    rewards: RewardDirection,
    difference: Difference,
    after: FeedbackPlace,
}

impl Evidence {
    /// The evidence of a trial beside the current version; `None` if the application accepts no feedback.
    pub(super) async fn of(
        registry: &Registry,
        (model, current): (&Model, &Model),
        rules: &Rules,
    ) -> Result<Option<Self>, Error> {
        let application = registry.application(&model.application).await?;
        let Some(settings) = &application.feedback else {
            return Ok(None);
        };
        Ok(Some(Self {
            since_ms: model.release.since_ms,
            current: current.id.clone(),
            metric: application.metric,
            rewards: settings.reward,
            difference: Difference::new(rules),
            after: (model.release.since_ms, String::new(), 0, Kind::Label),
        }))
    }

    /// Whether it belongs to the present trial beside the present current version.
    pub(super) fn is_of(&self, model: &Model, current: &Model) -> bool {
        self.since_ms == model.release.since_ms && self.current == current.id
    }

    /// Reads the rows since the last look.
    pub(super) async fn read(
        &mut self,
        registry: &Registry,
        (model, now_ms): (&Model, u64),
    ) -> Result<&Difference, Error> {
        let is_shadow = matches!(model.release.stage, Stage::Shadow { .. });
        let settles_ms = match is_shadow {
            true => SHADOW_SETTLES_MS,
            false => SETTLES_MS,
        };
        let settled_ms = now_ms.saturating_sub(settles_ms);
        for _ in 0..MOST_PAGES {
            let page = registry.feedback(&model.application, Some(&self.after), PAGE);
            let rows = page.await?;
            let settled = rows.iter().take_while(|row| row.given_ms <= settled_ms);
            let settled: Vec<&Feedback> = settled.collect();
            let shadows = match is_shadow {
                true => self.shadows(registry, (model, &settled)).await?,
                false => BTreeMap::new(),
            };
            for row in &settled {
                self.after = row.place();
                match is_shadow {
                    _ if row.answered_ms < self.since_ms => {}
                    true => self.take_pair(&shadows, row),
                    false => self.take_one(model, row),
                }
            }
            if settled.len() < PAGE as usize {
                break;
            }
        }
        Ok(&self.difference)
    }

    /// The shadow's answers to the queries of rows.
    async fn shadows(
        &self,
        registry: &Registry,
        (model, rows): (&Model, &[&Feedback]),
    ) -> Result<BTreeMap<String, Prediction>, Error> {
        let of_current = rows.iter().filter(|row| self.is_label_of_current(row));
        let serials: Vec<&str> = of_current.filter_map(|row| serial_of(&row.query)).collect();
        match serials.is_empty() {
            true => Ok(BTreeMap::new()),
            false => Ok(registry.shadow_answers(&model.id, &serials).await?),
        }
    }

    fn is_label_of_current(&self, row: &Feedback) -> bool {
        row.kind == Kind::Label && row.model == self.current && row.score.is_some()
    }

    /// Adds a label for an answer of the current version, if the shadow has answered the same query.
    fn take_pair(&mut self, shadows: &BTreeMap<String, Prediction>, row: &Feedback) {
        if !self.is_label_of_current(row) {
            return;
        }
        let shadow = serial_of(&row.query).and_then(|serial| shadows.get(serial));
        let label = serde_json::from_str(&row.value).ok();
        let label = label.as_ref().and_then(Label::of_json);
        let (Some(shadow), Some(label), Some(current)) = (shadow, label, row.score) else {
            return;
        };
        // A label that fits one answer fits the other: both have the same signature.
        let tried = score(self.metric, shadow, row.row, &label).ok().flatten();
        let value = |score| outcome(self.metric, self.rewards, (row.kind, score));
        if let (Some(tried), Some(current)) = (tried.and_then(value), value(current)) {
            self.difference.pair(tried, current);
        }
    }

    fn take_one(&mut self, model: &Model, row: &Feedback) {
        let version = match &row.model {
            id if *id == model.id => Side::Tried,
            id if *id == self.current => Side::Current,
            _ => return,
        };
        let value = |score| outcome(self.metric, self.rewards, (row.kind, score));
        if let Some(value) = row.score.and_then(value) {
            self.difference.one(Outcome { version, value });
        }
    }
}
