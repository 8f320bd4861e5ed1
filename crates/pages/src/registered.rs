//! *What is registered?*

use std::collections::BTreeSet;

use askama::Template;
use serde::Deserialize;

use crate::{
    Frame, Question,
    chart::{Frontier, Point, Shape},
    figures,
};

/// A model, as `/v1/models` lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Model {
    name: String,
    #[serde(default)]
    version: u32,
    /// Absent until the model is ready.
    stage: Option<String>,
    application: String,
    status: String,
    error: Option<Failure>,
    variants: u64,
    size_bytes: u64,
    created_ms: u64,
}

/// The feedback on a version, as `/v1/applications/{application}/accuracy` answers it.
#[derive(Debug, Clone, Deserialize)]
pub struct Online {
    model: String,
    version: Option<u32>,
    online: Option<Figure>,
    registered: Option<Figure>,
    reward: Option<Figure>,
    #[serde(default)]
    alarms: Vec<Alarm>,
}

/// A figure with its interval.
#[derive(Debug, Clone, Deserialize)]
struct Figure {
    value: f64,
    lower: Option<f64>,
    upper: Option<f64>,
    rows: u64,
}

/// A model should be trained again.
#[derive(Debug, Clone, Deserialize)]
struct Alarm {
    kind: String,
}

/// Why something failed.
#[derive(Debug, Clone, Deserialize)]
struct Failure {
    code: String,
    message: String,
}

/// A variant on the frontier, as `/v1/variants` lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Variant {
    name: String,
    application: String,
    accuracy: Accuracy,
    latency: Vec<Latency>,
    saturation_rps: f64,
    load_ms: f64,
    peak_memory_bytes: u64,
    cost_per_1k_usd: f64,
    instances: Vec<Instance>,
}

#[derive(Debug, Clone, Deserialize)]
struct Accuracy {
    kind: String,
    metric: String,
    value: f64,
    lower: f64,
    upper: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Latency {
    p50_ms: f64,
    p99_ms: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Instance {
    state: String,
}

/// A job, as `/v1/jobs` lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    id: String,
    kind: String,
    application: String,
    model: Option<String>,
    state: String,
    step: String,
    progress: Progress,
    error: Option<Failure>,
    updated_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct Progress {
    done: u64,
    total: u64,
    failed: Option<u64>,
    left_s: Option<u64>,
}

/// A pipeline.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// The version that answers.
    pub version: u32,
    /// Its steps, as SVG with all text escaped; or why it cannot run.
    pub graph: Result<String, String>,
}

/// The page.
#[derive(Debug, Template)]
#[template(path = "registered.html")]
pub struct RegistryPage {
    /// The frame.
    pub frame: Frame,
    /// Sorted by name.
    pub models: Vec<Model>,
    /// The feedback on versions, in the order of the models; only versions with feedback.
    pub online: Vec<Online>,
    /// Variants on the frontier.
    pub variants: Vec<Variant>,
    /// Sorted by name.
    pub pipelines: Vec<Pipeline>,
    /// The last ones, newest first.
    pub jobs: Vec<Job>,
}

// === impl RegistryPage ===

impl RegistryPage {
    /// Applications with variants, and their variants, fastest first, as the chart numbers them.
    fn frontiers(&self) -> Vec<(&str, Vec<&Variant>)> {
        let names = self.variants.iter().map(|of| of.application.as_str());
        let names: BTreeSet<&str> = names.collect();
        let frontier = |name| {
            let of = self.variants.iter();
            let mut own: Vec<&Variant> = of.filter(|of| of.application == name).collect();
            own.sort_by(|a, b| a.p50_ms().total_cmp(&b.p50_ms()));
            (name, own)
        };
        names.into_iter().map(frontier).collect()
    }

    fn chart(application: &str, variants: &[&Variant]) -> String {
        let points: Vec<Point> = (1..)
            .zip(variants)
            .map(|(number, variant)| variant.point(number))
            .collect();
        let metric = variants.first().map_or("", |of| &*of.accuracy.metric);
        let title = format!(
            "Variants of {application} by latency and {metric}. The table beside has the figures by number."
        );
        let chart = Frontier {
            title: &title,
            metric,
            points: &points,
        };
        chart.draw()
    }

    /// The answer to the question.
    fn verdict(&self) -> String {
        let plural = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        let running = self.jobs.iter().filter(|job| job.is_under_way()).count();
        let models = plural(self.models.len(), "model");
        let variants = plural(self.variants.len(), "variant");
        let jobs = match running {
            0 => String::new(),
            running => format!(", {} under way", plural(running, "job")),
        };
        format!("{models}, {variants} on the frontier{jobs}.")
    }
}

// === impl Variant ===

impl Variant {
    fn p50_ms(&self) -> f64 {
        self.latency.first().map_or(0.0, |of| of.p50_ms)
    }

    fn p99_ms(&self) -> f64 {
        self.latency.first().map_or(0.0, |of| of.p99_ms)
    }

    /// The state of its best instance.
    fn state(&self) -> &str {
        const BEST_FIRST: [&str; 6] = [
            "active",
            "overloaded",
            "interfered",
            "loading",
            "draining",
            "failed",
        ];
        let has = |state: &&&str| self.instances.iter().any(|of| of.state == **state);
        BEST_FIRST.iter().find(has).copied().unwrap_or("inactive")
    }

    fn shape(&self) -> Shape {
        match self.state() {
            "active" => Shape::Disc,
            "overloaded" | "interfered" => Shape::Diamond,
            "loading" => Shape::Triangle,
            "failed" => Shape::Cross,
            _ => Shape::Ring,
        }
    }

    /// Number of workers that it serves on.
    fn serving(&self) -> usize {
        let states = ["active", "overloaded", "interfered"];
        let of = self.instances.iter();
        of.filter(|of| states.contains(&&*of.state)).count()
    }

    fn point(&self, number: usize) -> Point {
        Point {
            number,
            latency_ms: self.p50_ms(),
            quality: self.accuracy.value,
            cost_usd: self.cost_per_1k_usd,
            shape: self.shape(),
        }
    }
}

// === impl Online ===

impl Online {
    /// The kinds of its alarms, in words.
    fn alarms(&self) -> String {
        let kinds: Vec<&str> = self.alarms.iter().map(|of| of.kind.as_str()).collect();
        kinds.join(", ")
    }
}

// === impl Figure ===

impl Figure {
    fn text(&self) -> String {
        match (self.lower, self.upper) {
            (Some(lower), Some(upper)) => format!(
                "{} ({} to {})",
                figures::quality(self.value),
                figures::quality(lower),
                figures::quality(upper)
            ),
            _ => figures::quality(self.value),
        }
    }
}

// === impl Accuracy ===

impl Accuracy {
    fn is_agreement(&self) -> bool {
        self.kind == "agreement"
    }
}

// === impl Job ===

impl Job {
    fn is_under_way(&self) -> bool {
        ["queued", "running", "paused"].contains(&&*self.state)
    }

    fn class(&self) -> &'static str {
        match &*self.state {
            "succeeded" => "good",
            "failed" => "bad",
            "running" => "busy",
            _ => "idle",
        }
    }

    /// Its progress, for people.
    fn progress(&self) -> String {
        let Progress {
            done,
            total,
            failed,
            left_s,
        } = &self.progress;
        let mut text = match total {
            0 => figures::count(done),
            total => format!("{} of {}", figures::count(done), figures::count(total)),
        };
        if let Some(failed) = failed.filter(|failed| *failed > 0) {
            text.push_str(&format!(", {} failed", figures::count(failed)));
        }
        if let Some(left) = left_s {
            text.push_str(&format!(", {} left", figures::ms(*left as f64 * 1000.0)));
        }
        text
    }
}
