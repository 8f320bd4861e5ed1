//! What a request by the protocol demands of its answer, whatever the request came in.

use axum::http::HeaderMap;
use sextant_types::Code;

use crate::{codec::short, extract::digits, problem::Problem, targets::TargetsBody};

/// What a request demands: targets, and what becomes of it where nothing meets them.
#[derive(Debug, Default)]
pub struct Demands {
    /// `slo_latency_ms`.
    pub latency_ms: Option<f64>,
    /// `slo_min_accuracy`.
    pub min_accuracy: Option<f64>,
    /// `slo_max_error`.
    pub max_error: Option<f64>,
    /// `slo_min_relative_accuracy`.
    pub min_relative_accuracy: Option<f64>,
    /// `slo_max_cost_per_1k_usd`.
    pub max_cost_per_1k_usd: Option<f64>,
    /// The application's preset whose targets fill what the others leave open: `slo_preset`.
    pub preset: Option<String>,
    /// Whether the closest variant may answer when nothing meets the targets: `slo_policy`.
    pub best_effort: bool,
    /// The protocol's own `timeout`, microseconds; 0 is none.
    pub timeout_us: u64,
    /// Whether to tell why the variant was chosen.
    pub explain: bool,
}

// === impl Demands ===

impl Demands {
    /// Targets: parameters, then headers, then the protocol's timeout.
    pub fn targets(&self, headers: &HeaderMap) -> Result<TargetsBody, Problem> {
        let timeout_ms = (self.timeout_us > 0).then_some(self.timeout_us as f64 / 1e3);
        let latency_ms = match self.latency_ms {
            Some(value) => Some(value),
            None => number(headers, "x-slo-latency-ms")?.or(timeout_ms),
        };
        let min_accuracy = match (self.min_accuracy, self.max_error) {
            (None, None) => number(headers, "x-slo-min-accuracy")?,
            (given, _) => given,
        };
        let min_relative_accuracy = match self.min_relative_accuracy {
            Some(value) => Some(value),
            None => number(headers, "x-slo-min-relative-accuracy")?,
        };
        Ok(TargetsBody {
            latency_ms,
            min_accuracy,
            max_error: self.max_error,
            min_relative_accuracy,
            max_cost_per_1k_usd: self.max_cost_per_1k_usd,
        })
    }

    /// The name of a preset: the parameter, then the header.
    pub fn preset<'a>(&'a self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
        const NAME: &str = "x-slo-preset";
        if let Some(name) = &self.preset {
            return Ok(Some(name));
        }
        let named = headers.get(NAME).map(|value| {
            let detail = format!("header `{NAME}` is no text");
            let wrong = |_| Problem::new(Code::InvalidTarget, detail).field(NAME);
            value.to_str().map(str::trim).map_err(wrong)
        });
        named.transpose()
    }
}

/// What `slo_policy` says: whether the closest variant may answer.
pub fn best_effort(policy: Option<&str>) -> Result<bool, Problem> {
    match policy {
        None | Some("reject") => Ok(false),
        Some("best_effort") => Ok(true),
        Some(other) => {
            let other = short(other);
            let detail = format!("`slo_policy` is `{other}`: use `reject` or `best_effort`");
            Err(Problem::new(Code::InvalidRequest, detail).field("parameters.slo_policy"))
        }
    }
}

/// What `timeout` says, microseconds. Text is taken too, as clients send it.
pub fn timeout_us(text: &str) -> Result<u64, Problem> {
    digits(text.trim_matches('"')).ok_or_else(|| {
        let text = short(text);
        let detail = format!("`timeout` is `{text}`: it must be a number of microseconds");
        Problem::new(Code::InvalidTarget, detail).field("parameters.timeout")
    })
}

/// Checks `priority`. Every level is taken for the only one, as by a model that declares none: what decides
/// here is the deadline.
pub fn check_priority(text: &str) -> Result<(), Problem> {
    let level = digits(text.trim_matches('"'));
    level.map(drop).ok_or_else(|| {
        let text = short(text);
        let detail = format!("`priority` is `{text}`: it must be a whole number, 0 or more");
        Problem::new(Code::InvalidRequest, detail).field("parameters.priority")
    })
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<f64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .map(str::trim)
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| number.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => {
            let detail = format!("header `{name}` is not a number");
            Err(Problem::new(Code::InvalidTarget, detail).field(name))
        }
    }
}
