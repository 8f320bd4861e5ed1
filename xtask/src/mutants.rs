//! `cargo xtask mutants`: measures whether the tests notice small changes of the code.
//!
//! cargo-mutants edits the code in a git worktree below `target/mutants` and leaves the checkout alone. See
//! `docs/mutants.md`.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    bench::report::{Figure, Report},
    paths,
    provision::tools,
    shell::{self, say},
    tree::Tree,
};

/// The packages whose tests are meant to notice every change, and the part of their mutants in a sample: about sixty of
/// each.
const PACKAGES: [(&str, &str); 9] = [
    ("sextant-metadata", "0/4"),
    ("sextant-registry", "0/7"),
    ("sextant-selection", "0/4"),
    ("sextant-health", "0/2"),
    ("sextant-schedule", "0/20"),
    ("sextant-placement", "0/15"),
    ("sextant-controller", "0/7"),
    ("sextant-scaling", "0/25"),
    ("sextant-profile", "0/8"),
];

/// Options of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Packages [default: those of the registry, the metadata and the decisions]
    packages: Vec<String>,
    /// Only files that match this glob
    #[arg(long = "file", short)]
    files: Vec<String>,
    /// Which part of the mutants: `K/N` is every Nth from the Kth on, counted from 0 [default: by package]
    #[arg(long)]
    shard: Option<String>,
    /// Only these tests, by what `cargo test` takes behind `--`
    #[arg(long, value_name = "FILTER")]
    tests: Vec<String>,
    /// Print one JSON object per figure
    #[arg(long)]
    json: bool,
}

/// The outcomes of a package's mutants.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    /// A test failed, or did not end.
    caught: u64,
    /// No test failed.
    missed: u64,
}

/// Tests the mutants of one package after the other.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let cargo_mutants = tools::cargo_mutants(&paths::cache()?)?;
    let tree = Tree::at_head("mutants")?;
    let mut report = Report::new(arguments.json);
    let mut all = Outcome::default();
    for (package, shard) in samples(arguments) {
        let outcome = try_package(&cargo_mutants, &tree, (&package, &shard), arguments)?;
        say(format!(
            "{package}, {shard}: {} caught, {} missed",
            outcome.caught, outcome.missed
        ));
        all.caught += outcome.caught;
        all.missed += outcome.missed;
        let figure = |metric, value, unit| Figure::new("mutants", metric, value, unit, None);
        report.add(figure("mutants", outcome.all() as f64, "mutants").of(&package));
        report.add(figure("caught_ratio", outcome.ratio(), "ratio").of(&package));
    }
    if all.all() == 0 {
        bail!("nothing was changed: a larger part of the mutants, or other files, may have some");
    }
    let metric = "mutants_caught_ratio";
    let goal = Some("0.85 or more");
    report.add(Figure::new("mutants", metric, all.ratio(), "ratio", goal));
    report.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The packages, and the part of their mutants that is tested.
fn samples(arguments: &Arguments) -> Vec<(String, String)> {
    let usual = |package: &str| {
        let known = PACKAGES.iter().find(|(name, _)| *name == package);
        known.map_or("0/1", |(_, shard)| *shard)
    };
    let packages: Vec<&str> = match &arguments.packages[..] {
        [] => PACKAGES.iter().map(|(name, _)| *name).collect(),
        named => named.iter().map(|name| &**name).collect(),
    };
    let shard = |package| arguments.shard.as_deref().unwrap_or_else(|| usual(package));
    packages
        .into_iter()
        .map(|package| (package.to_owned(), shard(package).to_owned()))
        .collect()
}

fn try_package(
    cargo_mutants: &PathBuf,
    tree: &Tree,
    (package, shard): (&str, &str),
    arguments: &Arguments,
) -> Result<Outcome> {
    let outcomes = paths::empty_target(&format!("mutants/{package}"))?;
    let mut command = shell::command(cargo_mutants);
    command
        .args(["mutants", "--in-place", "--package", package])
        .args(["--shard", shard, "--sharding", "round-robin"])
        .args(["--no-shuffle", "--colors", "never", "--output"])
        .arg(&outcomes)
        .current_dir(&tree.path)
        // The dependencies that the checkout has compiled are reused; our own packages differ by their path.
        .env("CARGO_TARGET_DIR", paths::target(""));
    for file in &arguments.files {
        command.args(["--file", file]);
    }
    if !arguments.tests.is_empty() {
        command.args(["--", "--"]).args(&arguments.tests);
    }
    // The list of missed mutants goes where progress goes.
    let status = shell::results(&mut command)?;
    eprint!("{}", String::from_utf8_lossy(&status.stdout));
    let file = outcomes.join("mutants.out/outcomes.json");
    let text = fs::read(&file).with_context(|| {
        let shown = shell::show(&command);
        format!("`{shown}` ended with {} and tried nothing", status.status)
    })?;
    let said: Value = serde_json::from_slice(&text)?;
    let outcome = Outcome::read(&said);
    if outcome.all() == 0 && !status.status.success() {
        bail!(
            "`{package}` does not pass its tests as it is: see {}",
            file.display()
        );
    }
    Ok(outcome)
}

// === impl Outcome ===

impl Outcome {
    /// Reads the report of cargo-mutants. Mutants that do not compile do not count.
    fn read(said: &Value) -> Self {
        let count = |what: &str| said[what].as_u64().unwrap_or(0);
        Self {
            caught: count("caught") + count("timeout"),
            missed: count("missed"),
        }
    }

    fn all(self) -> u64 {
        self.caught + self.missed
    }

    fn ratio(self) -> f64 {
        self.caught as f64 / self.all() as f64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_hangs_is_caught_and_what_does_not_compile_is_no_mutant() {
        let said = json!({"caught": 5, "missed": 2, "timeout": 1, "unviable": 7, "success": 0});
        let outcome = Outcome::read(&said);
        let expected = Outcome {
            caught: 6,
            missed: 2,
        };
        assert_eq!(outcome, expected);
        assert_eq!(outcome.ratio(), 0.75);
    }

    #[test]
    fn a_package_has_the_part_that_is_asked_for_or_its_own() {
        let mut arguments = Arguments {
            packages: vec!["sextant-registry".to_owned(), "other".to_owned()],
            files: Vec::new(),
            shard: None,
            tests: Vec::new(),
            json: false,
        };
        let pair = |package: &str, shard: &str| (package.to_owned(), shard.to_owned());
        let usual = [pair("sextant-registry", "0/7"), pair("other", "0/1")];
        assert_eq!(samples(&arguments), usual);
        arguments.packages.clear();
        assert_eq!(samples(&arguments).len(), PACKAGES.len());
        arguments.shard = Some("2/4".to_owned());
        assert!(samples(&arguments).iter().all(|(_, shard)| shard == "2/4"));
    }
}
