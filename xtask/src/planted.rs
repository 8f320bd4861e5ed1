//! `cargo xtask planted`: measures whether the campaign of faults notices the bugs of `tests/planted`.
//!
//! Patches are applied one at a time in a git worktree below `target/planted`, at the commit that is checked out here.
//! The checkout itself is never edited. The campaign is that of the checkout.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    bench::report::{Figure, Report},
    paths, provision, shell,
    tree::Tree,
};

/// Seeds of the runs that test each bug, until one notices it: a single process and fleets, with most kinds of faults.
/// A patch that begins with `Seed: N` is tested with that run first.
const SEEDS: [u64; 5] = [10, 9, 25, 477, 6];
/// Time in which the load of a run meets faults, seconds.
const SECONDS: u64 = 8;

/// Options of `cargo xtask planted`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Patches of `tests/planted`, without their suffix [default: all]
    names: Vec<String>,
    /// Print one JSON object per figure
    #[arg(long)]
    json: bool,
}

/// The binaries and the worktree that all patches share.
struct Stage {
    campaign: PathBuf,
    onnxruntime: PathBuf,
    tree: Tree,
    /// Build outputs of the worktree, kept from patch to patch.
    target: PathBuf,
}

/// The verdict of a run.
struct RunVerdict {
    seed: u64,
    rules: BTreeSet<String>,
}

/// Plants the bugs one after the other and reports which were found.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let patches = patches(&arguments.names)?;
    let stage = Stage::set()?;
    shell::say("control: the service as it is");
    if let Some(RunVerdict { seed, rules }) =
        stage.campaign(&paths::target("debug/sextant"), &SEEDS)?
    {
        bail!(
            "the service as it is breaks {rules:?} at seed {seed}: `cargo xtask chaos --seed {seed}` says how"
        );
    }
    let mut lines = Vec::new();
    let mut found = 0;
    for (number, patch) in patches.iter().enumerate() {
        let name = name_of(patch);
        shell::say(format!("{} of {}: `{name}`", number + 1, patches.len()));
        let noticed = stage.plant(patch)?;
        found += usize::from(noticed.is_some());
        let line = match noticed {
            Some(RunVerdict { seed, rules }) => {
                let rules: Vec<String> = rules.iter().map(|rule| format!("`{rule}`")).collect();
                format!("| `{name}` | {} | {seed} |", rules.join(", "))
            }
            None => format!("| `{name}` | nothing | |"),
        };
        shell::say(&line);
        lines.push(line);
    }
    let table = format!(
        "| patch | found by | seed |\n|---|---|---|\n{}\n",
        lines.join("\n")
    );
    match arguments.json {
        true => eprintln!("{table}"),
        false => println!("{table}"),
    }
    let ratio = found as f64 / patches.len() as f64;
    let mut report = Report::new(arguments.json);
    let metric = "planted_bugs_found_ratio";
    report.add(Figure::new(
        "planted",
        metric,
        ratio,
        "ratio",
        Some("0.95 or more"),
    ));
    report.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The patches of these names, or all if there are no names; sorted.
fn patches(names: &[String]) -> Result<Vec<PathBuf>> {
    let folder = paths::root().join("tests/planted");
    let mut all: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    all.retain(|path| path.extension().is_some_and(|it| it == "patch"));
    all.sort();
    let known: BTreeSet<String> = all.iter().map(|path| name_of(path)).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        bail!("there is no patch `{unknown}` in `tests/planted`");
    }
    all.retain(|path| names.is_empty() || names.contains(&name_of(path)));
    Ok(all)
}

fn name_of(patch: &Path) -> String {
    let name = patch.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The seeds of the runs that test a bug, in order.
fn seeds(patch: &Path) -> Result<Vec<u64>> {
    let text = fs::read_to_string(patch)?;
    let own = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("Seed: "));
    let own: Option<u64> = own
        .map(str::parse)
        .transpose()
        .with_context(|| format!("the first line of `{}` has no number", patch.display()))?;
    let others = SEEDS.into_iter().filter(|seed| Some(*seed) != own);
    Ok(own.into_iter().chain(others).collect())
}

impl Stage {
    /// Builds the service and the campaign, and creates the worktree.
    fn set() -> Result<Self> {
        let provisioned = provision::stores()?;
        let build = "build --workspace --bin sextant --example chaos";
        shell::run(shell::command("cargo").args(build.split(' ')))?;
        Ok(Self {
            campaign: paths::target("debug/examples/chaos"),
            onnxruntime: provisioned.onnxruntime,
            tree: Tree::at_head("planted")?,
            target: paths::target("planted/target"),
        })
    }

    /// Builds the service with a bug, runs the campaign on it, and removes the bug.
    fn plant(&self, patch: &Path) -> Result<Option<RunVerdict>> {
        let name = name_of(patch);
        let file = patch.to_string_lossy();
        self.tree
            .git(&["apply", &file])
            .with_context(|| format!("`{name}` does not apply"))?;
        let noticed = self
            .build()
            .with_context(|| format!("with `{name}` the service does not build"))
            .and_then(|binary| self.campaign(&binary, &seeds(patch)?));
        self.tree.git(&["apply", "--reverse", &file])?;
        noticed
    }

    fn build(&self) -> Result<PathBuf> {
        let mut build = Command::new("cargo");
        build
            .args(["build", "--quiet", "--workspace", "--bin", "sextant"])
            .current_dir(&self.tree.path)
            .env("CARGO_TARGET_DIR", &self.target);
        shell::run(&mut build)?;
        Ok(self.target.join("debug/sextant"))
    }

    /// The verdict of the first run that notices anything.
    fn campaign(&self, binary: &Path, seeds: &[u64]) -> Result<Option<RunVerdict>> {
        for seed in seeds.iter().copied() {
            let mut campaign = shell::command(&self.campaign);
            campaign
                .args(["--seed", &seed.to_string(), "--runs", "1", "--json"])
                .args(["--seconds", &SECONDS.to_string()])
                .env("ORT_DYLIB_PATH", &self.onnxruntime)
                .env("SEXTANT_BIN", binary)
                .stdin(Stdio::null())
                .stderr(Stdio::inherit());
            let shown = shell::show(&campaign);
            let output = campaign.output();
            let output = output.with_context(|| format!("cannot start `{shown}`"))?;
            let said: Value = serde_json::from_slice(&output.stdout).with_context(|| {
                format!("`{shown}` ended with {} and said nothing", output.status)
            })?;
            let violations = said["runs"][0]["violations"].as_array().cloned();
            let rules = violations.unwrap_or_default();
            let rule = |it: &Value| Some(it.as_str()?.split_once(": ")?.0.to_owned());
            let rules: BTreeSet<String> = rules.iter().filter_map(rule).collect();
            if !rules.is_empty() {
                return Ok(Some(RunVerdict { seed, rules }));
            }
        }
        Ok(None)
    }
}
