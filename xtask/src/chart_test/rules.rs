//! Rules for everything that the chart renders.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::manifests::{Deployment, Manifests, bytes, items, text};

/// Longest time of the migrations at a start, s: `crates/stores/registry/src/database/postgres.rs`.
const MIGRATION_S: u64 = 600;

/// Checks all rules.
pub fn hold(manifests: &Manifests) -> Result<()> {
    for deployment in manifests.deployments() {
        let checked = has_limits(deployment)
            .and_then(|()| cache_fits(deployment))
            .and_then(|()| is_given_time(deployment))
            .and_then(|()| numbers_are_whole(deployment))
            .and_then(|()| has_its_port(deployment));
        checked.with_context(|| format!("Deployment `{}`", deployment.name()))?;
    }
    certificates_differ(manifests)?;
    names_lead_somewhere(manifests)
}

/// Workers compute with the limits, so there must be limits, in whole cores.
fn has_limits(deployment: Deployment<'_>) -> Result<()> {
    let limits = &deployment.container()["resources"]["limits"];
    ensure!(bytes(&limits["memory"]).is_some(), "no limit of memory");
    let cores = match &limits["cpu"] {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    };
    ensure!(cores.is_some(), "no limit of cores in whole ones: {limits}");
    Ok(())
}

/// The volume must have room for the cache and for as much again.
fn cache_fits(deployment: Deployment<'_>) -> Result<()> {
    let loads = ["worker", "variant-gen"];
    if !deployment.roles().iter().any(|role| loads.contains(role)) {
        return Ok(());
    }
    let cache = deployment.variable("SEXTANT_OBJECTS__CACHE_BYTES");
    let cache: u64 = cache.context("no bound of the cache")?.parse()?;
    let volume = deployment.volume("data");
    if volume["emptyDir"].is_null() {
        return Ok(());
    }
    let room = bytes(&volume["emptyDir"]["sizeLimit"]).context("a disk without a bound")?;
    ensure!(
        cache > 0 && cache <= room / 2,
        "a cache of {cache} bytes on a disk of {room}"
    );
    Ok(())
}

/// A process must not be killed while a schema is migrated.
fn is_given_time(deployment: Deployment<'_>) -> Result<()> {
    let container = deployment.container();
    let number = |probe: &str, key: &str| container[probe][key].as_u64().unwrap_or_default();
    let start_s =
        number("startupProbe", "failureThreshold") * number("startupProbe", "periodSeconds");
    let patience = deployment.variable("SEXTANT_FLEET__START_PATIENCE_MS");
    let patience_ms: u64 = patience.context("no patience")?.parse()?;
    ensure!(
        start_s >= MIGRATION_S + patience_ms / 1000,
        "{start_s} s to start, of which {patience_ms} ms are for stores that are away"
    );
    ensure!(number("livenessProbe", "failureThreshold") > 0, "no probe");
    Ok(())
}

fn numbers_are_whole(deployment: Deployment<'_>) -> Result<()> {
    let variables = items(&deployment.container()["env"]).map(|it| text(&it["value"]));
    for value in variables.chain(deployment.arguments()) {
        ensure!(!value.contains("e+"), "`{value}` has an exponent");
    }
    Ok(())
}

/// Only a process that others call has a port for them.
fn has_its_port(deployment: Deployment<'_>) -> Result<()> {
    let called = ["worker", "dispatcher"];
    let is_called = deployment.roles().iter().any(|role| called.contains(role));
    let listens = deployment.variable("SEXTANT_FLEET__LISTEN").is_some();
    ensure!(
        deployment.port("grpc").is_some() == is_called && listens == is_called,
        "the port for the fleet"
    );
    Ok(())
}

/// An object with the front end's certificate must have no other.
fn certificates_differ(manifests: &Manifests) -> Result<()> {
    let secrets = manifests
        .deployments()
        .filter_map(|deployment| deployment.volume("fleet-tls")["secret"]["secretName"].as_str());
    let secrets: Vec<&str> = secrets.collect();
    let different: BTreeSet<&str> = secrets.iter().copied().collect();
    ensure!(different.len() == secrets.len(), "{secrets:?}");
    let made = manifests.of_kind("Certificate");
    let made: BTreeSet<&str> = made.map(|it| text(&it["spec"]["secretName"])).collect();
    ensure!(
        made.is_empty() || made == different,
        "certificates {made:?} for {different:?}"
    );
    Ok(())
}

/// Selectors must select pods, references must name existing objects, and ports must be those of pods.
fn names_lead_somewhere(manifests: &Manifests) -> Result<()> {
    let labels =
        |deployment: Deployment<'_>| deployment.0["spec"]["template"]["metadata"]["labels"].clone();
    let pods: Vec<Value> = manifests.deployments().map(labels).collect();
    let selects = |wanted: &Value| {
        let wanted = wanted.as_object().into_iter().flatten();
        let wanted: Vec<_> = wanted.collect();
        !wanted.is_empty()
            && pods
                .iter()
                .any(|pod| wanted.iter().all(|(key, value)| pod[key] == **value))
    };
    for budget in manifests.of_kind("PodDisruptionBudget") {
        let selector = &budget["spec"]["selector"]["matchLabels"];
        ensure!(selects(selector), "{selector} selects no pod");
    }
    for service in manifests.of_kind("Service") {
        let selector = &service["spec"]["selector"];
        ensure!(selects(selector), "{selector} selects no pod");
        for port in items(&service["spec"]["ports"]) {
            let name = text(&port["targetPort"]);
            let is_there = manifests.deployments().any(|it| it.port(name).is_some());
            ensure!(is_there, "no pod has the port `{name}`");
        }
    }
    for object in manifests.of_kind("ScaledObject") {
        manifests.named(
            "Deployment",
            text(&object["spec"]["scaleTargetRef"]["name"]),
        )?;
    }
    Ok(())
}
