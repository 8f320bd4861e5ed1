//! Metrics of the steps of pipelines: as many series as steps are registered, whatever clients ask.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};
use sextant_pipeline::{LoadedPipeline, Pipelines, StepCounts};

/// Collects the steps of a front end's pipelines at each scrape.
pub struct Steps(Weak<Pipelines>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    pipeline: String,
    step: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepOutcome {
    pipeline: String,
    step: String,
    outcome: &'static str,
}

/// A sum of times, with its name and help.
type Time = (&'static str, &'static str, fn(&StepCounts<'_>) -> Duration);

const TIMES: [Time; 2] = [
    (
        "pipeline_step",
        "Time of the steps of pipelines that have answered",
        |counts| counts.time,
    ),
    (
        "pipeline_step_waiting",
        "Time that the steps of pipelines that have answered waited in queues, for loads and for processes",
        |counts| counts.waited,
    ),
];

// === impl Steps ===

impl Steps {
    /// The collector of these pipelines.
    pub fn of(pipelines: &Arc<Pipelines>) -> Self {
        Self(Arc::downgrade(pipelines))
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

impl Collector for Steps {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(pipelines) = self.0.upgrade() else {
            return Ok(());
        };
        let names = pipelines.names().into_iter();
        let loaded: Vec<(String, Arc<LoadedPipeline>)> = names
            .filter_map(|name| Some((name.to_string(), pipelines.get(&name)?)))
            .collect();
        let kind = MetricType::Counter;
        let help = "Steps of queries of pipelines, by outcome";
        let mut family = encoder.encode_descriptor("pipeline_steps", help, None, kind)?;
        for (pipeline, counts) in of_each(&loaded) {
            for (outcome, count) in counts.outcomes {
                let labels = StepOutcome {
                    pipeline: pipeline.to_owned(),
                    step: counts.step.to_owned(),
                    outcome: outcome.as_str(),
                };
                let row = family.encode_family(&labels)?;
                ConstCounter::new(count).encode(row)?;
            }
        }
        for (name, help, read) in TIMES {
            let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
            for (pipeline, counts) in of_each(&loaded) {
                let labels = Step {
                    pipeline: pipeline.to_owned(),
                    step: counts.step.to_owned(),
                };
                let row = family.encode_family(&labels)?;
                ConstCounter::new(read(&counts).as_secs_f64()).encode(row)?;
            }
        }
        Ok(())
    }
}

fn of_each(
    loaded: &[(String, Arc<LoadedPipeline>)],
) -> impl Iterator<Item = (&str, StepCounts<'_>)> {
    loaded
        .iter()
        .flat_map(|(name, loaded)| loaded.counts().map(move |counts| (name.as_str(), counts)))
}
