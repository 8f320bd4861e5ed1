//! `cargo xtask chart-test`: the Helm chart is linted, and what it renders is held against the schemas of
//! the oldest Kubernetes that it says it needs, of one between and of the newest that there is a schema of.
//!
//! No cluster is needed. The schemas come from PyPI with the program that compares.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::paths;
use crate::provision::{self, helm, python};
use crate::shell::{self, say};

const CHART: &str = "deploy/helm/sextant";
/// The program that compares, and its dependencies.
const REQUIREMENTS: &str = include_str!("../requirements-chart.txt");
/// Versions of Kubernetes; the first is the chart's `kubeVersion`.
const KUBERNETES: [&str; 3] = ["1.27", "1.32", "1.37"];

/// What users set, so that every branch of the templates is rendered.
const VALUES: [(&str, &[&str]); 3] = [
    ("defaults", &[]),
    (
        "GPUs, scaled by the autoscaler",
        &[
            "workerGpu.replicas=2",
            "workerGpu.image.repository=registry.example/sextant",
            "workerGpu.image.tag=gpu",
            "workerGpu.nodeSelector.pool=gpu",
            "autoscaler.scalesWorkers=true",
        ],
    ),
    (
        "encrypted, with settings",
        &[
            "fleetTls.secret=fleet-tls",
            "apiTls.secret=api-tls",
            "auth.mode=off",
            "stores.objects.endpoint=http://s3.example:9000",
            "settings.SEXTANT_LOG__LEVEL=debug",
            "set.worker\\.health\\.min_batches=5",
            "worker.tolerations[0].operator=Exists",
        ],
    ),
];

/// Runs all of it; fails at the first thing that is wrong.
pub fn run() -> Result<()> {
    let provisioned = provision::runtime()?;
    let helm = helm::ensure(&provisioned.cache, &provisioned.python)?;
    let python = python::environment(&provisioned.cache.join("python-chart"), REQUIREMENTS)?;
    let folder = paths::empty_target("chart-test")?;
    let mut checked = 0;
    for (number, (name, values)) in VALUES.iter().enumerate() {
        let sets = sets(values);
        shell::run(
            shell::command(&helm)
                .args(["lint", CHART, "--strict"])
                .args(&sets),
        )?;
        for version in KUBERNETES {
            let file = folder.join(format!("{number}-{version}.yaml"));
            render(&helm, version, &sets, &file)?;
            checked += validate(&python, version, &file)
                .with_context(|| format!("{name}, Kubernetes {version}"))?;
        }
    }
    println!(
        "chart-test: {checked} objects of {} sets of values hold to Kubernetes {}",
        VALUES.len(),
        KUBERNETES.join(", ")
    );
    Ok(())
}

fn sets(values: &[&str]) -> Vec<String> {
    values
        .iter()
        .map(|value| format!("--set={value}"))
        .collect()
}

fn render(helm: &Path, version: &str, sets: &[String], file: &PathBuf) -> Result<()> {
    let mut template = shell::command(helm);
    template
        .args(["template", "sextant", CHART, "--kube-version", version])
        .args(sets);
    std::fs::write(file, shell::output(&mut template)?)
        .with_context(|| format!("cannot write `{}`", file.display()))
}

/// How many objects there are, all of which hold to the schemas of a version.
fn validate(python: &Path, version: &str, file: &Path) -> Result<usize> {
    let program = python.with_file_name("kubernetes-validate");
    let mut validate = shell::command(program);
    validate
        .args(["--strict", "--kubernetes-version", version])
        .arg(file);
    let output = validate.output().context("cannot start the comparison")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.success(), "{}", text.trim());
    let passed = text.matches(" passed for resource ").count();
    // What has no schema is passed over without a word.
    let objects = std::fs::read_to_string(file)?;
    let objects = objects
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();
    ensure!(
        passed == objects && objects > 0,
        "{passed} of {objects} objects were compared: {}",
        text.trim()
    );
    say(format!(
        "{}: {objects} objects, Kubernetes {version}",
        file.display()
    ));
    Ok(objects)
}
