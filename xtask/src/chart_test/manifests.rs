//! The objects that the chart renders, as JSON.

use anyhow::{Context, Result};
use serde_json::Value;

/// All objects of one rendering.
#[derive(Default)]
pub struct Manifests(pub Vec<Value>);

/// A Deployment with its only container.
#[derive(Clone, Copy)]
pub struct Deployment<'a>(pub &'a Value);

/// A list that may be missing.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text that may be missing.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A number of bytes, in the units that the chart uses.
pub fn bytes(quantity: &Value) -> Option<u64> {
    if let Some(number) = quantity.as_u64() {
        return Some(number);
    }
    let text = quantity.as_str()?;
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("", 0)];
    let (number, power) = units
        .iter()
        .find_map(|(unit, power)| Some((text.strip_suffix(unit)?, power)))?;
    let number: f64 = number.parse().ok()?;
    Some((number * (1_u64 << power) as f64) as u64)
}

impl Manifests {
    /// The objects of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The objects that Kubernetes itself defines.
    pub fn of_kubernetes(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|object| {
            let group = text(&object["apiVersion"]).split('/').next();
            let group = group.unwrap_or_default();
            !group.contains('.') || group.ends_with(".k8s.io")
        })
    }

    /// An object by its kind and name.
    pub fn named(&self, kind: &str, name: &str) -> Result<&Value> {
        let found = self
            .of_kind(kind)
            .find(|object| object["metadata"]["name"] == name);
        found.with_context(|| format!("there is no {kind} `{name}`"))
    }

    /// The Deployments.
    pub fn deployments(&self) -> impl Iterator<Item = Deployment<'_>> {
        self.of_kind("Deployment").map(Deployment)
    }

    /// A Deployment by the end of its name, such as `worker-gpu`.
    pub fn deployment(&self, component: &str) -> Result<Deployment<'_>> {
        Ok(Deployment(
            self.named("Deployment", &format!("sextant-{component}"))?,
        ))
    }
}

impl<'a> Deployment<'a> {
    /// Its name.
    pub fn name(self) -> &'a str {
        text(&self.0["metadata"]["name"])
    }

    /// The pod.
    pub fn pod(self) -> &'a Value {
        &self.0["spec"]["template"]["spec"]
    }

    /// Its container.
    pub fn container(self) -> &'a Value {
        &self.pod()["containers"][0]
    }

    /// The arguments of its program.
    pub fn arguments(self) -> Vec<&'a str> {
        items(&self.container()["args"]).map(text).collect()
    }

    /// The roles that it plays.
    pub fn roles(self) -> Vec<&'a str> {
        let arguments = self.arguments();
        let at = arguments.iter().position(|argument| *argument == "--role");
        let roles = at.and_then(|at| arguments.get(at + 1)).copied();
        roles.unwrap_or_default().split(',').collect()
    }

    /// A variable whose value is given directly.
    pub fn variable(self, name: &str) -> Option<&'a str> {
        let found = items(&self.container()["env"]).find(|it| it["name"] == name);
        found?["value"].as_str()
    }

    /// A volume by its name.
    pub fn volume(self, name: &str) -> &'a Value {
        let found = items(&self.pod()["volumes"]).find(|it| it["name"] == name);
        found.unwrap_or(&Value::Null)
    }

    /// A port by its name.
    pub fn port(self, name: &str) -> Option<u64> {
        let found = items(&self.container()["ports"]).find(|it| it["name"] == name);
        found?["containerPort"].as_u64()
    }
}
