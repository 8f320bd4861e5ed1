//! The cost of versions and feedback for a query, in instructions that callgrind counts in a running service.
//!
//! Two applications have the same model. *beside*: a query of one application while no application tries a version or
//! takes feedback, and while the other one does both. *with*: a query of the other application, likewise. *feedback*:
//! queries at 30 % of the capacity, alone and beside the same number of feedback posts; the instructions of the posts
//! are counted alone and subtracted. The work of the idle service is subtracted in proportion to the time. Each
//! comparison is made in turns, and the median is reported.

use std::{
    cell::Cell,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{MODELS, PATIENCE, change, figure, query, switch, token};
use crate::{
    bench::{
        bed::Bench,
        median,
        report::{Figure, Report},
        scheduler::collected,
    },
    http::Connection,
    provision::tools,
    server::Server,
    shell,
};

/// The model. It takes the time that its file says on an emulated engine and computes nothing.
const MODEL: &str = "emulated";

/// The application that gets the queries, and the one that tries versions and takes feedback.
const PLAIN: &str = "plain";
const TRYING: &str = "trying";

/// Without the emulated engine, the computation would be most of what is counted.
const SETTINGS: [&str; 3] = [
    "variants.engines=emulated",
    "variants.max_threads=1",
    "variants.max_batch=8",
];

/// Without these variables the service would start itself again, outside of valgrind (`server/src/environment.rs`).
const COMPLETE: [(&str, &str); 2] = [
    ("MIMALLOC_PURGE_DELAY", "1000"),
    ("ORT_DISABLE_TELEMETRY", "1"),
];

/// Queries of one count.
const QUERIES: usize = 800;

/// Number of comparisons.
const PAIRS: usize = 3;

/// Rate of the queries beside feedback, as a share of the capacity.
const SHARE: f64 = 0.3;

/// A service whose instructions are counted.
struct CountedService {
    server: Server,
    /// The file to which counts are written, followed by a number.
    file: PathBuf,
    dumps: Cell<usize>,
    /// Instructions of a second without queries.
    idle_per_s: Cell<f64>,
}

/// Counts and compares the instructions.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    if let Err(error) = tools::valgrind() {
        shell::say(format!("instructions of queries: skipped, {error:#}"));
        return Ok(());
    }
    let counted = CountedService::start(bench)?;
    for application in [PLAIN, TRYING] {
        bench.register_for(&counted.server, application, MODEL)?;
    }
    switch::register_second(bench, &counted.server, (TRYING, MODEL))?;
    counted.look_at_idle()?;
    let queries = match bench.arguments.quick {
        true => QUERIES / super::QUICKER,
        false => QUERIES,
    };
    beside(&counted, queries, report)?;
    feedback(&counted, queries, report)
}

/// Queries while no application tries versions or takes feedback, and while one does.
fn beside(counted: &CountedService, queries: usize, report: &mut Report) -> Result<()> {
    let mut rounds = Vec::new();
    // Caches are filled before anything is compared.
    counted.use_features(true)?;
    counted.each(PLAIN, queries / 4)?;
    counted.each(TRYING, queries / 4)?;
    for _ in 0..PAIRS {
        counted.use_features(false)?;
        let without = [PLAIN, TRYING].map(|of| counted.each(of, queries));
        counted.use_features(true)?;
        let with = [PLAIN, TRYING].map(|of| counted.each(of, queries));
        rounds.push((pair(without)?, pair(with)?));
    }
    let without = median(rounds.iter().map(|(off, _)| off[0]).collect());
    report.add(figure("query_instructions", without, "count"));
    for (at, name, goal) in [
        (0, "query_beside_features_percent", Some("<= 1")),
        (1, "query_with_features_percent", None),
    ] {
        let percent = rounds
            .iter()
            .map(|(off, on)| (on[at] / off[at] - 1.0) * 100.0);
        report.add(Figure {
            goal,
            ..figure(name, median(percent.collect()), "percent")
        });
    }
    Ok(())
}

fn pair([one, other]: [Result<f64>; 2]) -> Result<[f64; 2]> {
    Ok([one?, other?])
}

/// Queries at a share of the capacity, alone and beside a stream of feedback.
fn feedback(counted: &CountedService, queries: usize, report: &mut Report) -> Result<()> {
    let (server, asked) = (&counted.server, asked(PLAIN));
    let capacity = switch::capacity_per_s(server.address, &asked, Duration::from_secs(3))?;
    let rate = capacity * SHARE;
    let length = Duration::from_secs_f64(queries as f64 / rate);
    let ask = || -> Result<u64> {
        let outcomes = switch::load(server.address, &asked, (rate, length))?;
        ensure!(outcomes.failed == 0, "{} queries failed", outcomes.failed);
        Ok(outcomes.sent)
    };
    let mut connection = Connection::open(server.address, PATIENCE)?;
    let mut tokens = || -> Result<Vec<String>> {
        let tokens = (0..queries).map(|_| token(&mut connection, &self::asked(TRYING)));
        tokens.collect()
    };
    let mut percent = Vec::new();
    for _ in 0..PAIRS {
        let (first, second) = (tokens()?, tokens()?);
        let (alone, sent) = counted.count(ask)?;
        let alone = alone / sent as f64;
        let (together, sent) = counted.count(|| {
            thread::scope(|scope| {
                let said = scope.spawn(|| say(server, &first, rate));
                let sent = ask();
                said.join().ok().context("the feedback panicked")??;
                sent
            })
        })?;
        let (posts, ()) = counted.count(|| say(server, &second, rate))?;
        percent.push(((together - posts) / sent as f64 / alone - 1.0) * 100.0);
    }
    report.add(figure("query_beside_feedback_rate_per_s", rate, "1/s"));
    report.add(Figure {
        goal: Some("<= 2"),
        ..figure("query_beside_feedback_percent", median(percent), "percent")
    });
    Ok(())
}

/// Posts feedback with these tokens, each at its time.
fn say(server: &Server, tokens: &[String], rate: f64) -> Result<()> {
    let mut connection = Connection::open(server.address, PATIENCE)?;
    let step = Duration::from_secs_f64(1.0 / rate);
    let mut due = Instant::now();
    for token in tokens {
        shell::pause(due.saturating_duration_since(Instant::now()));
        let taken = connection.post("/v1/feedback", &json!({"token": token, "label": 1}))?;
        let taken = taken.json()?;
        ensure!(taken["accepted"] == 1, "feedback was refused: {taken}");
        due += step;
    }
    Ok(())
}

/// A query of one row.
fn asked(application: &str) -> Value {
    let (_, input, elements) = MODELS[0];
    query(application, (input, elements), 1, 0)
}

// === impl CountedService ===

impl CountedService {
    /// Starts a service under callgrind, which counts nothing until the service has started.
    fn start(bench: &Bench<'_>) -> Result<Self> {
        let file = bench.folder.join("callgrind.out");
        let (service, address) = bench.command("learning-queries", &SETTINGS)?;
        let mut command = shell::command("valgrind");
        command
            .args(["--tool=callgrind", "--quiet", "--instr-atstart=no"])
            // Without it, threads that compute block the threads for which they wait.
            .arg("--fair-sched=yes")
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(service.get_program())
            .args(service.get_args())
            .envs(COMPLETE);
        let counted = Self {
            server: Server::start("sextant", command, address, "/health/ready")?,
            file,
            dumps: Cell::new(0),
            idle_per_s: Cell::new(0.0),
        };
        counted.tell("instrumentation on")?;
        Ok(counted)
    }

    /// Sends callgrind a command.
    fn tell(&self, what: &str) -> Result<()> {
        let mut command = Command::new("vgdb");
        command.arg(format!("--pid={}", self.server.id()));
        command.args(what.split(' '));
        shell::output(&mut command).map(drop)
    }

    /// Calls `act`; returns its instructions, without those that the idle service takes in the same time.
    fn count<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        self.tell("zero")?;
        let begun = Instant::now();
        let done = act()?;
        let took_s = begun.elapsed().as_secs_f64();
        self.tell("dump")?;
        self.dumps.set(self.dumps.get() + 1);
        let file = format!("{}.{}", self.file.display(), self.dumps.get());
        let counted = collected(file.as_ref())?;
        Ok((counted - took_s * self.idle_per_s.get(), done))
    }

    /// Counts the instructions of the idle service.
    fn look_at_idle(&self) -> Result<()> {
        const LENGTH: Duration = Duration::from_secs(5);
        let (instructions, ()) = self.count(|| {
            shell::pause(LENGTH);
            Ok(())
        })?;
        self.idle_per_s.set(instructions / LENGTH.as_secs_f64());
        Ok(())
    }

    /// Instructions of a query; queries are sent one after the other.
    fn each(&self, application: &str, queries: usize) -> Result<f64> {
        let mut connection = Connection::open(self.server.address, PATIENCE)?;
        let asked = asked(application);
        let (instructions, ()) = self.count(|| {
            (0..queries).try_for_each(|_| {
                let answer = connection.post("/v1/queries", &asked)?;
                answer.json().map(drop)
            })
        })?;
        Ok(instructions / queries as f64)
    }

    /// Sets whether the application tries a version and takes feedback.
    fn use_features(&self, used: bool) -> Result<()> {
        let (feedback, stage) = match used {
            true => (json!({}), json!({"stage": "canary", "percent": 1})),
            false => (Value::Null, json!({"stage": "candidate"})),
        };
        change(&self.server, TRYING, &json!({"feedback": feedback}))?;
        let mut connection = Connection::open(self.server.address, PATIENCE)?;
        let path = format!("/v1/models/{TRYING}/versions/2");
        let body = stage.to_string();
        let changed = connection.send("PATCH", &path, "application/json", body.as_bytes())?;
        changed.json().context("the stage cannot be set")?;
        // Front ends and dispatchers follow the change within a moment.
        let deadline = Instant::now() + PATIENCE;
        while self.takes_feedback()? != used {
            ensure!(Instant::now() < deadline, "the change was not followed");
            shell::pause(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether an answer of the application that tries versions has a token.
    fn takes_feedback(&self) -> Result<bool> {
        let mut connection = Connection::open(self.server.address, PATIENCE)?;
        let answer = connection.post("/v1/queries", &asked(TRYING))?.json()?;
        Ok(answer["feedback_token"].is_string())
    }
}
