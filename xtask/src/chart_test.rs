//! `cargo xtask chart-test`: lints the Helm chart, validates what it renders from files of values, and reads its
//! settings as the service reads them. It validates with the schemas of three versions of Kubernetes: the oldest that
//! the chart supports, one in between, and the newest that has a schema.
//!
//! No cluster is needed. The schemas come from PyPI with the validator. There are no schemas here for objects that
//! other operators define (cert-manager, KEDA, Prometheus).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::paths;
use crate::provision::{self, helm, python};
use crate::shell::{self, say};

mod cases;
mod manifests;
mod processes;
mod rules;

use manifests::Manifests;

const CHART: &str = "deploy/helm/sextant";
/// The validator and its dependencies.
const REQUIREMENTS: &str = include_str!("../requirements-chart.txt");
/// Versions of Kubernetes; the first is the chart's `kubeVersion`.
const KUBERNETES: [&str; 3] = ["1.27", "1.32", "1.37"];
/// Prints the objects of a file of YAML as JSON.
const TO_JSON: &str = "import json, sys, yaml\n\
    print(json.dumps([it for it in yaml.safe_load_all(open(sys.argv[1])) if it]))";

/// The programs of the test.
struct Tools {
    helm: PathBuf,
    python: PathBuf,
    /// The folder of the rendered files.
    folder: PathBuf,
}

/// Runs the whole test; fails at the first error.
pub fn run() -> Result<()> {
    let provisioned = provision::runtime()?;
    let tools = Tools {
        helm: helm::ensure(&provisioned.cache, &provisioned.python)?,
        python: python::environment(&provisioned.cache.join("python-chart"), REQUIREMENTS)?,
        folder: paths::empty_target("chart-test")?,
    };
    let mut checked = 0;
    let mut started = Vec::new();
    for case in cases::CASES {
        checked += tools
            .check(case, &mut started)
            .with_context(|| format!("`{}`", case.file()))?;
    }
    tools.read_settings(&started)?;
    for (values, wanted) in cases::REFUSED {
        tools.refuses(values, wanted)?;
    }
    for (sets, wanted) in cases::NOTES {
        tools.notes_say(sets, wanted)?;
    }
    println!(
        "chart-test: {checked} objects of {} files of values hold to Kubernetes {}, and the settings of {} processes can \
         be read",
        cases::CASES.len(),
        KUBERNETES.join(", "),
        started.len()
    );
    Ok(())
}

impl Tools {
    /// Validates the objects of a case and returns their number. The processes that the case would start are added to
    /// `started`.
    fn check(&self, case: &cases::Case, started: &mut Vec<Value>) -> Result<usize> {
        let values = self.folder.join(format!("{}.yaml", case.name));
        std::fs::write(&values, case.values)?;
        let mut lint = shell::command(&self.helm);
        lint.args(["lint", CHART, "--strict", "--values"])
            .arg(&values);
        shell::run(&mut lint)?;
        let mut checked = 0;
        let mut newest = Manifests::default();
        for version in KUBERNETES {
            let file = self.folder.join(format!("{}-{version}.yaml", case.name));
            self.render(version, &values, &file)?;
            newest = self.parse(&file)?;
            checked += self
                .validate(version, &file, &newest)
                .with_context(|| format!("Kubernetes {version}"))?;
        }
        rules::hold(&newest)?;
        (case.expect)(&newest)?;
        started.extend(processes::of(case.name, &newest)?);
        if case.is_recorded {
            processes::compare_with_record(&newest)?;
        }
        Ok(checked)
    }

    fn render(&self, version: &str, values: &Path, file: &Path) -> Result<()> {
        let mut template = shell::command(&self.helm);
        template
            .args([
                "template",
                "sextant",
                CHART,
                "--kube-version",
                version,
                "--values",
            ])
            .arg(values);
        std::fs::write(file, shell::output(&mut template)?)
            .with_context(|| format!("cannot write `{}`", file.display()))
    }

    fn parse(&self, file: &Path) -> Result<Manifests> {
        let mut parse = shell::command(&self.python);
        parse.args(["-c", TO_JSON]).arg(file);
        let objects = serde_json::from_str(&shell::output(&mut parse)?)?;
        Ok(Manifests(objects))
    }

    /// Validates all objects with the schemas of a version and returns their number.
    fn validate(&self, version: &str, file: &Path, manifests: &Manifests) -> Result<usize> {
        let mut validate = shell::command(self.python.with_file_name("kubernetes-validate"));
        validate
            .args(["--strict", "--kubernetes-version", version])
            .arg(file);
        let output = validate.output().context("cannot start the comparison")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(output.status.success(), "{}", text.trim());
        let passed = text.matches(" passed for resource ").count();
        // Objects without a schema are skipped.
        let objects = manifests.of_kubernetes().count();
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

    /// Reads the environments and arguments with the service's own code.
    fn read_settings(&self, started: &[Value]) -> Result<()> {
        let file = self.folder.join("processes.json");
        std::fs::write(&file, serde_json::to_vec_pretty(started)?)?;
        // The build covers the whole workspace, so that what its tests have compiled is compiled only once.
        let mut build = shell::command("cargo");
        build.args(["build", "--quiet", "--workspace", "--example", "settings"]);
        shell::run(&mut build)?;
        let mut read = shell::command(paths::target("debug/examples/settings"));
        read.arg(&file);
        shell::run(&mut read).context("what the chart renders is no setting")
    }

    /// Checks that values are refused with these words.
    fn refuses(&self, values: &str, wanted: &str) -> Result<()> {
        let file = self.folder.join("refused.yaml");
        std::fs::write(&file, values)?;
        let mut template = shell::command(&self.helm);
        template
            .args(["template", "sextant", CHART, "--values"])
            .arg(&file);
        let output = template.output().context("cannot start Helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{values} is not refused");
        ensure!(
            said.contains(wanted),
            "{values}: `{wanted}` is not in {said}"
        );
        Ok(())
    }

    /// Checks the notes after an installation with these values.
    fn notes_say(&self, sets: &[&str], wanted: &[&str]) -> Result<()> {
        let mut install = shell::command(&self.helm);
        install.args(["install", "sextant", CHART, "--dry-run=client"]);
        install.args(sets.iter().map(|set| format!("--set={set}")));
        let said = shell::output(&mut install)?;
        let notes = said.split("\nNOTES:\n").nth(1).context("no notes")?;
        for wanted in wanted {
            ensure!(
                notes.contains(wanted),
                "{sets:?}: `{wanted}` is not in {notes}"
            );
        }
        Ok(())
    }
}
