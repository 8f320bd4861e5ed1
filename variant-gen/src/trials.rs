//! Promotes or rolls back versions that are tried with rules.
//!
//! Once a second, the figures of each trial are judged by its rules ([`sextant_judging`]): the leading dispatcher's
//! counts, and the feedback on answers since the trial began. The resulting change is made in the registry, in one
//! transaction with its audit entry under the name [`ACTOR`], which contains the figures. Then the change is announced,
//! as a change by a caller is. Several processes may judge: the second one finds the change done.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use sextant_judging::{Difference, Judgement, Rules, Tally, Verdict, judge};
use sextant_metadata::TrialRow;
use sextant_registry::{Act, Audit, Model, Registry, VersionChange};
use sextant_types::{Code, ModelId, Stage, time::unix_ms};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::{Error, publisher::Publisher};
use evidence::Evidence;

mod evidence;

/// The actor in the audit record.
pub const ACTOR: &str = "judge";

/// Time between two judgements.
const PERIOD: Duration = Duration::from_secs(1);

/// What is known of the trials.
#[derive(Default)]
struct Trials {
    before: PriorCounts,
    evidence: BTreeMap<ModelId, Evidence>,
}

/// The counts of each version before its trial began.
#[derive(Default)]
struct PriorCounts(BTreeMap<ModelId, (u64, TrialRow)>);

impl PriorCounts {
    /// The counts of a version since it came to its stage, as far as this process has seen them. If counts have become
    /// smaller, another dispatcher leads.
    fn since(&mut self, model: &Model, now: &TrialRow) -> Tally {
        let since_ms = model.release.since_ms;
        let fresh = || (since_ms, now.clone());
        let known = self.0.entry(model.id.clone()).or_insert_with(fresh);
        if known.0 != since_ms || known.1.queries > now.queries || known.1.rows > now.rows {
            *known = fresh();
        }
        let before = &known.1;
        Tally {
            queries: now.queries - before.queries,
            errors: now.errors.saturating_sub(before.errors),
            late: now.late.saturating_sub(before.late),
            rows: now.rows - before.rows,
            agreeing: now.agreeing.saturating_sub(before.agreeing),
        }
    }
}

impl Trials {
    /// The difference that feedback shows; `None` if the application accepts no feedback.
    async fn difference(
        &mut self,
        registry: &Registry,
        (model, current, rules): (&Model, &Model, &Rules),
    ) -> Result<Option<&Difference>, Error> {
        let known = self.evidence.remove(&model.id);
        let evidence = match known.filter(|it| it.is_of(model, current)) {
            Some(known) => Some(known),
            None => Evidence::of(registry, (model, current), rules).await?,
        };
        let Some(evidence) = evidence else {
            return Ok(None);
        };
        let evidence = self.evidence.entry(model.id.clone()).or_insert(evidence);
        evidence.read(registry, (model, unix_ms())).await.map(Some)
    }
}

impl Publisher {
    /// Judges trials again and again. Never returns.
    pub(crate) async fn judge_trials(&self) {
        let mut trials = Trials::default();
        loop {
            if let Err(error) = self.judge_once(&mut trials).await {
                warn!(%error, "versions that are tried cannot be judged now");
            }
            sleep_until(Instant::now() + PERIOD).await;
        }
    }

    async fn judge_once(&self, trials: &mut Trials) -> Result<(), Error> {
        let tried = self.registry().tried().await?;
        let is_tried = |id: &ModelId| tried.iter().any(|it| it.id == *id);
        trials.before.0.retain(|id, _| is_tried(id));
        trials.evidence.retain(|id, _| is_tried(id));
        if tried.is_empty() {
            return Ok(());
        }
        // A snapshot without demand, as of a store that came back empty, means that nothing is known, not that the
        // version did nothing.
        let Some(demand) = self.metadata().snapshot().await?.demand else {
            return Ok(());
        };
        let rows = &demand.trials;
        for model in &tried {
            let none = TrialRow::of(model.id.clone());
            let row = rows.iter().find(|row| row.model == model.id);
            let tally = trials.before.since(model, row.unwrap_or(&none));
            let rules: Option<Rules> = model
                .rules
                .clone()
                .and_then(|rules| serde_json::from_value(rules).ok());
            let Some(rules) = rules else { continue };
            let line = self.registry().versions(&model.id).await?;
            let is_current = |it: &&Model| it.release.stage == Stage::Current;
            let Some(current) = line.iter().find(is_current) else {
                continue;
            };
            let compared = (model, current, &rules);
            let difference = trials.difference(self.registry(), compared).await?;
            let judged = judge(&rules, &tally, difference);
            let to = match judged.verdict {
                Verdict::RollBack => Stage::Retired,
                Verdict::Promote if rules.promote => Stage::Current,
                Verdict::Promote | Verdict::Wait => continue,
            };
            self.carry_out((model, current), to, &judged).await?;
        }
        Ok(())
    }

    /// Makes a change, if the tried version and the current one are still those that were judged.
    async fn carry_out(
        &self,
        (model, current): (&Model, &Model),
        to: Stage,
        judged: &Judgement,
    ) -> Result<(), Error> {
        let change = VersionChange {
            model: model.id.clone(),
            act: Act::To(to),
            rules: None,
            seen: Some(current.release.version),
            since_ms: Some(model.release.since_ms),
        };
        let entry = entry(model, to, judged);
        let at_ms = entry.at_ms;
        let registry = self.registry();
        let any = |_: &[Model]| Ok::<_, Infallible>(());
        let made = registry.change_version_on_record(&change, at_ms, (any, |_: &[Model]| entry));
        match made.await {
            Err(error) if error.code() == Code::VersionConflict => return Ok(()),
            changed => drop(changed?),
        }
        let (reason, stage) = (&judged.reason, to.as_str());
        info!(model = %model.id, stage, %reason, "a version that was tried is judged");
        self.show_application(&model.application).await
    }
}

/// The audit entry of a change.
fn entry(model: &Model, to: Stage, judged: &Judgement) -> Audit {
    let inputs = judged.inputs.iter().map(|it| {
        serde_json::json!({
            "what": it.what, "value": it.value, "threshold": it.threshold, "count": it.count,
            "evidence": it.evidence,
        })
    });
    let inputs: Vec<_> = inputs.collect();
    let detail = serde_json::json!({
        "stage": to.as_str(), "reason": judged.reason, "inputs": inputs,
    });
    let subject = format!(
        "{}:{}@{}",
        model.application,
        model.name(),
        model.release.version
    );
    let action = match to {
        Stage::Current => "version.promote",
        _ => "version.change",
    };
    Audit::new(unix_ms(), ACTOR, action, &subject, detail)
}
