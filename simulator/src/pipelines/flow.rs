//! Queries of a pipeline as a source of requests: each step is a model, and an answer triggers the next requests.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use sextant_planning::{
    Graph, Routes,
    dropping::{Dropping, Goal, Policy, Stage},
    estimate::Load,
    plan::{Group, Plan},
};
use sextant_schedule::{LatencyTable, NEVER, Nanos, Schedulers};

use crate::{Arrival, Device, Jitter, Model, Network, Setting, Shape, Source, Span, World};

/// Time after the last arrival in which answers still count, ns.
const AFTER: Nanos = 3_600_000_000_000;

/// The outcomes of the queries.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowResult {
    /// By query: latency, ns; `NEVER` if a step was dropped.
    pub latencies: Vec<Nanos>,
    /// Time that devices spent on queries that were not answered in time, over all the time that they spent, 0 to 1, by
    /// the run times of single rows.
    pub wasted_share: f64,
}

/// The queries of a pipeline; see the module.
#[derive(Debug)]
pub struct Flow<'a> {
    graph: &'a Graph,
    load: Load<'a>,
    /// The steps that follow each step.
    following: Vec<Vec<usize>>,
    /// Decides which queries are given up.
    dropping: Dropping,
    target: Nanos,
    next: usize,
    order: u64,
    waiting: BinaryHeap<Reverse<(Nanos, u64, u32, u32)>>,
    /// By query and step: rows without an answer.
    rows: Vec<u16>,
    /// By query and step: the number of steps before it that have not ended.
    before: Vec<u16>,
    /// By query: the number of steps that have not ended.
    open: Vec<u16>,
    latencies: Vec<Nanos>,
    /// By query and step: rows that ran.
    ran: Vec<u16>,
    /// By query and step: when it was asked; `NEVER` if it was not, or is known not to be asked.
    asked: Vec<Nanos>,
    /// By query: whether its admission was decided.
    decided: Vec<bool>,
    /// By query and step: rows that are still counted as being on their way.
    counted: Vec<f64>,
}

/// Sends the queries of `load` through a world with the replicas of `plan`. `target` is that of the whole pipeline, ns;
/// [`NEVER`] for none. `dropping` decides which queries are given up.
pub fn serve(
    graph: &Graph,
    plan: &Plan,
    load: Load<'_>,
    (target, dropping): (Nanos, Policy),
    options: &impl Schedulers,
) -> FlowResult {
    let setting = setting(graph, plan, options);
    let dropping = Dropping::new(dropping, stages(graph, plan, load.routes));
    let mut flow = Flow::new(graph, load, (target, dropping));
    let last = load.arrivals.last().copied().unwrap_or(0);
    let span = Span {
        from: 0,
        until: last + AFTER,
        most_missed: Vec::new(),
    };
    World::new(&setting).run(&mut flow, span);
    flow.served(plan)
}

/// The steps, as the replicas of a plan run them.
fn stages(graph: &Graph, plan: &Plan, routes: &Routes) -> Vec<Stage> {
    let steps = graph.steps().iter().zip(&plan.steps).enumerate();
    let stages = steps.map(|(at, (step, of))| {
        let main = of.main();
        let latency = &step.choices[main.choice].latency;
        // The rate of other kinds of replicas, in replicas of the main one.
        let rate = |group: &Group| {
            let run = step.choices[group.choice].latency.of(group.batch).max(1);
            f64::from(group.replicas * group.batch) / run as f64
        };
        let all: f64 = of.groups.iter().map(rate).sum();
        let one = f64::from(main.batch) / latency.of(main.batch).max(1) as f64;
        Stage {
            after: step.after.clone(),
            probability: step.scale.probability,
            visits: routes.visits(at),
            rows: step.scale.rows,
            runs: (1..=main.batch).map(|rows| latency.of(rows)).collect(),
            replicas: all / one,
        }
    });
    stages.collect()
}

/// A world in which each group of replicas is a kind of device of its own.
fn setting<S: Schedulers>(graph: &Graph, plan: &Plan, options: &S) -> Setting<S> {
    let groups = plan.steps.iter().enumerate();
    let groups = groups.flat_map(|(step, of)| of.groups.iter().map(move |group| (step, *group)));
    let groups: Vec<(usize, Group)> = groups.collect();
    let models = graph.steps().iter().enumerate().map(|(at, step)| {
        let latency = groups.iter().map(|(of, group)| {
            let table = &step.choices.get(group.choice)?.latency;
            let own = LatencyTable::rising(group.batch, |rows| table.of(rows));
            (*of == at).then(|| Arc::new(own))
        });
        Model {
            name: step.name.clone(),
            target: NEVER,
            latency: latency.collect(),
            priority: 0,
            weight: 1.0,
        }
    });
    let devices = (0..)
        .zip(&groups)
        .flat_map(|(kind, (_, group))| (0..group.replicas).map(move |_| Device { kind }));
    let prices = groups
        .iter()
        .map(|(step, group)| graph.steps()[*step].choices[group.choice].price);
    Setting {
        models: models.collect(),
        devices: devices.collect(),
        prices: prices.collect(),
        shape: Shape::Fleet,
        options: options.clone(),
        network: Network::default(),
        jitter: Jitter::None,
        failures: Vec::new(),
        seed: 0,
        histograms: false,
    }
}

// === impl Flow ===

impl<'a> Flow<'a> {
    /// Makes the source before any query has come.
    pub fn new(graph: &'a Graph, load: Load<'a>, (target, dropping): (Nanos, Dropping)) -> Self {
        let steps = graph.steps().len();
        let following = (0..steps).map(|at| {
            let later = graph.steps().iter().enumerate();
            later
                .filter(|(_, step)| step.after.contains(&at))
                .map(|(at, _)| at)
                .collect()
        });
        let following: Vec<Vec<usize>> = following.collect();
        let queries = load.arrivals.len();
        Self {
            graph,
            load,
            following,
            dropping,
            target,
            next: 0,
            order: 0,
            waiting: BinaryHeap::new(),
            rows: vec![0; queries * steps],
            before: vec![0; queries * steps],
            open: vec![0; queries],
            latencies: vec![0; queries],
            ran: vec![0; queries * steps],
            asked: vec![NEVER; queries * steps],
            decided: vec![false; queries],
            counted: vec![0.0; queries * steps],
        }
    }

    fn at(&self, query: usize, step: usize) -> usize {
        query * self.graph.steps().len() + step
    }

    fn goal(&self, query: usize) -> Goal {
        Goal {
            arrived: self.load.arrivals[query],
            target: self.target,
        }
    }

    /// A query arrives. The steps that wait for no other begin.
    fn arrive(&mut self) {
        let (query, now) = (self.next, self.load.arrivals[self.next]);
        self.next += 1;
        let route = self.load.routes.of(query);
        for (step, of) in self.graph.steps().iter().enumerate() {
            let at = self.at(query, step);
            self.rows[at] = route[step];
            let visited = |before: &&usize| route[**before] > 0;
            self.before[at] = of.after.iter().filter(visited).count() as u16;
            self.open[query] += u16::from(route[step] > 0);
            if route[step] > 0 && self.before[at] == 0 {
                self.send(now, step, query);
            }
        }
    }

    /// Sets the rows of a query that are counted as on their way to a step.
    fn count(&mut self, step: usize, query: usize, rows: f64) {
        let at = self.at(query, step);
        let more = rows - std::mem::replace(&mut self.counted[at], rows);
        if more != 0.0 {
            self.dropping.adjust(step, more);
        }
    }

    /// A query is given up, and nothing of it is on its way any longer.
    fn give_up(&mut self, query: usize) {
        if self.latencies[query] != NEVER {
            self.dropping.ended(false);
        }
        self.latencies[query] = NEVER;
        for step in 0..self.graph.steps().len() {
            self.count(step, query, 0.0);
        }
    }

    fn ask(&mut self, now: Nanos, step: usize, query: usize) {
        let rows = self.rows[self.at(query, step)];
        self.count(step, query, f64::from(rows));
        self.send(now, step, query);
    }

    fn send(&mut self, now: Nanos, step: usize, query: usize) {
        let at = self.at(query, step);
        self.asked[at] = now;
        for _ in 0..self.rows[at] {
            self.order += 1;
            self.waiting
                .push(Reverse((now, self.order, step as u32, query as u32)));
        }
    }

    /// Decides once whether a query that arrives now is admitted.
    fn decide(&mut self, now: Nanos, query: usize) {
        if std::mem::replace(&mut self.decided[query], true) {
            return;
        }
        if self.dropping.arrive(now, self.goal(query)).is_err() {
            self.latencies[query] = NEVER;
            return;
        }
        for step in 0..self.graph.steps().len() {
            let at = self.at(query, step);
            self.counted[at] = self.dropping.expected(step);
            if self.asked[at] != NEVER {
                self.count(step, query, f64::from(self.rows[at]));
            }
        }
    }

    fn ended(&mut self, now: Nanos, step: usize, query: usize) {
        self.open[query] -= 1;
        let latency = now - self.load.arrivals[query];
        self.latencies[query] = self.latencies[query].max(latency);
        let at = self.at(query, step);
        let took = now - self.asked[at];
        self.dropping.answered(step, took, self.target);
        if self.open[query] == 0 && self.latencies[query] != NEVER {
            self.dropping.ended(self.latencies[query] <= self.target);
            // This includes the steps after those that it did not visit.
            for other in 0..self.graph.steps().len() {
                self.count(other, query, 0.0);
            }
        }
        for later in self.following[step].clone() {
            let at = self.at(query, later);
            if self.rows[at] == 0 {
                // It is not visited, unless another step before it leads to it.
                self.count(later, query, 0.0);
                continue;
            }
            self.before[at] -= 1;
            if self.before[at] == 0 && self.latencies[query] != NEVER {
                self.ask(now, later, query);
            }
        }
    }

    fn served(self, plan: &Plan) -> FlowResult {
        let steps = self.graph.steps();
        let (mut wasted, mut all) = (0.0, 0.0);
        for (query, latency) in self.latencies.iter().enumerate() {
            let rows = self.ran[query * steps.len()..]
                .iter()
                .zip(steps)
                .zip(&plan.steps);
            let took: f64 = rows
                .map(|((rows, step), of)| {
                    let group = of.main();
                    let per_row = step.choices[group.choice].latency.of(group.batch) as f64
                        / f64::from(group.batch);
                    f64::from(*rows) * per_row
                })
                .sum();
            all += took;
            wasted += if *latency > self.target { took } else { 0.0 };
        }
        FlowResult {
            latencies: self.latencies,
            wasted_share: if all > 0.0 { wasted / all } else { 0.0 },
        }
    }
}

impl Source for Flow<'_> {
    fn peek(&mut self) -> Option<Nanos> {
        loop {
            let waits = self.waiting.peek().map(|Reverse((at, ..))| *at);
            let comes = self.load.arrivals.get(self.next).copied();
            match (waits, comes) {
                (waits, Some(comes)) if waits.is_none_or(|waits| comes <= waits) => self.arrive(),
                (waits, _) => return waits,
            }
        }
    }

    fn next(&mut self) -> Arrival {
        let Reverse((at, _, model, client)) =
            self.waiting.pop().expect("asked only when there is a next");
        Arrival { at, model, client }
    }

    fn due(&mut self) -> Option<Nanos> {
        let Reverse((now, _, step, query)) = *self.waiting.peek()?;
        let query = query as usize;
        self.decide(now, query);
        if self.latencies[query] == NEVER {
            // Nothing can answer it by that time any longer.
            return Some(now);
        }
        let due = self.dropping.due(step as usize, self.goal(query));
        Some(due.unwrap_or(NEVER))
    }

    fn on_answer(&mut self, now: Nanos, model: u32, client: u32) {
        let (query, step) = (client as usize, model as usize);
        let at = self.at(query, step);
        self.ran[at] += 1;
        self.rows[at] -= 1;
        let left = (self.counted[at] - 1.0).max(0.0);
        self.count(step, query, left);
        if self.rows[at] == 0 {
            self.rows[at] = self.load.routes.of(query)[step];
            self.ended(now, step, query);
        }
    }

    fn on_drop(&mut self, _now: Nanos, _model: u32, client: u32) {
        self.give_up(client as usize);
    }
}
