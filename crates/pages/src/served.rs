//! *Is everybody served?*

use std::collections::BTreeMap;

use askama::Template;
use serde::Deserialize;

use crate::{
    Frame, Question,
    chart::{Stage, Stages},
    figures,
};

/// Least share of answers in time for an application that counts as served.
const SERVED: f64 = 0.99;

/// An application's status, as `/v1/applications/{application}/status` answers it.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    application: String,
    window_s: f64,
    targets: Targets,
    rate_per_s: f64,
    asked: u64,
    answered: u64,
    in_time: u64,
    share_in_time: Option<f64>,
    refused: BTreeMap<String, u64>,
    p50: Option<Split>,
    p99: Option<Split>,
    cost_per_hour_usd: Option<f64>,
}

/// The stated targets.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Targets {
    latency_ms: Option<f64>,
    min_accuracy: Option<f64>,
    max_error: Option<f64>,
    min_relative_accuracy: Option<f64>,
    max_cost_per_1k_usd: Option<f64>,
}

/// The stages of the queries around a percentile, milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Split {
    load_ms: f64,
    queue_ms: f64,
    run_ms: f64,
    other_ms: f64,
    total_ms: f64,
}

/// How an application fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fare {
    Served,
    Late,
    Idle,
}

/// The page.
#[derive(Debug, Template)]
#[template(path = "served.html")]
pub struct ServicePage {
    /// The frame.
    pub frame: Frame,
    /// All applications that the caller sees.
    pub applications: Vec<Status>,
    /// Price of all workers, US dollars an hour; `None` for callers who may not see it.
    pub fleet_per_hour_usd: Option<f64>,
}

// === impl ServicePage ===

impl ServicePage {
    fn asking(&self) -> impl Iterator<Item = &Status> {
        let of = self.applications.iter();
        of.filter(|of| of.fare() != Fare::Idle)
    }

    /// The answer to the question, in a word or two.
    fn verdict(&self) -> String {
        let (asking, late) = (self.asking().count(), self.late());
        match (asking, late) {
            (0, _) => "Nobody asks.".to_owned(),
            (_, 0) => "Yes.".to_owned(),
            (1, 1) => "No.".to_owned(),
            (all, late) if all == late => format!("No: none of {all}."),
            (all, 1) => format!("No: 1 of {all} applications is not."),
            (all, late) => format!("No: {late} of {all} applications are not."),
        }
    }

    fn late(&self) -> usize {
        let asking = self.asking();
        asking.filter(|of| of.fare() == Fare::Late).count()
    }

    fn rate(&self) -> f64 {
        self.applications.iter().map(|of| of.rate_per_s).sum()
    }

    /// Share in time of all queries; `None` without queries.
    fn share(&self) -> Option<f64> {
        let asked: u64 = self.applications.iter().map(|of| of.asked).sum();
        let in_time: u64 = self.applications.iter().map(|of| of.in_time).sum();
        (asked > 0).then(|| in_time as f64 / asked as f64)
    }

    fn window_s(&self) -> u64 {
        let windows = self.applications.iter().map(|of| of.window_s);
        windows.fold(0.0, f64::max).round() as u64
    }
}

// === impl Status ===

impl Status {
    fn fare(&self) -> Fare {
        match self.share_in_time {
            None => Fare::Idle,
            Some(share) if share >= SERVED => Fare::Served,
            Some(_) => Fare::Late,
        }
    }

    /// The stages by the name of the percentile.
    fn splits(&self) -> Option<[(&'static str, Split); 2]> {
        Some([("p50", self.p50?), ("p99", self.p99?)])
    }

    fn chart(&self, splits: &[(&'static str, Split); 2]) -> String {
        let [(_, p50), (_, p99)] = splits;
        let title = format!(
            "Time of the queries of {} by stage: median {}, 99th percentile {}. The table beside has the figures.",
            self.application,
            figures::ms(p50.total_ms),
            figures::ms(p99.total_ms)
        );
        let chart = Stages {
            title: &title,
            bars: splits
                .iter()
                .map(|(name, of)| (*name, of.stages()))
                .collect(),
            target_ms: self.targets.latency_ms,
        };
        chart.draw()
    }

    fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    fn late(&self) -> u64 {
        self.answered.saturating_sub(self.in_time)
    }
}

// === impl Split ===

impl Split {
    fn stages(&self) -> Vec<Stage> {
        let stages = [
            ("load", self.load_ms),
            ("queue", self.queue_ms),
            ("run", self.run_ms),
            ("other", self.other_ms),
        ];
        stages.map(|(class, ms)| Stage { class, ms }).to_vec()
    }
}

// === impl Targets ===

impl Targets {
    /// The stated targets, in words.
    fn words(&self) -> Vec<String> {
        let quality = |word: &str, value: f64| format!("{word} {value}");
        let all = [
            self.latency_ms
                .map(|most| format!("within {}", figures::ms(most))),
            self.min_accuracy
                .map(|least| quality("accuracy at least", least)),
            self.max_error.map(|most| quality("error at most", most)),
            self.min_relative_accuracy
                .map(|share| format!("at least {} of the file's accuracy", figures::share(share))),
            self.max_cost_per_1k_usd
                .map(|most| format!("at most {} a thousand", figures::usd(most))),
        ];
        all.into_iter().flatten().collect()
    }
}

// === impl Fare ===

impl Fare {
    fn class(self) -> &'static str {
        match self {
            Self::Served => "good",
            Self::Late => "bad",
            Self::Idle => "idle",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Late => "not served",
            Self::Idle => "idle",
        }
    }
}
