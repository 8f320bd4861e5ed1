//! The demands of a request of the protocol, over HTTP or gRPC.

use axum::http::{HeaderMap, HeaderName};
use sextant_types::{Code, Prefer};

use crate::{
    codec::short,
    extract::digits,
    problem::Problem,
    query,
    targets::{PreferBody, TargetsBody},
};

/// Parameters that name targets. The prefix `slo_` is Sextant's own: another name that begins with it is misspelt.
const PARAMETERS: [&str; 9] = [
    "slo_latency_ms",
    "slo_min_accuracy",
    "slo_max_error",
    "slo_min_relative_accuracy",
    "slo_max_cost_per_1k_usd",
    "slo_prefer",
    "slo_preset",
    "slo_policy",
    "slo_sticky",
];

/// The same as headers, in the same order.
const HEADERS: [&str; 9] = [
    "x-slo-latency-ms",
    "x-slo-min-accuracy",
    "x-slo-max-error",
    "x-slo-min-relative-accuracy",
    "x-slo-max-cost-per-1k-usd",
    "x-slo-prefer",
    "x-slo-preset",
    "x-slo-policy",
    "x-slo-sticky",
];

/// The demands of a request: targets, and what happens if no variant meets them.
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
    /// `slo_prefer`.
    pub prefer: Option<Prefer>,
    /// The preset of the application whose targets apply where the other parameters set none: `slo_preset`.
    pub preset: Option<String>,
    /// Whether the closest variant may answer if none meets the targets: `slo_policy`.
    pub best_effort: Option<bool>,
    /// The client's key: queries with the same key keep their version while a canary is tried: `slo_sticky`.
    pub sticky: Option<String>,
    /// The protocol's own `timeout`, microseconds; 0 is none.
    pub timeout_us: u64,
    /// Whether the answer explains why its variant was chosen.
    pub explain: bool,
}

// === impl Demands ===

impl Demands {
    /// Targets: from parameters, else from headers, else from the protocol's timeout.
    ///
    /// # Errors
    /// [`Code::InvalidTarget`] for a header that is not a number or whose name is not that of a target.
    pub fn targets(&self, headers: &HeaderMap) -> Result<TargetsBody, Problem> {
        let names = headers.keys().map(HeaderName::as_str);
        check_names("header", names, ("x-slo-", &HEADERS))?;
        let timeout_ms = (self.timeout_us > 0).then_some(self.timeout_us as f64 / 1e3);
        let latency_ms = match self.latency_ms {
            Some(value) => Some(value),
            None => number(headers, "x-slo-latency-ms")?.or(timeout_ms),
        };
        let (min_accuracy, max_error) = match (self.min_accuracy, self.max_error) {
            (None, None) => (
                number(headers, "x-slo-min-accuracy")?,
                number(headers, "x-slo-max-error")?,
            ),
            given => given,
        };
        let or = |given: Option<f64>, name| match given {
            Some(value) => Ok(Some(value)),
            None => number(headers, name),
        };
        Ok(TargetsBody {
            latency_ms,
            min_accuracy,
            max_error,
            min_relative_accuracy: or(self.min_relative_accuracy, "x-slo-min-relative-accuracy")?,
            max_cost_per_1k_usd: or(self.max_cost_per_1k_usd, "x-slo-max-cost-per-1k-usd")?,
            prefer: match self.prefer {
                Some(prefer) => Some(prefer),
                None => prefer(text(headers, "x-slo-prefer")?, "x-slo-prefer")?,
            }
            .map(PreferBody::from),
        })
    }

    /// Whether the closest variant may answer if none meets the targets: from the parameter, else from the header.
    pub fn best_effort(&self, headers: &HeaderMap) -> Result<bool, Problem> {
        match self.best_effort {
            Some(given) => Ok(given),
            None => best_effort(text(headers, "x-slo-policy")?).map(Option::unwrap_or_default),
        }
    }

    /// The number of the client's key: from the parameter, else from the header.
    pub fn sticky(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        match &self.sticky {
            Some(key) => query::sticky(Some(key)),
            None => query::sticky(text(headers, "x-slo-sticky")?),
        }
    }

    /// The name of a preset: from the parameter, else from the header.
    pub fn preset<'a>(&'a self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
        match &self.preset {
            Some(name) => Ok(Some(name)),
            None => text(headers, "x-slo-preset"),
        }
    }
}

/// Refuses parameters whose names begin as those of targets do and are not among them.
///
/// # Errors
/// [`Code::InvalidTarget`] with the nearest known name.
pub fn check_parameters<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    check_names("parameter", names, ("slo_", &PARAMETERS))
}

/// Refuses names with a prefix that are not among the known ones.
fn check_names<'a>(
    what: &str,
    mut names: impl Iterator<Item = &'a str>,
    (prefix, known): (&str, &[&'static str]),
) -> Result<(), Problem> {
    let unknown = names.find(|name| name.starts_with(prefix) && !known.contains(name));
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let edits = |name: &&&str| strsim::damerau_levenshtein(name, unknown);
    let meant = known.iter().min_by_key(edits);
    let meant = meant.map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
    let detail = format!(
        "there is no target of the {what} `{}`{meant}",
        short(unknown)
    );
    Err(Problem::new(Code::InvalidTarget, detail).field(short(unknown)))
}

/// The text of a header.
fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let text = headers.get(name).map(|value| {
        let detail = format!("header `{name}` is no text");
        let wrong = |_| Problem::new(Code::InvalidTarget, detail).field(name);
        value.to_str().map(str::trim).map_err(wrong)
    });
    text.transpose()
}

/// The meaning of `slo_policy`: whether the closest variant may answer.
pub fn best_effort(policy: Option<&str>) -> Result<Option<bool>, Problem> {
    match policy {
        None => Ok(None),
        Some("reject") => Ok(Some(false)),
        Some("best_effort") => Ok(Some(true)),
        Some(other) => {
            let other = short(other);
            let detail = format!("`slo_policy` is `{other}`: use `reject` or `best_effort`");
            Err(Problem::new(Code::InvalidRequest, detail).field("parameters.slo_policy"))
        }
    }
}

/// The preference among the variants that meet all targets; `field` is the name of the parameter or header.
pub fn prefer(name: Option<&str>, field: &'static str) -> Result<Option<Prefer>, Problem> {
    let prefer = name.map(str::parse::<Prefer>).transpose();
    prefer.map_err(|error| Problem::new(Code::InvalidTarget, error.to_string()).field(field))
}

/// The value of `timeout`, microseconds. Text is accepted too, because clients send it.
pub fn timeout_us(text: &str) -> Result<u64, Problem> {
    digits(text.trim_matches('"')).ok_or_else(|| {
        let text = short(text);
        let detail = format!("`timeout` is `{text}`: it must be a number of microseconds");
        Problem::new(Code::InvalidTarget, detail).field("parameters.timeout")
    })
}

/// Checks `priority`. Every level counts as the only level, as for a model of Triton that declares none: deadlines
/// order queries here.
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
