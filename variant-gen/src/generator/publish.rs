//! The last step: variants, prices, marks of the frontier, and the end of the job.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sextant_types::{
    Accuracy, Code, Digest, Precision, Variant, VariantId, as_uploaded, time::unix_ms,
};

use super::{
    Configuration, Generation, Inspection, MeasureOutcome, Phase, Registration, Summary,
    inspect::variant_id, warnings,
};
use crate::{
    Error, configuration::BATCHES, frontier, measure::Measurement, publisher::Pricing, step,
};

/// Most reasons that an error lists.
const REASONS: usize = 3;

/// The results of the earlier steps.
pub(super) struct Outcome<'a> {
    pub inspected: &'a Inspection,
    pub generated: &'a BTreeMap<Precision, Generation>,
    pub measured: &'a [(Configuration, MeasureOutcome)],
}

impl Registration<'_> {
    /// Shows the variants to dispatchers, then stores them together with the end of the job. If storing fails, they are
    /// hidden again; a restarting process hides them, too.
    pub(super) async fn publish(&mut self, outcome: &Outcome<'_>) -> Result<Summary, Error> {
        self.begin(step::PUBLISH).await?;
        let pricing = self.parts.publisher.pricing().await?;
        let mut mine = self.variants(outcome, &pricing)?;
        let registry = &self.parts.registry;
        let release = registry.release_when_ready(&self.model.id).await?;
        for variant in &mut mine {
            variant.release = release.clone();
            variant.foreign = self.model.is_foreign();
        }
        match (mine.is_empty(), self.extends()) {
            (true, true) => return self.add_nothing(outcome).await,
            (true, false) => return Err(nothing_runs(outcome.measured)),
            (false, _) => self.give_up(outcome).await?,
        }
        let publisher = &self.parts.publisher;
        let _turn = publisher.take_turn().await;
        let own: BTreeSet<VariantId> = mine.iter().map(|variant| variant.id.clone()).collect();
        let others = publisher.others(&self.model.application, &own);
        let mut all = mine;
        all.extend(others.await?);
        let changed = frontier::mark(&mut all);
        let (mine, _) = all.split_at(own.len());
        let summary = outcome.summary(mine);
        let mut stored = mine.to_vec();
        stored.extend(changed.into_iter().filter(|it| !own.contains(&it.id)));
        let finished = self.finish(&stored, &summary).await;
        if finished.is_err() {
            // The registry decides what is shown; its own failure is reported first.
            publisher.follow_registry().await.ok();
        }
        finished.map(|()| summary)
    }

    async fn finish(&self, variants: &[Variant], summary: &Summary) -> Result<(), Error> {
        self.parts.publisher.show(variants).await?;
        self.reach(step::PUBLISH, Phase::Worked).await?;
        let (job, owner) = (&self.claim.job.id, &self.claim.owner);
        let total = self.total_steps();
        let registry = &self.parts.registry;
        registry
            .advance(job, owner, step::PUBLISH, (total, total), unix_ms())
            .await?;
        let result = json!(summary);
        registry
            .finish_with(job, owner, variants, &result, unix_ms())
            .await?;
        self.reach(step::PUBLISH, Phase::Stored).await
    }

    /// The variants: each configuration that runs, with each maximum batch that was measured.
    fn variants(
        &self,
        outcome: &Outcome<'_>,
        pricing: &Pricing<'_>,
    ) -> Result<Vec<Variant>, Error> {
        let mut variants = Vec::new();
        for (configuration, measured) in outcome.measured {
            let MeasureOutcome::Done { measurement } = measured else {
                continue;
            };
            let made = outcome.generated.get(&configuration.precision);
            let Some(Generation::Made { artefact, .. }) = made else {
                continue;
            };
            for max_batch in BATCHES {
                if u32::from(max_batch) <= measurement.max_batch() {
                    let run = (configuration, measurement.as_ref());
                    let mut variant = self.variant(run, *artefact, max_batch, outcome.inspected)?;
                    pricing.price(&mut variant);
                    variants.push(variant);
                }
            }
        }
        Ok(variants)
    }

    fn variant(
        &self,
        (configuration, measurement): (&Configuration, &Measurement),
        artefact: Digest,
        max_batch: u16,
        inspected: &Inspection,
    ) -> Result<Variant, Error> {
        let spec = configuration.variant(max_batch);
        let device = self.parts.config.device(&spec.engine);
        let mut variant = Variant {
            id: variant_id(&self.model.id, &spec)?,
            application: self.model.application.clone(),
            model: self.model.id.clone(),
            spec,
            artefact,
            signature: inspected.signature.clone(),
            padding: measurement.padding.clone(),
            accuracy: Accuracy {
                kind: inspected.kind(),
                ..measurement.accuracy
            },
            profile: measurement.profile(max_batch),
            cost_per_hour_usd: 0.0,
            cost_per_1k_usd: 0.0,
            measured_on: None,
            profiles: Default::default(),
            dominated_by: None,
            apart: None,
            resources: Default::default(),
            release: Default::default(),
            foreign: false,
        };
        let apart = inspected.apart.as_ref().or(measurement.apart.as_ref());
        let reason = apart
            .cloned()
            .or_else(|| variant.why_apart().map(str::to_owned));
        if let Some(reason) = reason {
            variant.keep_apart(reason);
        }
        variant.price(&device);
        Ok(variant)
    }
}

impl Outcome<'_> {
    pub(super) fn summary(&self, variants: &[Variant]) -> Summary {
        let mut skipped = BTreeMap::new();
        let mut changes = self.inspected.changes.clone();
        for (precision, generated) in self.generated {
            match generated {
                Generation::Skipped { reason } => {
                    skipped.insert(precision.name().to_owned(), reason.clone());
                }
                Generation::Made { note, .. } => changes.extend(note.clone()),
            }
        }
        let (mut configurations, mut pruned) = (0, BTreeMap::new());
        for (configuration, measured) in self.measured {
            let known = skipped.contains_key(configuration.precision.name());
            match measured {
                MeasureOutcome::Done { .. } => configurations += 1,
                MeasureOutcome::Pruned { reason } => {
                    pruned.insert(configuration.name(), reason.clone());
                }
                MeasureOutcome::Skipped { reason, .. } if !known => {
                    skipped.insert(configuration.name(), reason.clone());
                }
                MeasureOutcome::Skipped { .. } | MeasureOutcome::Begun { .. } => {}
            }
        }
        changes.extend(warnings::of(variants, self.inspected.guess.as_ref()));
        let on_frontier = variants.iter().filter(|it| it.dominated_by.is_none());
        let scored = &self.inspected.signature.outputs;
        let scored = scored.get(self.inspected.scored.output);
        Summary {
            scored_output: scored.map(|output| output.name.clone()).unwrap_or_default(),
            usual: usual(variants),
            measures: self.inspected.kind(),
            changes,
            variants: variants.len(),
            frontier: on_frontier.count(),
            configurations,
            pruned,
            skipped,
        }
    }
}

/// The cheapest variant that is as accurate as the uploaded file and that no other dominates. It answers queries that
/// name the model and no accuracy.
fn usual(variants: &[Variant]) -> Option<(String, f64)> {
    let all: Vec<&Variant> = variants.iter().collect();
    let usual = as_uploaded(&all).into_iter();
    let usual = usual.filter(|it| it.dominated_by.is_none());
    let cheapest = usual.min_by(|a, b| a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd))?;
    Some((cheapest.id.to_string(), cheapest.accuracy.value))
}

/// Why no configuration of the registered model runs: a missing operator says more than a file that an engine does not
/// understand.
fn nothing_runs(measured: &[(Configuration, MeasureOutcome)]) -> Error {
    let mut reasons: Vec<String> = Vec::new();
    let mut codes: Vec<Code> = Vec::new();
    for (configuration, measured) in measured {
        let MeasureOutcome::Skipped { code, reason } = measured else {
            continue;
        };
        if configuration.precision != Precision::Fp32 {
            continue;
        }
        codes.extend(Code::parse(code));
        let reason = format!("{}: {reason}", configuration.engine);
        if reasons.len() < REASONS && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        reasons.push("no engine is available".to_owned());
    }
    let order = [
        Code::UnsupportedOperator,
        Code::InvalidModel,
        Code::MemoryExceeded,
        Code::TimeExceeded,
        Code::EngineCrashed,
        Code::EngineFailed,
    ];
    let code = order.into_iter().find(|code| codes.contains(code));
    Error::NothingRuns {
        code: code.unwrap_or(Code::Unavailable),
        reasons: reasons.join("; "),
    }
}
