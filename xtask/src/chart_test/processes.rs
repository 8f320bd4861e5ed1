//! The processes that the chart would start: their environments and arguments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::manifests::{Deployment, Manifests, items, text};
use crate::paths;

/// Example values of a Secret.
const SECRETS: [(&str, &str); 5] = [
    ("metadata-url", "redis://redis.example:6379/0"),
    (
        "registry-url",
        "postgres://sextant:secret@postgres.example/sextant",
    ),
    ("aws-access-key-id", "an-access-key"),
    ("aws-secret-access-key", "a-secret-key"),
    ("admin-key", "a-key-of-an-administrator"),
];

/// The processes of a case, as `server/config/examples/settings.rs` reads them.
pub fn of(case: &str, manifests: &Manifests) -> Result<Vec<Value>> {
    let processes = manifests.deployments().map(|deployment| {
        let name = deployment.name();
        let environment =
            environment(deployment).with_context(|| format!("Deployment `{name}`"))?;
        Ok(json!({
            "name": format!("{case}: {name}"),
            "environment": environment,
            "arguments": deployment.arguments(),
        }))
    });
    processes.collect()
}

/// Compares the record from which the test of encrypted processes starts with what the chart renders; writes the record
/// if `SEXTANT_BLESS` is set.
pub fn compare_with_record(manifests: &Manifests) -> Result<()> {
    let processes: Result<Vec<Value>> = manifests.deployments().map(recorded).collect();
    let certificates = manifests.of_kind("Certificate").map(|certificate| {
        let spec = &certificate["spec"];
        json!({"secret": spec["secretName"], "names": spec["dnsNames"], "usages": spec["usages"]})
    });
    let certificates: Vec<Value> = certificates.collect();
    let record = json!({"processes": processes?, "certificates": certificates});
    let text = format!("{}\n", serde_json::to_string_pretty(&record)?);
    let file: PathBuf = paths::root().join("tests/chart/encrypted.json");
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(&file, &text)?;
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    ensure!(
        known == text,
        "`{}` is not what the chart renders: `SEXTANT_BLESS=1 cargo xtask chart-test` writes it",
        file.display()
    );
    Ok(())
}

/// A process with the Secrets of its files, by their folders.
fn recorded(deployment: Deployment<'_>) -> Result<Value> {
    let mounts = items(&deployment.container()["volumeMounts"]);
    let secrets = mounts.filter_map(|mount| {
        let secret = &deployment.volume(text(&mount["name"]))["secret"]["secretName"];
        Some((text(&mount["mountPath"]).to_owned(), secret.as_str()?))
    });
    Ok(json!({
        "name": deployment.name(),
        "roles": deployment.roles(),
        "environment": environment(deployment)?,
        "secrets": secrets.collect::<BTreeMap<_, _>>(),
    }))
}

fn environment(deployment: Deployment<'_>) -> Result<BTreeMap<String, String>> {
    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    for variable in items(&deployment.container()["env"]) {
        let name = text(&variable["name"]);
        let mut value = value(deployment, variable)?;
        for (known, earlier) in &environment {
            value = value.replace(&format!("$({known})"), earlier);
        }
        ensure!(!value.contains("$("), "`{name}` names a variable behind it");
        environment.insert(name.to_owned(), value);
    }
    Ok(environment)
}

fn value(deployment: Deployment<'_>, variable: &Value) -> Result<String> {
    let from = &variable["valueFrom"];
    if let Some(value) = variable["value"].as_str() {
        return Ok(value.to_owned());
    }
    if let Some(field) = from["fieldRef"]["fieldPath"].as_str() {
        return Ok(match field {
            "status.podIP" => "10.0.0.1".to_owned(),
            "metadata.name" => format!("{}-0a1b2c3d-4e5f6", deployment.name()),
            other => bail!("`{other}` is no field that the chart may read"),
        });
    }
    let key = text(&from["secretKeyRef"]["key"]);
    let known = SECRETS.iter().find(|(name, _)| *name == key);
    let (_, value) = known.with_context(|| format!("{variable} has no value that is known"))?;
    Ok((*value).to_owned())
}
