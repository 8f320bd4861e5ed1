//! `sextant application`: the default targets of an application's queries, and its limits in the fleet.

use std::str::FromStr;

use clap::Subcommand;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sextant_types::{ApplicationId, Isolation, Prefer, byte_size};

use super::{Client, Error, Output, register, targets::number};

/// Create, show, change and delete applications.
#[derive(Debug, Subcommand)]
pub enum Application {
    /// Create an application.
    Create(Box<Create>),
    /// Show an application.
    Get {
        /// Its name.
        name: ApplicationId,
    },
    /// Change an application's description, default targets, presets, budget, workers, priority, weight, cache and
    /// feedback; options that are left out stay as they are, `none` removes a value.
    Set(Box<Set>),
    /// Delete an application that has no models.
    Delete {
        /// Its name.
        name: ApplicationId,
    },
}

/// Create an application.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// Its name.
    name: ApplicationId,
    /// How predictions are scored: top1, topK such as top5, exact, f1, f1_micro, f1_multilabel, auc, log_loss,
    /// mae, rmse, mape, r2, cosine, token_accuracy, iou, map or custom (docs/models.md).
    #[arg(long, value_parser = register::metric, default_value = "top1")]
    metric: String,
    #[command(flatten)]
    settings: Settings,
}

/// Change an application's description, default targets, presets, budget, workers, priority, weight, cache and
/// feedback; options that are left out stay as they are, `none` removes a value.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Its name.
    name: ApplicationId,
    #[command(flatten)]
    settings: Settings,
    /// Remove a preset; may be repeated.
    #[arg(long, value_name = "NAME")]
    remove_preset: Vec<String>,
    /// Budget: most that its answers may cost, US dollars an hour.
    #[arg(long, value_name = "USD")]
    budget_per_hour: Option<OptionalValue<Number>>,
    /// Least load that the autoscaler plans for it even if nobody asks, in workers.
    #[arg(long, value_name = "WORKERS")]
    least_workers: Option<OptionalValue<u32>>,
    /// Most load that the autoscaler plans for it, in workers.
    #[arg(long, value_name = "WORKERS")]
    most_workers: Option<OptionalValue<u32>>,
    /// Priority, 0 to 255: if devices cannot serve all queries, a higher one goes first.
    #[arg(long)]
    priority: Option<OptionalValue<u8>>,
    /// Its share of device time against others of the same priority.
    #[arg(long)]
    weight: Option<OptionalValue<Number>>,
    /// Bytes of its answers that are kept for queries with the same inputs, such as `16MiB`.
    #[arg(long, value_name = "BYTES")]
    cache_bytes: Option<OptionalValue<Bytes>>,
    /// Seconds for which an answer is kept.
    #[arg(long, value_name = "SECONDS")]
    cache_ttl_s: Option<OptionalValue<u32>>,
    /// Where engines run its models: `process`, each in a separate process; `worker`, in the worker's process.
    #[arg(long, value_name = "WHERE")]
    isolation: Option<OptionalValue<Isolation>>,
    /// Take feedback on its answers: `on`, or settings such as `keep_days=30,reward=lower`; with `none` it takes no
    /// feedback.
    #[arg(long, value_name = "SETTINGS")]
    feedback: Option<OptionalValue<FeedbackOptions>>,
}

/// What its queries ask for.
#[derive(Debug, Default, clap::Args)]
struct Settings {
    /// A description, for people.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Latency target of queries that state none, milliseconds.
    #[arg(long, value_name = "MS")]
    latency_ms: Option<OptionalValue<Number>>,
    /// Lowest accuracy of the answers to queries that state none.
    #[arg(long, value_name = "VALUE")]
    min_accuracy: Option<OptionalValue<Number>>,
    /// Greatest error of the answers to queries that state none.
    #[arg(long, value_name = "VALUE", conflicts_with = "min_accuracy")]
    max_error: Option<OptionalValue<Number>>,
    /// Lowest accuracy of the answers to queries that state none, as a share of the uploaded file's: above 0, at most
    /// 1.
    #[arg(long, value_name = "SHARE")]
    min_relative_accuracy: Option<OptionalValue<Number>>,
    /// Most US dollars for a thousand queries that state no cost.
    #[arg(long, value_name = "USD")]
    max_cost_per_1k_usd: Option<OptionalValue<Number>>,
    /// Which of the variants that meet the targets answers queries that state no preference: `cost`, `accuracy` or
    /// `latency`.
    #[arg(long, value_name = "WHAT")]
    prefer: Option<OptionalValue<Prefer>>,
    /// A preset: named targets for which queries may ask, such as `fast:latency_ms=5,min_accuracy=0.9`; may be
    /// repeated.
    #[arg(long, value_name = "NAME:TARGETS")]
    preset: Vec<Preset>,
}

/// What is taken of feedback.
#[derive(Debug, Clone, PartialEq)]
struct FeedbackOptions(Map<String, Value>);

/// A number that a document can carry.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Number(f64);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bytes(u64);

/// A value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OptionalValue<T>(Option<T>);

/// A name and targets.
#[derive(Debug, Clone, PartialEq)]
struct Preset {
    name: String,
    targets: Map<String, Value>,
}

impl<T: FromStr> FromStr for OptionalValue<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            "none" => Ok(Self(None)),
            text => text.parse().map(|value| Self(Some(value))),
        }
    }
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number(text).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = byte_size::parse(text).map(Self);
        bytes.ok_or("write a number of bytes, such as `16777216` or `16MiB`, or `none`")
    }
}

impl FromStr for FeedbackOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "on" {
            return Ok(Self(Map::new()));
        }
        let each = text.split(',').filter(|setting| !setting.is_empty());
        let each = each.map(|setting| {
            let how =
                "write `on`, `none` or `SETTING=VALUE,..`, such as `keep_days=30,reward=lower`";
            let (name, value) = setting.split_once('=').ok_or(how)?;
            let value = value
                .parse::<u64>()
                .map_or_else(|_| json!(value), |it| json!(it));
            Ok((name.trim().to_owned(), value))
        });
        each.collect::<Result<_, String>>().map(Self)
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how = "write `NAME:TARGET=NUMBER,..`, such as `fast:latency_ms=5,min_accuracy=0.9`";
        let (name, targets) = text.split_once(':').ok_or(how)?;
        let each = targets.split(',').filter(|target| !target.is_empty());
        let targets = each.map(|target| {
            let (name, number) = target.split_once('=').ok_or(how)?;
            let number = number
                .trim()
                .parse::<Number>()
                .map_err(|reason| format!("{reason}: {how}"))?;
            Ok((name.trim().to_owned(), json!(number)))
        });
        Ok(Self {
            name: name.trim().to_owned(),
            targets: targets.collect::<Result<_, String>>()?,
        })
    }
}

impl Application {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Create(create) => {
                let path = ["v1", "applications"];
                let created: Value = client.post(&path, &create.document()).await?;
                output.either(&created, || shown(&created))
            }
            Self::Get { name } => {
                let path = ["v1", "applications", name.as_str()];
                let found: Value = client.get(&path).await?;
                output.either(&found, || shown(&found))
            }
            Self::Set(set) => {
                let path = ["v1", "applications", set.name.as_str()];
                let request = client.request(Method::PATCH, &path).json(&set.document());
                let changed: Value = client.answer(request).await?;
                output.either(&changed, || shown(&changed))
            }
            Self::Delete { name } => {
                let path = ["v1", "applications", name.as_str()];
                client.send(client.request(Method::DELETE, &path)).await?;
                let deleted = json!({"deleted": name});
                output.either(&deleted, || format!("application `{name}` is deleted"))
            }
        }
    }
}

// === impl Settings ===

impl Settings {
    fn targets(&self) -> Map<String, Value> {
        given([
            ("latency_ms", self.latency_ms.map(|of| json!(of.0))),
            ("min_accuracy", self.min_accuracy.map(|of| json!(of.0))),
            ("max_error", self.max_error.map(|of| json!(of.0))),
            (
                "min_relative_accuracy",
                self.min_relative_accuracy.map(|of| json!(of.0)),
            ),
            (
                "max_cost_per_1k_usd",
                self.max_cost_per_1k_usd.map(|of| json!(of.0)),
            ),
            ("prefer", self.prefer.map(|of| json!(of.0))),
        ])
    }

    fn presets(&self) -> Map<String, Value> {
        let each = self.preset.iter();
        each.map(|preset| (preset.name.clone(), json!(preset.targets)))
            .collect()
    }

    /// The members that are set.
    fn fill(&self, document: &mut Map<String, Value>) {
        if let Some(description) = &self.description {
            document.insert("description".to_owned(), json!(description));
        }
        for (name, members) in [
            ("default_targets", self.targets()),
            ("presets", self.presets()),
        ] {
            if !members.is_empty() {
                document.insert(name.to_owned(), Value::Object(members));
            }
        }
    }
}

fn given<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let members = members.into_iter();
    members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

impl Create {
    fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("name".to_owned(), json!(self.name));
        document.insert("metric".to_owned(), json!(self.metric));
        self.settings.fill(&mut document);
        Value::Object(document)
    }
}

impl Set {
    fn document(&self) -> Value {
        let resources = given([
            (
                "budget_per_hour_usd",
                self.budget_per_hour.map(|of| json!(of.0)),
            ),
            ("least_workers", self.least_workers.map(|of| json!(of.0))),
            ("most_workers", self.most_workers.map(|of| json!(of.0))),
            ("priority", self.priority.map(|of| json!(of.0))),
            ("weight", self.weight.map(|of| json!(of.0))),
            (
                "cache_bytes",
                self.cache_bytes.map(|of| json!(of.0.map(|it| it.0))),
            ),
            ("cache_ttl_s", self.cache_ttl_s.map(|of| json!(of.0))),
            ("isolation", self.isolation.map(|of| json!(of.0))),
        ]);
        let mut document = Map::new();
        self.settings.fill(&mut document);
        if !self.remove_preset.is_empty() {
            let presets = document.entry("presets").or_insert_with(|| json!({}));
            for name in &self.remove_preset {
                presets[name] = Value::Null;
            }
        }
        if !resources.is_empty() {
            document.insert("resources".to_owned(), Value::Object(resources));
        }
        if let Some(OptionalValue(feedback)) = &self.feedback {
            let settings = feedback.as_ref().map(|taking| json!(taking.0));
            document.insert("feedback".to_owned(), json!(settings));
        }
        Value::Object(document)
    }
}

/// An application, a member to a line.
fn shown(application: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut lines: Vec<String> = ["name", "metric", "description", "default_targets"]
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", text(application.get(*name)?))))
        .collect();
    let presets = application.get("presets").and_then(Value::as_object);
    let presets = presets.into_iter().flatten();
    lines.extend(presets.map(|(name, targets)| format!("preset {name}: {targets}")));
    match application.get("resources").and_then(Value::as_object) {
        Some(set) => lines.extend(
            set.iter()
                .map(|(name, value)| format!("{name}: {}", text(value))),
        ),
        None => lines.push("resources: nothing is set".to_owned()),
    }
    if let Some(feedback) = application.get("feedback") {
        lines.push(format!("feedback: {feedback}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Set {
        Set {
            name: ApplicationId::new("digits").expect("a name"),
            settings: Settings::default(),
            remove_preset: Vec::new(),
            budget_per_hour: None,
            least_workers: None,
            most_workers: None,
            priority: None,
            weight: None,
            cache_bytes: None,
            cache_ttl_s: None,
            isolation: None,
            feedback: None,
        }
    }

    #[test]
    fn what_is_left_out_stays_and_none_takes_back() {
        let set = Set {
            budget_per_hour: Some("2.5".parse().expect("a number")),
            most_workers: Some("none".parse().expect("none")),
            cache_bytes: Some("16MiB".parse().expect("a size")),
            ..set()
        };
        let wanted = json!({"resources": {
            "budget_per_hour_usd": 2.5, "most_workers": null, "cache_bytes": 16 << 20,
        }});
        assert_eq!(set.document(), wanted);
        assert!("many".parse::<OptionalValue<u32>>().is_err());
        assert!("16 many".parse::<OptionalValue<Bytes>>().is_err());
    }

    #[test]
    fn targets_and_presets_are_set_and_taken_back() {
        let set = Set {
            settings: Settings {
                latency_ms: Some("20".parse().expect("a number")),
                min_accuracy: Some("none".parse().expect("none")),
                preset: vec![
                    "fast:latency_ms=5,min_accuracy=0.9"
                        .parse()
                        .expect("a preset"),
                ],
                ..Settings::default()
            },
            remove_preset: vec!["old".to_owned()],
            ..set()
        };
        let wanted = json!({
            "default_targets": {"latency_ms": 20.0, "min_accuracy": null},
            "presets": {"fast": {"latency_ms": 5.0, "min_accuracy": 0.9}, "old": null}
        });
        assert_eq!(set.document(), wanted);
    }

    #[test]
    fn feedback_is_taken_with_settings_and_no_more() {
        let of = |text: &str| {
            let set = Set {
                feedback: Some(text.parse().expect("settings")),
                ..set()
            };
            set.document()["feedback"].clone()
        };
        assert_eq!(of("on"), json!({}));
        assert_eq!(of("none"), Value::Null);
        assert_eq!(
            of("keep_days=7,reward=lower"),
            json!({"keep_days": 7, "reward": "lower"})
        );
        assert!(
            "keep_days"
                .parse::<OptionalValue<FeedbackOptions>>()
                .is_err()
        );
    }

    #[test]
    fn what_is_no_preset_is_refused() {
        for text in ["fast", "fast:latency_ms", "fast:latency_ms=soon"] {
            assert!(text.parse::<Preset>().is_err(), "{text}");
        }
    }
}
