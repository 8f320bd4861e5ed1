//! `sextant bench`: sends load to a running service, and reports how well it answers.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use clap::Args;
use sextant_bench_client::{self as load, Message, Pace, Plan, Stream, Summary, Tally};

use super::{Client, Error, Output, targets::Targets};

mod application;
mod ask;
mod inputs;
mod pace;
mod show;

use ask::Asker;
use inputs::InputOptions;
use pace::{PaceOptions, duration};
use show::Live;

/// Connections that one thread serves before another one helps it.
const CONNECTIONS_A_THREAD: usize = 64;

/// Queries a second that one thread sends before another one helps it.
const RATE_A_THREAD: f64 = 20_000.0;

/// How long a service warms up, unless a trace is replayed.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long a load is counted, unless a trace tells it.
const COUNTED: Duration = Duration::from_secs(10);

/// Send load to a running service, and report how fast and how well it answers.
///
/// The latency of a query counts from the time at which the query was due. So if the service stalls, every query that
/// was due meanwhile counts as late. Without a rate or a trace the load is a closed loop: each connection sends its
/// next query as soon as it has an answer.
#[derive(Debug, Args)]
pub struct Bench {
    /// An application to ask; may be repeated. Options of this application follow a colon:
    /// `digits:rate=50,latency_ms=20` (rate, concurrency, input, preset, and the targets).
    #[arg(
        long,
        short,
        value_name = "NAME[:OPTION=VALUE,..]",
        required_unless_present_any = ["body", "trace"]
    )]
    application: Vec<application::BenchTarget>,
    #[command(flatten)]
    pace: PaceOptions,
    /// Time for which queries count, such as `30s` or `5m` [default: 10s, or the trace's length].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Time for which queries are sent before they count [default: 1s, or none before a trace].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warm_up: Option<Duration>,
    #[command(flatten)]
    targets: Targets,
    /// If no variant meets the targets, answer with the closest variant instead of refusing.
    #[arg(long)]
    best_effort: bool,
    #[command(flatten)]
    inputs: InputOptions,
    /// Send this file as it is instead of queries of an application; answers are not read.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "application", "trace", "min_accuracy", "max_error", "min_relative_accuracy", "max_cost_per_1k_usd", "prefer",
            "preset", "best_effort", "input", "rows", "dynamic", "shape", "integers", "different", "binary",
        ]
    )]
    body: Option<PathBuf>,
    /// Path to which `--body` is posted.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/v1/queries",
        requires = "body"
    )]
    path: String,
    /// Threads that send queries [default: as many as the load needs, at most one for each core].
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Most connections of open loops; queries that find no free one wait, and the wait counts as latency.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    connections: usize,
    /// Time after which a query without an answer is given up, from when it was due.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    timeout: Duration,
    /// Seed of arrivals and random inputs.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

impl Bench {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let has_own_rate = self.application.iter().any(|it| it.own.rate.is_some());
        self.pace.check(has_own_rate)?;
        let endpoint = client.endpoint()?;
        let plan = self.plan(client).await?;
        let progress = Arc::new(load::Progress::default());
        let (watched, sent) = (Arc::clone(&progress), plan.clone());
        let sending = tokio::task::spawn_blocking(move || load::run(&endpoint, &sent, &watched));
        let length = plan.warm_up.saturating_add(plan.duration);
        let live = Live::new(Arc::clone(&progress), length);
        let ended = live.until(sending).await;
        let (tallies, counted) = ended.map_err(|error| Error::Runtime(error.into()))??;
        show::print(&summaries(&plan, &tallies, counted), output)
    }

    async fn plan(&self, client: &Client) -> Result<Plan, Error> {
        let trace = self.pace.trace()?;
        let streams = match &self.body {
            Some(body) => vec![self.raw(body)?],
            None => Asker::new(self, client, trace.as_ref()).streams().await?,
        };
        let length = trace.as_ref().map(load::Trace::length);
        // A query that is due at the very end counts.
        let whole = length.map(|length| length.saturating_add(Duration::from_millis(1)));
        let default_warm_up = if trace.is_some() {
            Duration::ZERO
        } else {
            WARM_UP
        };
        Ok(Plan {
            threads: self.threads.unwrap_or_else(|| threads(&streams)),
            streams,
            warm_up: self.warm_up.unwrap_or(default_warm_up),
            duration: self.duration.or(whole).unwrap_or(COUNTED),
            most_connections: self.connections,
            timeout: self.timeout,
            seed: self.seed,
        })
    }

    /// The file's bytes, over and over.
    fn raw(&self, body: &PathBuf) -> Result<Stream, Error> {
        let bytes = std::fs::read(body).map_err(|source| Error::Io {
            path: body.clone(),
            source,
        })?;
        Ok(Stream {
            name: self.path.clone(),
            path: self.path.clone(),
            messages: vec![Message::json(bytes)],
            pace: self.pace.of(&Default::default(), None)?,
            reads_answers: false,
            latency_ms: self.targets.latency_ms(),
        })
    }
}

/// As many threads as the load needs, where there are so many cores.
fn threads(streams: &[Stream]) -> usize {
    let needs = |stream: &Stream| match &stream.pace {
        Pace::Closed { concurrency } => *concurrency as f64 / CONNECTIONS_A_THREAD as f64,
        Pace::Open(load::Arrivals::Drawn { rate, .. }) => rate / RATE_A_THREAD,
        Pace::Open(load::Arrivals::Recorded(_)) => 0.0,
    };
    let needed = streams.iter().map(needs).sum::<f64>().ceil() as usize;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    needed.clamp(1, cores)
}

/// One for each stream, and one for all of them.
fn summaries(plan: &Plan, tallies: &[Tally], counted: Duration) -> Vec<Summary> {
    let mut all = Tally::default();
    let mut summaries = Vec::new();
    for (stream, tally) in plan.streams.iter().zip(tallies) {
        all.add(tally);
        let target = stream.latency_ms;
        summaries.push(Summary::of(&stream.name, tally, counted, target));
    }
    summaries.push(Summary::all(&all, counted));
    summaries
}
