//! What one shard thread and the rank thread carry.
//!
//! `cargo run --release -p sextant-sharded --example throughput [-- --json]`
//!
//! `alone` runs a shard and the ranker in turn on one thread and times each by itself: the cost of
//! their work without that of sharing. `threads` runs both at once, each on a thread. On a machine
//! of two cores that is all that can be measured: with more shards than cores the threads take
//! turns, and a figure for many shards would be the scheduler of the operating system. What many
//! shards would carry follows from `alone` as a bound only: requests grow with the shards until the
//! rank thread's operations are used up. The figures of `threads` mean something on an idle machine:
//! a thread that loses its core counts as slow.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    hint::black_box,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_policies::schedule::{
    Delay, LatencyTable, Nanos, Options, Policy, QueueSpec, Request, Symphony,
};
use sextant_sharded::{
    Clock, Message, Outcome, Parts, RankThread, ShardThread, ShardedSettings, SystemClock, Ticket,
    assemble,
};

const SECONDS: f64 = 2.0;
/// Share of the devices' capacity that is offered.
const LOAD: f64 = 0.9;
const MAX_ROWS: u32 = 32;
/// ms; ResNet50 on an A100 in Symphony's table 6, and a target of 20 ms.
const ALPHA: f64 = 0.268;
const BETA: f64 = 5.172;
const TARGET: Nanos = 20_000_000;

/// ns.
const LAG: Nanos = 1_000_000;

/// A batch that is running: when it ends, and which.
type Running = BinaryHeap<Reverse<(Nanos, u32, Ticket)>>;

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    requests: u64,
    dropped: u64,
    batches: u64,
    rank_operations: u64,
    shard_seconds: f64,
    rank_seconds: f64,
}

fn settings(models: u32, slots: u32) -> ShardedSettings {
    let spec = QueueSpec {
        max_rows: MAX_ROWS,
        batched: true,
        slots: 1,
        latency: LatencyTable::linear(ALPHA, BETA, MAX_ROWS).expect("a valid line"),
        max_waiting_rows: u32::MAX,
        tenant: 0,
        priority: 0,
        weight: 1.0,
        price: 1.0,
    };
    ShardedSettings {
        delay: Delay::default(),
        slots,
        models: vec![vec![spec; models as usize]],
    }
}

fn rule() -> Symphony {
    Symphony::new(&Options::of(Policy::Symphony))
}

/// Requests per ns that the devices carry in batches of half the maximum, times the load.
fn rate(slots: u32) -> f64 {
    let rows = f64::from(MAX_ROWS / 2);
    LOAD * f64::from(slots) * rows / ((ALPHA * rows + BETA) * 1e6)
}

/// Counts what became of requests, and keeps what runs by its end.
fn take(outcome: Outcome<u64>, counts: &mut Counts, running: &mut Running) {
    match outcome {
        Outcome::Drop { request, .. } => {
            counts.dropped += 1;
            black_box(request.payload);
        }
        Outcome::Run(batch) => {
            counts.batches += 1;
            black_box(&batch.requests);
            let end = batch.earliest + batch.expected;
            running.push(Reverse((end, batch.model, batch.ticket)));
        }
    }
}

/// Hands in a burst of arrivals and the batches that have ended.
fn feed(
    shard: &mut ShardThread<u64, Symphony>,
    (now, models): (Nanos, u32),
    due: u64,
    counts: &mut Counts,
    running: &mut Running,
) {
    while let Some(Reverse((end, model, ticket))) = running.peek().copied()
        && end <= now
    {
        running.pop();
        shard.on_message(now, Message::Done { model, ticket });
    }
    for _ in 0..due {
        // A Weyl sequence spreads the models evenly and in no order.
        let model = counts.requests.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let model = (model % u64::from(models)) as u32;
        let request = Request {
            payload: counts.requests,
            rows: 1,
            deadline: now + TARGET,
        };
        counts.requests += 1;
        shard.on_message(now, Message::Request { model, request });
    }
}

/// On virtual time, in turns, each side timed by itself.
fn alone(models: u32, slots: u32) -> Counts {
    const STEP: Nanos = 20_000;
    let Parts {
        mut shards,
        mut rank,
        ..
    } = assemble::<u64, _>(&rule(), &settings(models, slots));
    let shard = &mut shards[0];
    let (mut counts, mut running) = (Counts::default(), Running::new());
    let (mut now, rate) = (0, rate(slots));
    while counts.shard_seconds + counts.rank_seconds < SECONDS {
        now += STEP;
        let due = (now as f64 * rate) as u64 - counts.requests;
        let before = Instant::now();
        feed(shard, (now, models), due, &mut counts, &mut running);
        shard.step(now, &mut |outcome| take(outcome, &mut counts, &mut running));
        let between = Instant::now();
        rank.step(now);
        counts.shard_seconds += between.duration_since(before).as_secs_f64();
        counts.rank_seconds += between.elapsed().as_secs_f64();
    }
    counts.rank_operations = rank.operations();
    counts
}

/// On real threads: the shard takes requests as fast as it can, on a clock that runs as fast as
/// the requests that it has taken would come at the load. It waits for the ranker where that is
/// more than [`LAG`] behind on this clock: otherwise a core that others use as well would show as
/// late requests.
fn threads(models: u32, slots: u32) -> Counts {
    let Parts {
        mut shards, rank, ..
    } = assemble::<u64, _>(&rule(), &settings(models, slots));
    let clock = Arc::new(Paced::default());
    let stopped = Arc::new(AtomicBool::new(false));
    let ranking = {
        let (clock, stopped) = (Arc::clone(&clock), Arc::clone(&stopped));
        std::thread::spawn(move || keep_ranking(rank, &clock, &stopped))
    };
    let shard = &mut shards[0];
    let (mut counts, mut running) = (Counts::default(), Running::new());
    let rate = rate(slots);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs_f64(SECONDS) {
        let now = (counts.requests as f64 / rate) as Nanos;
        clock.now.store(now, Ordering::Release);
        while now.saturating_sub(clock.ranked.load(Ordering::Acquire)) > LAG {
            std::thread::yield_now();
        }
        feed(shard, (now, models), 16, &mut counts, &mut running);
        shard.step(now, &mut |outcome| take(outcome, &mut counts, &mut running));
    }
    counts.shard_seconds = began.elapsed().as_secs_f64();
    stopped.store(true, Ordering::Release);
    let (operations, seconds) = ranking.join().expect("the rank thread does not panic");
    (counts.rank_operations, counts.rank_seconds) = (operations, seconds);
    counts
}

#[derive(Debug, Default)]
struct Paced {
    now: AtomicU64,
    /// Until when the ranker has done its work.
    ranked: AtomicU64,
}

impl Clock for Paced {
    fn now(&self) -> Nanos {
        self.now.load(Ordering::Acquire)
    }
}

/// Operations, and seconds of the steps that had something to do.
fn keep_ranking(mut rank: RankThread, clock: &Paced, stopped: &AtomicBool) -> (u64, f64) {
    let system = SystemClock::default();
    let mut busy = 0;
    let mut before = system.now();
    while !stopped.load(Ordering::Acquire) {
        let now = clock.now();
        let worked = rank.step(now);
        clock.ranked.store(now, Ordering::Release);
        let after = system.now();
        if worked {
            busy += after - before;
        }
        before = after;
        if !worked {
            std::thread::yield_now();
        }
    }
    (rank.operations(), busy as f64 / 1e9)
}

fn print(json: bool, run: &str, (models, slots): (u32, u32), counts: Counts) {
    let per_second = counts.requests as f64 / counts.shard_seconds;
    let ranked = counts.rank_operations as f64 / counts.rank_seconds;
    let operations = counts.rank_operations as f64 / counts.requests as f64;
    let rows = (counts.requests - counts.dropped) as f64 / counts.batches.max(1) as f64;
    let dropped = counts.dropped as f64 / counts.requests as f64;
    let mut out = std::io::stdout().lock();
    let line = if json {
        format!(
            r#"{{"run":"{run}","models":{models},"slots":{slots},"shard_requests_per_s":{per_second:.0},"rank_operations_per_s":{ranked:.0},"rank_operations_per_request":{operations:.3},"rows_per_batch":{rows:.1},"dropped_share":{dropped:.4}}}"#
        )
    } else {
        format!(
            "{run:<8} {models:>6} models {slots:>6} slots  {per_second:>10.0} requests/s of the shard  {ranked:>10.0} rank operations/s  {operations:.2} of them per request  {rows:.1} rows per batch  {:.2} % dropped",
            dropped * 100.0
        )
    };
    // A reader that has gone needs no more lines.
    let _ = writeln!(out, "{line}");
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    for shape in [(20, 32), (1_000, 1_000), (10_000, 10_000)] {
        print(json, "alone", shape, alone(shape.0, shape.1));
        print(json, "threads", shape, threads(shape.0, shape.1));
    }
}
