//! `-a digits:rate=50,latency_ms=20`: an application in a load, with settings of its own.

use std::{path::PathBuf, str::FromStr};

use serde_json::{Map, Value, json};
use sextant_types::ApplicationId;

use crate::cli::targets;

/// Targets that an application may have of its own.
const TARGETS: [&str; 5] = [
    "latency_ms",
    "min_accuracy",
    "max_error",
    "min_relative_accuracy",
    "max_cost_per_1k_usd",
];

/// An application to ask, and how.
#[derive(Debug, Clone)]
pub struct BenchTarget {
    /// Its name.
    pub name: ApplicationId,
    /// What is its own.
    pub own: OwnSettings,
}

/// What is an application's own; what is absent is as for all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnSettings {
    /// Queries a second.
    pub rate: Option<f64>,
    /// Connections of a closed loop.
    pub concurrency: Option<usize>,
    /// A file of records.
    pub input: Option<PathBuf>,
    /// One of its presets.
    pub preset: Option<String>,
    /// Targets by name.
    pub targets: Map<String, Value>,
}

impl FromStr for BenchTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let mut own = OwnSettings::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option
                .split_once('=')
                .ok_or_else(|| format!("`{option}` is no `option=value`"))?;
            own.set(key.trim(), value.trim())?;
        }
        if own.rate.is_some() && own.concurrency.is_some() {
            return Err("`rate` and `concurrency` exclude each other".to_owned());
        }
        Ok(Self { name, own })
    }
}

impl OwnSettings {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "rate" => self.rate = Some(number(key, value)?),
            "concurrency" => self.concurrency = Some(number(key, value)?),
            "input" => self.input = Some(value.into()),
            "preset" => self.preset = Some(value.to_owned()),
            target if TARGETS.contains(&target) => {
                let value =
                    targets::number(value).map_err(|reason| format!("`{key}`: {reason}"))?;
                self.targets.insert(target.to_owned(), json!(value));
            }
            other => {
                let targets = TARGETS.join(", ");
                return Err(format!(
                    "there is no option `{other}`: there are rate, concurrency, input, preset, {targets}"
                ));
            }
        }
        Ok(())
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    let parsed = value.parse();
    parsed.map_err(|_| format!("`{key}` is `{value}`, which is no such number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_a_colon() {
        let asked: BenchTarget = "digits:rate=50,latency_ms=20,preset=fast"
            .parse()
            .expect("one");
        assert_eq!(asked.name.as_str(), "digits");
        assert_eq!(asked.own.rate, Some(50.0));
        assert_eq!(asked.own.preset.as_deref(), Some("fast"));
        assert_eq!(asked.own.targets["latency_ms"], 20.0);
        assert_eq!(
            "wine".parse::<BenchTarget>().expect("one").own,
            OwnSettings::default()
        );
    }

    #[test]
    fn mistakes_are_told() {
        let refused = |text: &str| text.parse::<BenchTarget>().expect_err("refused");
        assert!(refused("digits:speed=3").contains("no option `speed`"));
        assert!(refused("digits:rate=fast").contains("`fast`"));
        assert!(refused("digits:rate").contains("`option=value`"));
        assert!(refused("digits:rate=1,concurrency=2").contains("exclude"));
        assert!("Digits!".parse::<BenchTarget>().is_err());
    }
}
