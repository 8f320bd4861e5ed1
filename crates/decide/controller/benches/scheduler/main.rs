//! The cost of a request in the whole controller: every call for it, and nothing else.
//!
//! `cargo bench -p sextant-controller --bench scheduler`, with `SCHEDULER_POLICY` for another policy
//! than `sextant`, `SCHEDULER_SHAPE` for another shape than `fleet` (`pool`: the scheduler alone,
//! `spread`) and `SCHEDULER_REQUESTS` for another length. One iteration replays a whole run;
//! the throughput that criterion reports is in requests.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use sextant_baselines::Policy;

mod load;

use load::{SIZES, Shape, Size, Trace};

fn main() {
    // Without `--bench` this only has to work, so a test run takes the smallest size.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let sizes = if measured { &SIZES[..] } else { &SIZES[..1] };
    let policy: Policy = std::env::var("SCHEDULER_POLICY")
        .map(|name| name.parse().expect("the name of a policy"))
        .unwrap_or_default();
    let shape = std::env::var("SCHEDULER_SHAPE").map_or(Shape::Fleet, |name| {
        Shape::named(&name).expect("`fleet`, `spread` or `pool`")
    });
    let requests = std::env::var("SCHEDULER_REQUESTS")
        .map(|count| count.parse().expect("a number of requests"))
        .unwrap_or(if measured { 400_000 } else { 2_000 });
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("scheduler");
    for (queues, devices) in sizes.iter().copied() {
        let size = Size::new((queues, devices), shape);
        let trace = Trace::record(policy, size, requests);
        let name = format!("{policy}-{}-{queues}x{devices}", shape.name());
        eprintln!(
            "{name}: {:.0} requests per second, {:.1} rows per batch, {:.4} dropped",
            trace.rate, trace.mean_rows, trace.dropped_share
        );
        group.throughput(Throughput::Elements(trace.requests));
        group.bench_function(&name, |bencher| {
            bencher.iter_batched(
                || trace.prepare(),
                |mut prepared| {
                    trace.measured_replay(black_box(&mut prepared));
                    prepared
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}
