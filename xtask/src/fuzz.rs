//! `cargo xtask fuzz`: libFuzzer generates bytes for every reader of external input. The targets lie in `fuzz/`.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::{Child, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{self, Pid, Signal};

use crate::{
    bench::report::{Figure, Report},
    paths,
    provision::tools,
    shell::{self, say},
};

/// The target triple of the fuzzers. An explicit triple keeps their flags from build scripts.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Largest input, bytes.
const MOST_BYTES: u32 = 16 << 10;

/// Most memory of a target, MB. An input that takes more is a finding.
const MOST_MEMORY_MB: u32 = 2048;

/// Most time for one input, seconds. An input that takes longer is a finding.
const MOST_SECONDS: u32 = 10;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which targets [default: all]
    targets: Vec<String>,
    /// How long each is fuzzed, seconds of processor time: other work beside it makes it last longer
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many at the same time [default: one for each core]
    #[arg(long)]
    jobs: Option<usize>,
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Add inputs that reach new code to `fuzz/corpus`
    #[arg(long)]
    keep: bool,
    /// Print one JSON object for each figure
    #[arg(long)]
    json: bool,
}

/// One target, with the folders of its files.
struct Target {
    name: String,
    program: PathBuf,
    /// The committed inputs.
    seeds: PathBuf,
    /// Inputs that reached new code on this machine.
    corpus: PathBuf,
    /// Inputs that violated a property.
    findings: PathBuf,
    log: PathBuf,
}

/// A target in a running fuzzer.
struct RunningTarget {
    target: Target,
    child: Child,
    started: Instant,
    /// Its processor time when it was last read.
    worked: Duration,
}

/// Builds the targets, fuzzes each for its time and reports findings.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let cargo_fuzz = tools::cargo_fuzz(&paths::cache()?)?;
    let names = names(&arguments.targets)?;
    shell::run(
        shell::command(cargo_fuzz)
            .args(["build", "--fuzz-dir"])
            .arg(paths::root().join("fuzz"))
            // Coverage needs no sanitizer, and so no compiler except the pinned one. There is no unsafe code to check.
            .args(["--sanitizer", "none", "--features", "libfuzzer"])
            .args(["--target", TRIPLE]),
    )?;
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.max(1),
        None => std::thread::available_parallelism()?.get(),
    };
    let mut waiting = names
        .iter()
        .map(|name| Target::new(name))
        .collect::<Result<VecDeque<_>>>()?;
    let mut running = Vec::new();
    let mut report = Report::new(arguments.json);
    let mut findings = 0;
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < jobs {
            let Some(target) = waiting.pop_front() else {
                break;
            };
            running.push(target.start(arguments)?);
        }
        for one in &mut running {
            one.end_after(Duration::from_secs(arguments.seconds))?;
        }
        let (ended, rest): (Vec<_>, Vec<_>) = partition_ended(running)?;
        running = rest;
        for ended in ended {
            findings += ended.report(&mut report)?;
            if arguments.keep {
                ended.target.merge()?;
            }
        }
        shell::pause(Duration::from_millis(200));
    }
    report.add(Figure::new(
        "fuzz",
        "fuzz_findings",
        findings as f64,
        "inputs",
        Some("0"),
    ));
    report.finish()?;
    Ok(match findings {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Targets by the files of `fuzz/fuzz_targets`; all of them if none is named.
fn names(asked: &[String]) -> Result<Vec<String>> {
    let folder = paths::root().join("fuzz/fuzz_targets");
    let mut known = Vec::new();
    for file in fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        let path = file?.path();
        known.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
    }
    known.sort();
    for name in asked {
        if !known.contains(name) {
            bail!("there is no target `{name}`: {}", known.join(", "));
        }
    }
    Ok(match asked {
        [] => known,
        asked => asked.to_vec(),
    })
}

fn partition_ended(
    running: Vec<RunningTarget>,
) -> Result<(Vec<RunningTarget>, Vec<RunningTarget>)> {
    let mut parts = (Vec::new(), Vec::new());
    for mut one in running {
        match one.child.try_wait()? {
            Some(_) => parts.0.push(one),
            None => parts.1.push(one),
        }
    }
    Ok(parts)
}

// === impl Target ===

impl Target {
    fn new(name: &str) -> Result<Self> {
        let work = paths::target("fuzz").join(name);
        let target = Self {
            name: name.to_owned(),
            program: paths::target(TRIPLE).join("release").join(name),
            seeds: paths::root().join("fuzz/corpus").join(name),
            corpus: work.join("corpus"),
            findings: work.join("findings"),
            log: work.join("log"),
        };
        for folder in [&target.seeds, &target.corpus, &target.findings] {
            fs::create_dir_all(folder)?;
        }
        Ok(target)
    }

    fn start(self, arguments: &Arguments) -> Result<RunningTarget> {
        let mut command = shell::command(&self.program);
        command
            .args([&self.corpus, &self.seeds])
            .arg(format!("-seed={}", arguments.seed))
            .arg(format!("-max_len={MOST_BYTES}"))
            .arg(format!("-rss_limit_mb={MOST_MEMORY_MB}"))
            .arg(format!("-timeout={MOST_SECONDS}"))
            .arg(format!("-artifact_prefix={}/", self.findings.display()))
            .arg("-print_final_stats=1")
            .env("RUST_BACKTRACE", "1");
        eprintln!("$ {}", shell::show(&command));
        let log = fs::File::create(&self.log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(RunningTarget {
            target: self,
            child,
            started: Instant::now(),
            worked: Duration::ZERO,
        })
    }

    /// Copies inputs that reach code which no committed input reaches.
    fn merge(&self) -> Result<()> {
        shell::run(
            shell::command(&self.program)
                .arg("-merge=1")
                .arg("-max_len=2048")
                .args([&self.seeds, &self.corpus]),
        )
    }

    fn files(folder: &Path) -> Result<usize> {
        Ok(fs::read_dir(folder)?.count())
    }
}

// === impl RunningTarget ===

impl RunningTarget {
    /// Asks the fuzzer to end once it has used `time` of a processor.
    ///
    /// # Errors
    ///
    /// The kernel refuses the signal.
    fn end_after(&mut self, time: Duration) -> Result<()> {
        let Some(worked) = worked(self.child.id()) else {
            return Ok(()); // It has ended by itself.
        };
        self.worked = worked;
        if worked >= time
            && let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            process::kill_process(id, Signal::INT)?;
        }
        Ok(())
    }

    /// Reports the results of a target and returns its number of findings.
    fn report(&self, report: &mut Report) -> Result<usize> {
        let target = &self.target;
        let log = fs::read(&target.log)?;
        let log = String::from_utf8_lossy(&log);
        let findings = Target::files(&target.findings)?;
        let seconds = self.worked.as_secs();
        let passed = self.started.elapsed().as_secs();
        let inputs = stat(&log, "stat::number_of_executed_units:");
        say(format!(
            "{}: {} inputs in {seconds} s of processor time ({passed} s passed), {findings} findings",
            target.name,
            inputs.map_or("no count of".to_owned(), |inputs| inputs.to_string()),
        ));
        if findings > 0 {
            say(format!(
                "see {}; a file of {} that is put into {} is tried by every test run",
                target.log.display(),
                target.findings.display(),
                target.seeds.display(),
            ));
        }
        let figure =
            |metric, value, unit| Figure::new("fuzz", metric, value, unit, None).of(&target.name);
        if let Some(inputs) = inputs {
            report.add(figure("inputs", inputs as f64, "inputs"));
        }
        report.add(figure("seconds", seconds as f64, "s"));
        report.add(figure("findings", findings as f64, "inputs"));
        if findings == 0 && inputs.is_none() {
            let end: Vec<&str> = log.lines().rev().take(5).collect();
            bail!(
                "`{}` did not run to its end: {}",
                target.name,
                end.join(" / ")
            );
        }
        Ok(findings)
    }
}

/// Processor time of the first thread of a process, which does all the work of a fuzzer.
fn worked(process: u32) -> Option<Duration> {
    let counted = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    let nanoseconds = counted.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// A number that the fuzzer prints when it ends.
fn stat(log: &str, name: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}
