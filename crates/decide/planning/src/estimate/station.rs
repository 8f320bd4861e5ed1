//! One queue and its replicas.

use std::{cmp::Reverse, collections::BinaryHeap};

use sextant_schedule::NEVER;

use super::{Class, Replica, Station, StepResult};
use crate::Nanos;

/// A row that waits: since when, and its query.
pub(crate) type Item = (Nanos, u32);

/// A replica, if not all are alike or some come and go.
#[derive(Debug, Clone, Copy)]
struct Server {
    free_at: Nanos,
    until: Nanos,
    class: usize,
    /// Run time of one row. The quickest idle replica takes the batch.
    quick: Nanos,
}

/// Serves `items`, which are in order of time, and reports each end to `ended`. Stops early when `ended` says so.
pub(super) fn serve(
    station: &Station,
    items: &[Item],
    served: &mut StepResult,
    ended: impl FnMut(u32, Nanos) -> bool,
) {
    let stays =
        |replica: &Replica| replica.from == 0 && replica.until == NEVER && replica.class == 0;
    match station.classes.first() {
        Some(class) if !station.replicas.is_empty() && station.replicas.iter().all(stays) => {
            alike(class, station.replicas.len(), items, served, ended);
        }
        _ => mixed(station, items, served, ended),
    }
}

/// The position after the last row of the batch that begins with the row at `at`, on a replica that became free at
/// `free`. A replica that was idle takes the first row alone as soon as it arrives: rows that arrive at once are
/// submitted one after the other. Otherwise it takes what waits, at most `most` rows.
#[inline]
fn waiting(items: &[Item], at: usize, free: Nanos, most: u32) -> usize {
    if free <= items[at].0 {
        return at + 1;
    }
    let end = items.len().min(at + most.max(1) as usize);
    let mut next = at + 1;
    while next < end && items[next].0 < free {
        next += 1;
    }
    next
}

#[inline]
fn finish(
    batch: &[Item],
    end: Nanos,
    served: &mut StepResult,
    ended: &mut impl FnMut(u32, Nanos) -> bool,
) -> bool {
    let mut go_on = true;
    for (_, query) in batch {
        let last = &mut served.ends[*query as usize];
        *last = end.max(*last);
        go_on &= ended(*query, end);
    }
    served.largest = served.largest.max(batch.len() as u32);
    go_on
}

fn alike(
    class: &Class,
    replicas: usize,
    items: &[Item],
    served: &mut StepResult,
    mut ended: impl FnMut(u32, Nanos) -> bool,
) {
    let mut free: BinaryHeap<Reverse<Nanos>> = (0..replicas).map(|_| Reverse(0)).collect();
    let mut at = 0;
    while let (Some((ready, _)), Some(mut soonest)) = (items.get(at), free.peek_mut()) {
        let start = soonest.0.max(*ready);
        let next = waiting(items, at, soonest.0, class.batch);
        let took = class.latency.of((next - at) as u32);
        served.busy += took;
        soonest.0 = start + took;
        if !finish(&items[at..next], start + took, served, &mut ended) {
            return;
        }
        at = next;
    }
}

fn mixed(
    station: &Station,
    items: &[Item],
    served: &mut StepResult,
    mut ended: impl FnMut(u32, Nanos) -> bool,
) {
    let server = |replica: &Replica| Server {
        free_at: replica.from,
        until: replica.until,
        class: replica.class,
        quick: station.classes[replica.class].latency.of(1),
    };
    let mut servers: Vec<Server> = station.replicas.iter().map(server).collect();
    let mut at = 0;
    while let Some((ready, _)) = items.get(at) {
        servers.retain(|server| server.free_at.max(*ready) < server.until);
        let soonest = servers
            .iter_mut()
            .min_by_key(|server| (server.free_at.max(*ready), server.quick));
        let Some(server) = soonest else {
            finish(&items[at..], NEVER, served, &mut ended);
            return;
        };
        let class = &station.classes[server.class];
        let start = server.free_at.max(*ready);
        let next = waiting(items, at, server.free_at, class.batch);
        let took = class.latency.of((next - at) as u32);
        served.busy += took;
        server.free_at = start + took;
        if !finish(&items[at..next], start + took, served, &mut ended) {
            return;
        }
        at = next;
    }
}
