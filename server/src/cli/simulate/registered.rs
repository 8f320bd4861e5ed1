//! `sextant simulate --what-if --registered`: the cost of recorded queries with different autoscalers and targets.
//!
//! The service provides the variants with their profiles, and the types of devices. They become an experiment with a
//! fleet, in the form that `docs/simulator.md` describes, so the question can be saved, changed and asked again without
//! the service.

mod question;

use std::path::Path;

use serde_json::{Value, json};
use sextant_simulator::{fleet::Experiment, trace::Trace};

use super::{Simulate, fleet, write};
use crate::cli::{Client, Error, output::Output, variants::answering};
use question::{Parts, Targets};

/// Answers the question about the queries in `workload`.
pub async fn run(
    of: &Simulate,
    workload: &Path,
    client: &Client,
    output: Output,
) -> Result<(), Error> {
    Targets::check(&of.latency_ms, &of.min_accuracy)?;
    let trace = Trace::load(workload)?;
    let mut applications = Vec::new();
    for name in &trace.models {
        let about: Value = client.get(&["v1", "applications", name]).await?;
        let variants: Value = client
            .get(&["v1", "applications", name, "variants"])
            .await?;
        applications.push(json!({"about": about, "variants": answering(&variants)}));
    }
    let (workers, scaling) = match &of.devices {
        Some(_) => (Value::Null, Value::Null),
        None => (
            client.get(&["v1", "workers"]).await?,
            client.get(&["v1", "scaling"]).await?,
        ),
    };
    let path = std::path::absolute(workload).map_err(|source| Error::Io {
        path: workload.to_owned(),
        source,
    })?;
    let parts = Parts {
        applications: &applications,
        workers: &workers,
        scaling: &scaling,
        devices: of.devices.as_deref(),
        targets: Targets::each(&of.latency_ms, &of.min_accuracy),
        workload: &path,
        seconds: trace.seconds(),
    };
    let text = parts.text()?;
    if let Some(path) = &of.save {
        write(path, &text)?;
    }
    let experiment = Experiment::parse(&text, question::NAME)?;
    fleet::run(of, &experiment, output)
}
