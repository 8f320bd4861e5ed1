//! Squishy bin packing: assigns queues to devices, with batches that shrink when a device is shared.
//!
//! A queue with rate `r` and uncoordinated batch `b` keeps `floor(r l(b) / b)` devices for itself.
//! The rest of its rate becomes a *node*: the largest batch with `b / r + l(b)` within the target, which runs once per
//! duty cycle `b / r`. Nodes are merged, the fullest first, if both fit into the shorter of their duty cycles with
//! batches cut to what comes in it.

use sextant_schedule::{NEVER, Nanos};

use super::super::replicas::{Demand, Share};

/// The rests of several queues on one device.
#[derive(Debug, Clone)]
struct Node {
    /// Position of the demand, and its rate.
    rests: Vec<(usize, f64)>,
    /// Duty cycle, ns.
    duty: f64,
    /// Device time within a duty cycle, 0 to 1.
    occupancy: f64,
}

/// The need of a queue, at some scale of all rates.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// Batch on a device of its own.
    rows: u32,
    /// Rows per ns on such a device.
    throughput: f64,
    /// Rows per ns that arrive.
    rate: f64,
}

/// The queues of each of `devices` devices; demands are in order of their queues.
pub(super) fn plan(demands: &[Demand<'_>], devices: u32) -> Vec<Vec<Share>> {
    let needs = needs(demands);
    let load: f64 = needs.iter().map(|of| of.rate / of.throughput).sum();
    let mut plan = best(demands, &needs, f64::from(devices) / load, devices);
    spread(&mut plan, demands, &needs, devices as usize);
    plan
}

/// Batches and rates. If nothing is measured, every queue counts as having the same load. A queue without arrivals gets
/// a thousandth of a device, so that it has a place.
fn needs(demands: &[Demand<'_>]) -> Vec<Need> {
    let measured = demands
        .iter()
        .any(|of| of.rate.is_some_and(|rate| rate > 0.0));
    let need = |of: &Demand<'_>| {
        let rows = of.uncoordinated();
        let throughput = f64::from(rows) / of.run(rows);
        let rate = match of.rate {
            Some(rate) if measured => rate.max(throughput * 1e-3),
            None if measured => throughput * 1e-3,
            _ => throughput,
        };
        Need {
            rows,
            throughput,
            rate,
        }
    };
    demands.iter().map(need).collect()
}

/// The packing at the largest scale that fits, by bisection below `most`.
fn best(demands: &[Demand<'_>], needs: &[Need], most: f64, devices: u32) -> Vec<Vec<Share>> {
    const STEPS: u32 = 14;
    let fits = |scale: f64| {
        let plan = pack(demands, needs, scale, devices as usize);
        (plan.len() <= devices as usize).then_some(plan)
    };
    if let Some(plan) = fits(most) {
        return plan;
    }
    let (mut low, mut high) = (0.0, most);
    let mut found = None;
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        match fits(middle) {
            Some(plan) => (low, found) = (middle, Some(plan)),
            None => high = middle,
        }
    }
    found.unwrap_or_else(|| pack(demands, needs, high, usize::MAX))
}

/// One packing, with its devices in order. It may end early beyond `limit` devices.
fn pack(demands: &[Demand<'_>], needs: &[Need], scale: f64, limit: usize) -> Vec<Vec<Share>> {
    let mut plan = Vec::new();
    let mut rests = Vec::new();
    for (at, need) in needs.iter().enumerate() {
        let rate = need.rate * scale;
        // A rounding error must not cost a device.
        let whole = (rate / need.throughput + 1e-9).floor();
        for _ in 0..whole as usize {
            plan.push(vec![Share {
                queue: demands[at].queue,
                rows: need.rows,
                weight: need.throughput,
            }]);
            if plan.len() > limit {
                return plan;
            }
        }
        let rest = rate - whole * need.throughput;
        if rest > need.throughput * 1e-6 || whole == 0.0 {
            rests.push(Node::of(&demands[at], need, at, rest));
        }
    }
    rests.sort_by(|a, b| b.occupancy.total_cmp(&a.occupancy));
    let room = limit.saturating_sub(plan.len());
    plan.extend(
        merge(demands, rests, room)
            .iter()
            .map(|node| node.shares(demands)),
    );
    plan
}

/// Best fit: every rest, the fullest first, goes to the node that it fills most.
fn merge(demands: &[Demand<'_>], rests: Vec<Node>, room: usize) -> Vec<Node> {
    let least = rests.last().map_or(0.0, |rest| rest.occupancy);
    let mut nodes: Vec<Node> = Vec::new();
    // Nodes into which at least the smallest rest may still fit.
    let mut open: Vec<usize> = Vec::new();
    for rest in rests {
        let merged = open.iter().filter_map(|at| {
            // A shorter cycle costs more device time, never less.
            let possible = nodes[*at].occupancy + rest.occupancy <= 1.0;
            let node = possible.then(|| nodes[*at].with(&rest, demands))??;
            Some((*at, node))
        });
        let fullest = merged.max_by(|a, b| a.1.occupancy.total_cmp(&b.1.occupancy));
        let at = match fullest {
            Some((at, node)) => {
                nodes[at] = node;
                at
            }
            None => {
                nodes.push(rest);
                open.push(nodes.len() - 1);
                nodes.len() - 1
            }
        };
        if nodes[at].occupancy + least > 1.0 {
            open.retain(|other| *other != at);
        }
        if nodes.len() > room {
            break;
        }
    }
    nodes
}

/// Makes a plan for exactly `devices` devices. A plan that is too long is folded, so that devices are shared beyond
/// their capacity. Left-over devices go to the queues with the most load on each of theirs.
fn spread(plan: &mut Vec<Vec<Share>>, demands: &[Demand<'_>], needs: &[Need], devices: usize) {
    while plan.len() > devices {
        let shares = plan.pop().unwrap_or_default();
        let at = plan.len() % devices;
        for share in shares {
            match plan[at].iter_mut().find(|known| known.queue == share.queue) {
                Some(known) => known.weight += share.weight,
                None => plan[at].push(share),
            }
        }
    }
    let mut given = vec![0.0; needs.len()];
    for share in plan.iter().flatten() {
        if let Ok(at) = demands.binary_search_by_key(&share.queue, |of| of.queue) {
            given[at] += share.weight;
        }
    }
    while plan.len() < devices {
        let load = |at: &usize| needs[*at].rate / given[*at];
        let neediest = (0..needs.len()).max_by(|a, b| load(a).total_cmp(&load(b)));
        let Some(at) = neediest else { return };
        given[at] += needs[at].throughput;
        plan.push(vec![Share {
            queue: demands[at].queue,
            rows: needs[at].rows,
            weight: needs[at].throughput,
        }]);
    }
}

// === impl Node ===

impl Node {
    /// A rest alone on a device.
    fn of(demand: &Demand<'_>, need: &Need, at: usize, rate: f64) -> Self {
        let rests = vec![(at, rate)];
        let fits = |rows: u32| demand.ends(rows, f64::from(rows) / rate);
        let rows = largest(demand.spec.max_rows, fits);
        let (rows, duty) = match rows {
            // A request that waits for others would be late, so the cycle takes the available slack.
            0 => (1, (demand.slack() - demand.run(1)).max(demand.run(1))),
            rows => (rows, f64::from(rows) / rate),
        };
        let occupancy = demand.run(rows) / duty;
        if occupancy >= 1.0 {
            return Self {
                rests,
                duty: demand.run(need.rows),
                occupancy: 1.0,
            };
        }
        Self {
            rests,
            duty,
            occupancy,
        }
    }

    /// Both nodes on one device; `None` if they do not fit.
    fn with(&self, other: &Self, demands: &[Demand<'_>]) -> Option<Self> {
        let duty = self.duty.min(other.duty);
        let rests: Vec<_> = self.rests.iter().chain(&other.rests).copied().collect();
        let run = |(at, rate): &(usize, f64)| demands[*at].run(in_cycle(*rate, duty));
        let occupancy = rests.iter().map(run).sum::<f64>() / duty;
        (occupancy <= 1.0).then_some(Self {
            rests,
            duty,
            occupancy,
        })
    }

    fn shares(&self, demands: &[Demand<'_>]) -> Vec<Share> {
        let share = |(at, rate): &(usize, f64)| Share {
            queue: demands[*at].queue,
            rows: in_cycle(*rate, self.duty).min(demands[*at].spec.max_rows),
            weight: *rate,
        };
        self.rests.iter().map(share).collect()
    }
}

/// Rows that come within a duty cycle, rounded up.
fn in_cycle(rate: f64, duty: f64) -> u32 {
    ((rate * duty - 1e-6).ceil() as u32).max(1)
}

// === impl Demand ===

impl Demand<'_> {
    /// The largest batch that can run twice within the target: at least 1.
    fn uncoordinated(&self) -> u32 {
        let fits = |rows: u32| self.ends(rows, self.run(rows));
        largest(self.spec.max_rows, fits).max(1)
    }

    fn run(&self, rows: u32) -> f64 {
        self.spec.latency.of(rows) as f64
    }

    /// The part of the target that is left after the network's delays, ns.
    fn slack(&self) -> f64 {
        match self.target {
            NEVER => FOREVER,
            target => target.saturating_sub(self.delay.before_start(1)) as f64,
        }
    }

    /// Whether a batch that waits `wait` ns and runs ends within the target.
    fn ends(&self, rows: u32, wait: f64) -> bool {
        let more = self.delay.before_start(rows) - self.delay.before_start(1);
        wait + self.run(rows) + more as f64 <= self.slack()
    }
}

/// How often requests without a target are looked at, ns.
const FOREVER: f64 = 10.0 * SECOND as f64;
const SECOND: Nanos = 1_000_000_000;

/// The largest of `1..=most` that fits, 0 for none. If a number does not fit, no larger one may fit.
fn largest(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut fitting, mut beyond) = (0, most.max(1) + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    fitting
}
