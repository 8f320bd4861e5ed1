//! `sextant application`: what an application may use of the fleet.

use std::str::FromStr;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};
use sextant_types::ApplicationId;

use super::{Client, Error, Output};

/// Show and set what an application may use of the fleet.
#[derive(Debug, Subcommand)]
pub enum Application {
    /// Show an application.
    Get {
        /// Its name.
        name: ApplicationId,
    },
    /// Set its budget, workers, priority and weight; what is left out stays, `none` takes back.
    Set(Box<Set>),
}

/// Set its budget, workers, priority and weight; what is left out stays, `none` takes back.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Its name.
    name: ApplicationId,
    /// Most that its answers may cost, US dollars an hour.
    #[arg(long, value_name = "USD")]
    budget_per_hour: Option<Given<f64>>,
    /// Workers' worth of load that is planned for it even when nobody asks.
    #[arg(long, value_name = "WORKERS")]
    least_workers: Option<Given<u32>>,
    /// Most workers' worth of load that is planned for it.
    #[arg(long, value_name = "WORKERS")]
    most_workers: Option<Given<u32>>,
    /// Where there is not enough for all, a higher one goes first: 0 to 255.
    #[arg(long)]
    priority: Option<Given<u8>>,
    /// Its share beside others of the same priority.
    #[arg(long)]
    weight: Option<Given<f64>>,
}

/// A value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Given<T>(Option<T>);

impl<T: FromStr> FromStr for Given<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            "none" => Ok(Self(None)),
            text => text.parse().map(|value| Self(Some(value))),
        }
    }
}

impl Application {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
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
        }
    }
}

impl Set {
    fn document(&self) -> Value {
        let given = [
            (
                "budget_per_hour_usd",
                self.budget_per_hour.map(|of| json!(of.0)),
            ),
            ("least_workers", self.least_workers.map(|of| json!(of.0))),
            ("most_workers", self.most_workers.map(|of| json!(of.0))),
            ("priority", self.priority.map(|of| json!(of.0))),
            ("weight", self.weight.map(|of| json!(of.0))),
        ];
        let given = given.into_iter();
        let members: Map<String, Value> = given
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        json!({ "resources": members })
    }
}

/// An application, a member to a line.
fn shown(application: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut lines: Vec<String> = ["name", "metric", "description"]
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", text(application.get(*name)?))))
        .collect();
    match application.get("resources").and_then(Value::as_object) {
        Some(set) => lines.extend(
            set.iter()
                .map(|(name, value)| format!("{name}: {}", text(value))),
        ),
        None => lines.push("resources: nothing is set".to_owned()),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_stays_and_none_takes_back() {
        let set = Set {
            name: ApplicationId::new("digits").expect("a name"),
            budget_per_hour: Some("2.5".parse().expect("a number")),
            least_workers: None,
            most_workers: Some("none".parse().expect("none")),
            priority: None,
            weight: None,
        };
        let wanted = json!({"resources": {"budget_per_hour_usd": 2.5, "most_workers": null}});
        assert_eq!(set.document(), wanted);
        assert!("many".parse::<Given<u32>>().is_err());
    }
}
