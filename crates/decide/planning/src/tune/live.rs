//! A tuner over a trace: which replicas there were at which time, what they cost, and the latencies of queries.

use sextant_schedule::NEVER;

use super::{ACTIVATION, EVERY, Tuner};
use crate::{
    Graph, Nanos,
    estimate::{Class, Estimate, Load, Replica, Station, estimate},
    plan::Plan,
};

/// Which replicas there were at which time.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// By step.
    pub stations: Vec<Station>,
    /// By step: the time of all replicas from when they were asked for, s.
    pub replica_s: Vec<f64>,
    /// Their price, US dollars.
    pub cost: f64,
    /// The number of changes.
    pub changes: u32,
}

/// Lets a tuner follow the arrivals. The replicas of the plan serve from the beginning. A replica that is removed
/// finishes its batch.
pub fn timeline(graph: &Graph, plan: &Plan, arrivals: &[Nanos], mut tuner: Tuner<'_>) -> Timeline {
    let mut stations: Vec<Station> = plan.stations(graph);
    let end = arrivals.last().copied().unwrap_or(0);
    let (mut next, mut changes, mut look) = (0, 0, EVERY);
    while look <= end {
        while arrivals.get(next).is_some_and(|at| *at < look) {
            tuner.arrived(arrivals[next]);
            next += 1;
        }
        if tuner.look(look) {
            changes += 1;
            for (station, desired) in stations.iter_mut().zip(tuner.replicas()) {
                station.resize(look, *desired as usize);
            }
        }
        look += EVERY;
    }
    let replica_s = stations.iter().map(|station| station.replica_s(end));
    let replica_s: Vec<f64> = replica_s.collect();
    let steps = graph.steps().iter().zip(&plan.steps).zip(&replica_s);
    let cost = steps.map(|((step, plan), s)| step.choices[plan.main().choice].price * s / 3600.0);
    Timeline {
        cost: cost.sum(),
        replica_s,
        stations,
        changes,
    }
}

// === impl Timeline ===

impl Timeline {
    /// The latencies of the trace's queries.
    pub fn estimate(&self, graph: &Graph, load: Load<'_>) -> Estimate {
        estimate(graph, &self.stations, load)
    }
}

// === impl Station ===

impl Station {
    /// Asks for replicas of the first kind, or removes some, latest first.
    fn resize(&mut self, now: Nanos, desired: usize) {
        let mut up: Vec<usize> = (0..self.replicas.len())
            .filter(|at| self.replicas[*at].until == NEVER)
            .collect();
        for _ in up.len()..desired {
            self.replicas.push(Replica {
                class: 0,
                from: now + ACTIVATION,
                until: NEVER,
            });
        }
        while up.len() > desired {
            if let Some(at) = up.pop() {
                self.replicas[at].until = now.max(self.replicas[at].from);
            }
        }
        debug_assert!(
            self.classes
                .first()
                .is_some_and(|class: &Class| class.batch > 0)
        );
    }

    /// The time of all replicas from when they were asked for until they were removed, at most `end`, s.
    fn replica_s(&self, end: Nanos) -> f64 {
        let times = self.replicas.iter().map(|replica| {
            let asked = replica.from.saturating_sub(ACTIVATION);
            replica.until.min(end).saturating_sub(asked) as f64 / 1e9
        });
        times.sum()
    }
}
