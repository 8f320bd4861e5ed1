//! The targets and the route of a query or job: flags shared by `query` and `job submit`.

use clap::Args;
use serde_json::{Map, Value, json};
use sextant_types::{ApplicationId, ModelId, Prefer, VariantId};

/// Whom a query addresses: exactly one.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Addressee {
    /// Any variant of any model of this application.
    #[arg(long, short, value_name = "NAME")]
    pub application: Option<ApplicationId>,
    /// Any variant of this model.
    #[arg(long, value_name = "NAME")]
    pub model: Option<ModelId>,
    /// This variant and no other.
    #[arg(long, value_name = "NAME")]
    pub variant: Option<VariantId>,
}

/// What is asked for.
#[derive(Debug, Args)]
pub struct Targets {
    /// Latency target: answer within so many milliseconds from the arrival of the request.
    #[arg(long, value_parser = number, value_name = "MS")]
    latency_ms: Option<f64>,
    /// Lowest accuracy; it is compared with the lower end of the measured interval.
    #[arg(long, value_parser = number, value_name = "VALUE")]
    min_accuracy: Option<f64>,
    /// Greatest mean error; it is compared with the upper end of the measured interval.
    #[arg(long, value_parser = number, value_name = "VALUE", conflicts_with = "min_accuracy")]
    max_error: Option<f64>,
    /// Lowest accuracy as a share of that of the file as it was uploaded, such as 0.99.
    #[arg(long, value_parser = number, value_name = "SHARE")]
    min_relative_accuracy: Option<f64>,
    /// Most US dollars for a thousand queries.
    #[arg(long, value_parser = number, value_name = "USD")]
    max_cost_per_1k_usd: Option<f64>,
    /// Which of the variants that meet all targets answers: `cost` (the cheapest), `accuracy` or `latency`.
    #[arg(long, value_name = "WHAT")]
    prefer: Option<Prefer>,
    /// One of the application's presets; its targets hold where the query states no others.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
}

/// A number that a document can carry: NaN and infinities would be none there, and ask for nothing.
pub fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("`{text}` is no number"))
}

impl Addressee {
    /// Adds `application`, `model` or `variant` to a request.
    pub fn fill(&self, request: &mut Map<String, Value>) {
        if let Some(application) = &self.application {
            request.insert("application".to_owned(), json!(application));
        }
        if let Some(model) = &self.model {
            request.insert("model".to_owned(), json!(model));
        }
        if let Some(variant) = &self.variant {
            request.insert("variant".to_owned(), json!(variant));
        }
    }
}

impl Targets {
    /// Adds `targets` and `preset` to a request, where they are stated.
    pub fn fill(&self, request: &mut Map<String, Value>) {
        if let Some(targets) = self.document() {
            request.insert("targets".to_owned(), targets);
        }
        if let Some(preset) = &self.preset {
            request.insert("preset".to_owned(), json!(preset));
        }
    }

    /// The stated latency target, ms.
    pub fn latency_ms(&self) -> Option<f64> {
        self.latency_ms
    }

    /// The stated targets as the API takes them; `None` where nothing is stated.
    pub fn document(&self) -> Option<Value> {
        let stated = [
            ("latency_ms", self.latency_ms),
            ("min_accuracy", self.min_accuracy),
            ("max_error", self.max_error),
            ("min_relative_accuracy", self.min_relative_accuracy),
            ("max_cost_per_1k_usd", self.max_cost_per_1k_usd),
        ];
        let targets: Map<String, Value> = stated
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name.to_owned(), json!(value))))
            .collect();
        let prefer = self
            .prefer
            .map(|prefer| ("prefer".to_owned(), json!(prefer)));
        let targets: Map<String, Value> = targets.into_iter().chain(prefer).collect();
        (!targets.is_empty()).then_some(Value::Object(targets))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::cli::Arguments;

    #[test]
    fn what_a_document_cannot_carry_is_no_number() {
        for line in [
            "query -a digits --input x=[1] --latency-ms {}",
            "query -a digits --input x=[1] --min-accuracy {}",
            "query -a digits --input x=[1] --max-error {}",
            "query -a digits --input x=[1] --min-relative-accuracy {}",
            "query -a digits --input x=[1] --max-cost-per-1k-usd {}",
            "bench -a digits:min_accuracy={}",
            "application create digits --min-accuracy {}",
            "application set digits --budget-per-hour {}",
            "application set digits --weight {}",
            "application set digits --preset fast:latency_ms={}",
            "version shadow mlp 2 --percent {}",
            "version canary mlp 2 --percent {}",
            "version canary mlp 2 --percent 5 --judge --max-error-share {}",
            "version shadow mlp 2 --judge --min-agreement {}",
            "key create --name camera --scope query --rate {}",
        ] {
            let is_taken = |value: &str| {
                let line = line.replace("{}", value);
                let command = Arguments::command().no_binary_name(true);
                command.try_get_matches_from(line.split(' ')).is_ok()
            };
            assert!(is_taken("0.5"), "{line}");
            for value in ["nan", "inf", "infinity", "1e999"] {
                assert!(!is_taken(value), "{line}: {value}");
            }
        }
    }
}
