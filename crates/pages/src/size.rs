//! *Why this size?*

use std::collections::BTreeMap;

use askama::Template;
use serde::Deserialize;

use crate::{
    Frame, Question,
    chart::{Bar, DesiredChart},
    figures,
};

/// Most rows of a chart; the table has all.
const MOST_BARS: usize = 16;

/// Desired and actual numbers of workers and instances, as `/v1/scaling` answers them.
#[derive(Debug, Clone, Deserialize)]
pub struct Scaling {
    desired_token: Option<u64>,
    pools: Vec<Pool>,
    variants: Vec<VariantCount>,
    demand: Option<Demand>,
    cost_per_hour_usd: Cost,
    held_back: Vec<Cutback>,
}

#[derive(Debug, Clone, Deserialize)]
struct Pool {
    device_type: String,
    desired: Option<u32>,
    least: Option<u32>,
    most: Option<u32>,
    up: u32,
    leaving: u32,
    draining: u32,
    provider: Option<String>,
    price_per_hour_usd: Option<f64>,
    trouble: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct VariantCount {
    variant: String,
    application: Option<String>,
    needed: Option<u32>,
    desired: Option<Workers>,
    ready: u32,
    loading: u32,
    failed: u32,
    pinned: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Workers {
    Number(u32),
    Word(String),
}

#[derive(Debug, Clone, Deserialize)]
struct Demand {
    classes: Vec<ClassDemand>,
}

/// A class of queries with similar targets.
#[derive(Debug, Clone, Deserialize)]
struct Class {
    latency_ms: Option<f64>,
    min_accuracy: Option<f64>,
    max_error: Option<f64>,
    min_agreement: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
struct ClassDemand {
    application: String,
    #[serde(flatten)]
    class: Class,
    offered_rps: f64,
    answered: u64,
    late: u64,
    refused: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Deserialize)]
struct Cost {
    desired: Option<f64>,
    actual: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Cutback {
    application: String,
    reason: String,
}

/// A decision of the autoscaler, as `/v1/scaling/decisions` lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Decision {
    number: u64,
    at_ms: u64,
    subject: Subject,
    action: String,
    from: u32,
    to: u32,
    reason: String,
    inputs: Vec<Input>,
    alternatives: Vec<Alternative>,
}

#[derive(Debug, Clone, Deserialize)]
struct Subject {
    kind: String,
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Input {
    application: String,
    #[serde(flatten)]
    class: Class,
    offered_rps: f64,
    planned_rps: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Alternative {
    what: String,
    cost_per_hour_usd: Option<f64>,
    why_not: String,
}

/// The page.
#[derive(Debug, Template)]
#[template(path = "size.html")]
pub struct Size {
    /// The frame.
    pub frame: Frame,
    /// The present state.
    pub scaling: Scaling,
    /// Newest first.
    pub decisions: Vec<Decision>,
}

// === impl Size ===

impl Size {
    /// The answer to the question.
    fn verdict(&self) -> String {
        let Some(last) = self.decisions.first() else {
            return match self.scaling.desired_token {
                Some(_) => "Nothing was changed yet.".to_owned(),
                None => "No autoscaler has spoken yet.".to_owned(),
            };
        };
        format!(
            "{}: {}.",
            last.subject.name,
            last.reason.trim_end_matches('.')
        )
    }

    fn pools_chart(&self) -> String {
        let bars = self.scaling.pools.iter().map(|pool| Bar {
            name: &pool.device_type,
            desired: pool.desired,
            ready: pool.up,
            between: pool.going(),
        });
        let chart = DesiredChart {
            title: "Desired workers beside actual ones. The table beside has the figures.",
            bars: bars.collect(),
        };
        chart.draw()
    }

    fn instances_chart(&self) -> String {
        let variants = self.scaling.variants.iter().take(MOST_BARS);
        let bars = variants.map(|of| Bar {
            name: &of.variant,
            desired: of.number(),
            ready: of.ready,
            between: of.loading,
        });
        let chart = DesiredChart {
            title: "Desired instances beside those that serve. The table beside has the figures.",
            bars: bars.collect(),
        };
        chart.draw()
    }
}

// === impl Pool ===

impl Pool {
    fn going(&self) -> u32 {
        self.leaving + self.draining
    }
}

// === impl VariantCount ===

impl VariantCount {
    fn desired(&self) -> String {
        match &self.desired {
            None => "–".to_owned(),
            Some(Workers::Number(number)) => number.to_string(),
            Some(Workers::Word(word)) => word.clone(),
        }
    }

    /// The desired number of workers for it, if that is a number.
    fn number(&self) -> Option<u32> {
        match &self.desired {
            Some(Workers::Number(number)) => Some(*number),
            Some(Workers::Word(_)) | None => None,
        }
    }

    /// Whether fewer serve than desired.
    fn is_short(&self) -> bool {
        match &self.desired {
            Some(Workers::Number(desired)) => self.ready < *desired,
            Some(Workers::Word(_)) => self.ready == 0,
            None => false,
        }
    }
}

// === impl Class ===

impl Class {
    fn words(&self) -> String {
        let all = [
            // The latencies of a class are less than twice the smallest.
            self.latency_ms.map(|least| {
                let (least, most) = (figures::ms(least), figures::ms(2.0 * least));
                format!("latency {least} to {most}")
            }),
            self.min_accuracy
                .map(|least| format!("accuracy {least:.2}")),
            self.max_error.map(|most| format!("error {most:.2}")),
            self.min_agreement
                .map(|least| format!("agreement {least:.2}")),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        match all.is_empty() {
            true => "no targets".to_owned(),
            false => all.join(", "),
        }
    }
}

// === impl ClassDemand ===

impl ClassDemand {
    fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}

// === impl Decision ===

impl Decision {
    fn class(&self) -> &'static str {
        match self.to.cmp(&self.from) {
            std::cmp::Ordering::Greater => "more",
            std::cmp::Ordering::Less => "less",
            std::cmp::Ordering::Equal => "same",
        }
    }
}
