//! One replay of the scheduler's benchmark, for tools that observe a process: callgrind counts the instructions inside
//! `measured_replay`.
//!
//! `scheduler_replay POLICY QUEUES DEVICES REQUESTS SHAPE ASKED`. With `ASKED` each queue belongs to a tenant of its
//! own, and this many of them get requests. If these are not all, the changes are taken after every call.
#![expect(clippy::print_stdout, reason = "prints what it replayed")]

#[path = "../benches/scheduler/load.rs"]
mod load;

use load::{SEED, SIZES, Shape, Size, Trace};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|word| word.parse().ok());
    let policy = arguments.first().map_or("sextant", String::as_str);
    let policy = policy.parse().expect("the name of a policy");
    let shape = arguments.get(4).map_or(Shape::Fleet, |name| {
        Shape::named(name).expect("the name of a shape")
    });
    let of = (
        number(1).unwrap_or(SIZES[0].0),
        number(2).unwrap_or(SIZES[0].1),
    );
    let mut size = Size::new(of, shape);
    if let Some(asked) = number(5) {
        size.asked = asked;
        size.has_tenants = true;
        size.is_told = asked < size.queues;
    }
    let requests = number(3).map_or(20_000, u64::from);
    let trace = Trace::record(policy, size, requests);
    let mut prepared = trace.prepare();
    trace.measured_replay(&mut prepared);
    println!(
        "{policy} {size:?}: {} requests, {:.0} per second, {:.1} rows per batch, {:.4} dropped, \
         seed {SEED}",
        trace.requests, trace.rate, trace.mean_rows, trace.dropped_share
    );
}
