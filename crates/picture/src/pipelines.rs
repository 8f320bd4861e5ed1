//! Plans for pipelines that have a latency target: which variant runs each step, on how many devices of which type.
//!
//! The demand of a step is demand of the application that the step asks, tagged with the step. The tags give the graph,
//! how often each step runs and on how many rows. The variants and the types of devices give what may run it. The
//! planner is that of `sextant plan` ([`search`]), over a sample of queries that arrive at random at the expected rate.
//! Its plan is kept while the load of each step stays near the load for which it was made.
//!
//! A step that asks one of several routes is tagged with the route that it asked. Here it is several [`parts`], of
//! which a query runs one. If a step is itself a pipeline, the steps of that pipeline are tagged as steps of the
//! outermost one, `step.inner`.
//!
//! If queries ask the whole pipeline for an accuracy, steps are tagged with that accuracy and with what was measured of
//! the whole. Accuracies count only then. Otherwise variants that are too inaccurate for their step are left out, and
//! no more is demanded. The planner says how accurate the whole is by its steps ([`Problem::is_accurate`]): a step that
//! runs on a condition counts by the share of the queries that run it. That share may move while the load of each step
//! stays near, so a plan is kept only while it is accurate enough by the current shares.

mod batches;

use std::{collections::BTreeMap, sync::Arc};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Choice, Graph, Routes, Whole,
    estimate::Load,
    parts::{self, Frequency, Part},
    plan::{Options as Effort, Plan, Problem, search, with_residual},
};
use sextant_scaling::{Reservation, ReservedCapacity};
use sextant_schedule::{LatencyTable, Nanos};
use sextant_types::{
    ApplicationId, Profile, Quality, Route, StepOf, Variant, VariantId, WholeAccuracy,
    index::{KindIx, VariantIx},
};

use crate::{Forecast, Kind, Picture};

/// The multiple of the expected rate that is planned for, so that a plan lasts.
const RAISED: f64 = 1.1;

/// Below this share of the planned load, a new plan is made.
const LESS: f64 = 0.7;

/// Queries in a sample.
const QUERIES: usize = 2000;

/// The share of the queries that may be late.
const LATE: f64 = 0.01;

/// The seed of the sample. It is the same at each look.
const SEED: u64 = 1;

/// The most rows of a batch that a plan may use.
const MOST_ROWS: u32 = 4096;

/// Costs that differ by less than this are equal, US dollars an hour.
const SAME_USD: f64 = 1e-9;

/// The assumed price of devices without a price, US dollars an hour, so that fewer devices are better.
const NO_PRICE: f64 = 1.0;

/// The rows that a search may simulate, which takes some tenths of a second.
const EFFORT: Effort = Effort {
    most_rows: 1_000_000,
    most_queries: QUERIES,
};

/// The plans that were made, by pipeline.
#[derive(Debug, Default)]
pub struct Plans(BTreeMap<ApplicationId, CachedPlan>);

/// A plan, and the question that it answers.
#[derive(Debug)]
struct CachedPlan {
    pipeline: ApplicationId,
    question: Question,
    plan: Option<Plan>,
}

/// The question for the planner.
#[derive(Debug, Clone, PartialEq)]
struct Question {
    graph: Graph,
    /// Queries a second.
    rate: f64,
    /// Rows a second by step.
    loads: Vec<f64>,
    target: Nanos,
    /// The least accuracy of the whole pipeline, 0 if none is asked for. `whole` has what was measured of it.
    least: f64,
    whole: Option<Whole>,
}

/// Queries that arrive at random at the rate of a question.
struct Sample {
    arrivals: Vec<Nanos>,
    routes: Routes,
}

/// A variant on a type of device that has the engine and the memory for it.
#[derive(Debug, Clone)]
pub(crate) struct EligibleVariant {
    pub variant: Arc<Variant>,
    pub number: VariantIx,
    pub kind: KindIx,
    pub quality: Quality,
    pub profile: Profile,
}

/// A step as a plan runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Staff {
    /// The pipeline.
    pub pipeline: ApplicationId,
    /// Its step.
    pub step: String,
    /// The variant.
    pub variant: VariantId,
    /// The type of device, by its position in the picture's list.
    pub device: KindIx,
    /// The most rows of a batch.
    pub batch: u32,
    /// The number of batches that run side by side.
    pub replicas: u32,
    /// Rows a second of the whole step that are planned for.
    pub rps: f64,
    /// The latency target of the whole pipeline, ms.
    pub target_ms: f64,
    /// The capacity that it occupies.
    pub reserved: Reservation,
}

/// The demand of a pipeline's steps.
struct PipelineDemand<'a> {
    /// In an order in which each step comes after those that it waits for.
    steps: Vec<StepDemand<'a>>,
    target_ms: f64,
}

struct StepDemand<'a> {
    of: &'a StepOf,
    /// Positions of its forecasts.
    outlooks: Vec<usize>,
    /// Runs and rows a second in the last minute.
    runs: f64,
    rows: f64,
    /// Rows a second that are planned for.
    planned: f64,
}

// === impl Plans ===

impl Plans {
    /// The plans for the pipelines in a picture. Pipelines for which there is no plan or no room are left to the plan
    /// for everything else.
    pub fn of(&mut self, picture: &Picture) -> (ReservedCapacity, Vec<Staff>) {
        let mut asked = asked(&picture.outlooks);
        asked.retain(|_, asked| !asked.is_bounded(picture));
        self.0.retain(|pipeline, _| asked.contains_key(pipeline));
        let (mut staffed, mut all) = (ReservedCapacity::default(), Vec::new());
        for (pipeline, asked) in &asked {
            let Some(question) = asked.question(picture) else {
                continue;
            };
            let known = self.0.remove(pipeline);
            let made = match known.filter(|made| made.lasts(&question)) {
                Some(made) => made,
                None => CachedPlan::new(pipeline.clone(), question),
            };
            let staff = made.staff(picture);
            self.0.insert(pipeline.clone(), made);
            if staff.is_empty() || !has_room(picture, &staffed, &staff) {
                continue;
            }
            staffed.reserved.extend(staff.iter().map(|it| it.reserved));
            let outlooks = asked.steps.iter().flat_map(|step| &step.outlooks);
            staffed.needs.extend(outlooks.map(|at| *at as u32));
            all.extend(staff);
        }
        (staffed, all)
    }
}

/// Whether so many devices are allowed, and whether the budget pays for them beside the devices that are required.
fn has_room(picture: &Picture, staffed: &ReservedCapacity, staff: &[Staff]) -> bool {
    let mut devices = vec![0.0; picture.kinds.len()];
    let all = staffed.reserved.iter();
    for of in all.chain(staff.iter().map(|it| &it.reserved)) {
        devices[of.device.get() as usize] += of.devices;
    }
    let kinds = picture.kinds.iter().zip(&devices);
    let mut fits = kinds
        .clone()
        .map(|(kind, devices)| *devices <= f64::from(kind.most));
    let price = |kind: &Kind| kind.facts.price_per_hour_usd;
    let least = picture.kinds.iter();
    let least = least.map(|kind| f64::from(kind.least) * price(kind));
    let costs = kinds.map(|(kind, devices)| {
        let devices = devices.ceil().max(f64::from(kind.least));
        devices * price(kind)
    });
    let (least, costs) = (least.sum::<f64>(), costs.sum::<f64>());
    let budget = picture.problem.budget_per_hour_usd;
    fits.all(|fits| fits) && budget.is_none_or(|budget| costs <= budget.max(least) + SAME_USD)
}

/// Steps by their names and by the route that they ask. A step that is split appears several times.
type Steps<'a> = BTreeMap<(&'a str, &'a Route), StepDemand<'a>>;

/// The demand of steps, by pipeline. Pipelines without a target and pipelines of which a step is missing are left out.
fn asked(outlooks: &[Forecast]) -> BTreeMap<ApplicationId, PipelineDemand<'_>> {
    let mut all: BTreeMap<&ApplicationId, (Steps<'_>, f64)> = BTreeMap::new();
    // A step that nobody asks any longer may belong to an earlier version.
    let asked = outlooks
        .iter()
        .enumerate()
        .filter(|(_, it)| it.of.rps > 0.0);
    for (at, outlook) in asked {
        let (Some(of), Some(load)) = (&outlook.need.step, &outlook.step) else {
            continue;
        };
        let (steps, target_ms) = all
            .entry(&of.pipeline)
            .or_insert((BTreeMap::new(), f64::INFINITY));
        let step = steps.entry((&of.step, &of.asks)).or_insert(StepDemand {
            of,
            outlooks: Vec::new(),
            runs: 0.0,
            rows: 0.0,
            planned: 0.0,
        });
        let rows = outlook.of.expected.mean_rps;
        step.outlooks.push(at);
        step.rows += rows;
        step.runs += rows * load.runs_per_row;
        step.planned += outlook.of.rps;
        if let Some((strictest, _)) = load.whole_ms {
            *target_ms = target_ms.min(strictest);
        }
    }
    let all = all
        .into_iter()
        .filter_map(|(pipeline, (steps, target_ms))| {
            let steps = steps.into_values().collect();
            let steps = parts::in_order(steps, |it: &StepDemand<'_>| (&it.of.step, &it.of.after))?;
            let asked = PipelineDemand { steps, target_ms };
            asked
                .target_ms
                .is_finite()
                .then(|| (pipeline.clone(), asked))
        });
    all.collect()
}

// === impl PipelineDemand ===

impl PipelineDemand<'_> {
    /// Whether one of the applications that it asks may not use as much as it asks for.
    fn is_bounded(&self, picture: &Picture) -> bool {
        let outlooks = self.steps.iter().flat_map(|step| &step.outlooks);
        let mut applications = outlooks.map(|at| &picture.outlooks[*at].need.application);
        applications.any(|application| picture.set.is_bounded(application))
    }

    /// The question for the planner; `None` if nothing is asked, or nothing can run a step.
    fn question(&self, picture: &Picture) -> Option<Question> {
        let (queries, rate) = self.rates()?;
        let rate = rate * RAISED;
        let (least, measured) = self.accuracy(picture);
        let (mut parts, mut loads) = (Vec::new(), Vec::new());
        for asked in &self.steps {
            let share = (asked.runs / queries).clamp(0.0, 1.0);
            let rows = (asked.rows / asked.runs.max(1e-9)).max(1.0);
            loads.push(rate * share * rows);
            parts.push(Part {
                step: asked.of.step.clone(),
                asks: asked.of.asks.name().to_owned(),
                after: asked.of.after.clone(),
                often: Frequency::OfAll(share),
                rows,
                choices: asked.choices(picture, least > 0.0),
            });
        }
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        Some(Question {
            graph: parts::graph(parts, &mut random).ok()?,
            rate,
            loads,
            target: (self.target_ms * 1e6) as Nanos,
            least,
            whole: measured.map(|accuracy| Whole {
                accuracy,
                answered: self.answered(picture),
            }),
        })
    }

    /// The least accuracy that is asked of the whole pipeline, 0 if none is, and what was measured of it.
    fn accuracy(&self, picture: &Picture) -> (f64, Option<f64>) {
        let told = self.steps.iter().flat_map(|step| step.told(picture));
        told.fold((0.0, None), |(least, measured), it| {
            (it.least.max(least), Some(it.measured).or(measured))
        })
    }

    /// By step: the variants that answered it while the whole pipeline was measured.
    fn answered(&self, picture: &Picture) -> Vec<Vec<String>> {
        let steps = self.steps.iter().map(|step| {
            let told = step.told(picture).next();
            let answered = told.map(|it| it.answered.iter().map(VariantId::to_string));
            answered.into_iter().flatten().collect()
        });
        steps.collect()
    }

    /// Queries a second in the last minute, and those that are planned for. Both are taken from the first step that
    /// most of them run.
    fn rates(&self) -> Option<(f64, f64)> {
        let mut firsts: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        let first = self.steps.iter().filter(|step| step.of.after.is_empty());
        for step in first.filter(|step| step.rows > 0.0) {
            let (runs, planned) = firsts.entry(&step.of.step).or_default();
            *runs += step.runs;
            *planned += step.planned * step.runs / step.rows;
        }
        let most = |sum: (f64, f64), of: &(f64, f64)| (sum.0.max(of.0), sum.1.max(of.1));
        let (queries, rate) = firsts.values().fold((0.0, 0.0), most);
        (queries > 0.0 && rate > 0.0).then_some((queries, rate))
    }
}

// === impl StepDemand ===

impl StepDemand<'_> {
    /// What the queries of the step report of the accuracy of the whole pipeline.
    fn told<'a>(&'a self, picture: &'a Picture) -> impl Iterator<Item = &'a WholeAccuracy> {
        let loads = self.outlooks.iter();
        let loads = loads.filter_map(|at| picture.outlooks[*at].step.as_ref());
        loads.filter_map(|load| load.accuracy.as_ref())
    }

    /// What may run the step: the variants of what it asks that are good enough, on the types of devices that may have
    /// a device. The caller says whether their accuracy counts.
    fn choices(&self, picture: &Picture, is_accuracy_asked: bool) -> Vec<Choice> {
        let is_good_enough = |of: &&EligibleVariant| {
            let mut outlooks = self.outlooks.iter().map(|at| &picture.outlooks[*at]);
            outlooks.all(|outlook| outlook.need.class.least_quality().is_met_by(of.quality))
        };
        let able = picture.able.iter().filter(|of| of.is_asked(&self.of.asks));
        let able = able.filter(is_good_enough);
        let able = able.map(|of| (of, &picture.kinds[of.kind.get() as usize]));
        let able = able.filter(|(_, kind)| kind.most > 0);
        let choices = able.map(|(of, kind)| Choice {
            accuracy: match is_accuracy_asked {
                true => of.variant.accuracy.share().unwrap_or(1.0),
                false => 1.0,
            },
            ..of.choice(kind)
        });
        choices.collect()
    }
}

// === impl EligibleVariant ===

impl EligibleVariant {
    fn is_asked(&self, by: &Route) -> bool {
        match by {
            Route::Application(id) => *id == self.variant.application,
            Route::Model(id) => *id == self.variant.model,
            Route::Variant(id) => *id == self.variant.id,
        }
    }

    /// The choice for the planner, without its accuracy.
    fn choice(&self, kind: &Kind) -> Choice {
        let price = kind.facts.price_per_hour_usd;
        let price = if price > 0.0 { price } else { NO_PRICE };
        let most = self.variant.most_together().clamp(1, MOST_ROWS);
        let profile = &self.profile;
        Choice {
            variant: self.variant.id.to_string(),
            accuracy: 1.0,
            device: kind.name.to_string(),
            price: price * self.share(kind),
            latency: LatencyTable::rising(most, |rows| (profile.latency_ms(rows) * 1e6) as Nanos),
        }
    }

    /// The share of a device that it occupies while it runs.
    fn share(&self, kind: &Kind) -> f64 {
        let slots = f64::from(kind.facts.slots.max(1));
        (f64::from(self.variant.spec.threads.max(1)) / slots).min(1.0)
    }
}

// === impl Question ===

impl Question {
    /// Whether a plan for this question also answers the question `now`.
    fn lasts(&self, now: &Self) -> bool {
        let mut steps = self.graph.steps().iter().zip(now.graph.steps());
        let is_alike = self.graph.steps().len() == now.graph.steps().len()
            && steps.all(|(one, other)| {
                (&one.name, &one.after, &one.choices) == (&other.name, &other.after, &other.choices)
            });
        let mut loads = self.loads.iter().zip(&now.loads);
        self.target == now.target
            && (self.least, &self.whole) == (now.least, &now.whole)
            && is_alike
            && loads.all(|(then, now)| now / RAISED <= then + 1e-9 && *now >= LESS * then)
    }

    /// A sample of its queries. It is the same for equal questions.
    fn sample(&self) -> Sample {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut now = 0.0;
        let arrivals = (0..QUERIES).map(|_| {
            now -= (1.0 - random.random::<f64>()).ln() / self.rate * 1e9;
            now as Nanos
        });
        Sample {
            arrivals: arrivals.collect(),
            routes: Routes::draw(&self.graph, QUERIES, &mut random),
        }
    }

    /// The problem for the planner.
    fn problem<'a>(&'a self, sample: &'a Sample) -> Problem<'a> {
        let problem = Problem {
            graph: &self.graph,
            load: Load {
                arrivals: &sample.arrivals,
                routes: &sample.routes,
            },
            target: self.target,
            min_accuracy: self.least,
            miss_share: LATE,
        };
        let (problem, _) = problem.held_to(self.whole.as_ref());
        problem
    }
}

// === impl CachedPlan ===

impl CachedPlan {
    /// The cheapest plan for a sample at the question's rate.
    fn new(pipeline: ApplicationId, question: Question) -> Self {
        let sample = question.sample();
        let problem = question.problem(&sample);
        let plan = search(&problem, EFFORT).plan;
        let plan = plan.map(|plan| with_residual(&problem, &plan));
        Self {
            pipeline,
            question,
            plan,
        }
    }

    /// Whether the plan also answers the question `now`.
    fn lasts(&self, now: &Question) -> bool {
        self.question.lasts(now) && self.is_accurate(now)
    }

    /// Whether the plan is accurate enough by the shares of queries that run each step now.
    fn is_accurate(&self, now: &Question) -> bool {
        let is_as_before = now.least <= 0.0 || self.question.graph == now.graph;
        let Some(plan) = self.plan.as_ref().filter(|_| !is_as_before) else {
            return true;
        };
        let sample = now.sample();
        now.problem(&sample).is_accurate(plan)
    }

    /// What runs each step; empty if there is no plan.
    fn staff(&self, picture: &Picture) -> Vec<Staff> {
        let Some(plan) = &self.plan else {
            return Vec::new();
        };
        let loads = &self.question.loads;
        let steps = self.question.graph.steps().iter().zip(&plan.steps);
        let mut all = Vec::new();
        for ((step, of), load) in steps.zip(loads) {
            let rate = |at: usize, batch: u32| {
                f64::from(batch) / step.choices[at].latency.of(batch).max(1) as f64 * 1e9
            };
            let groups = of.groups.iter();
            let capacity = groups.map(|it| rate(it.choice, it.batch) * f64::from(it.replicas));
            let busy = (load / capacity.sum::<f64>().max(1e-9)).min(1.0);
            for group in &of.groups {
                let choice = &step.choices[group.choice];
                let Some((able, kind)) = picture.able_on(&choice.variant, &choice.device) else {
                    continue;
                };
                let devices = f64::from(group.replicas) * able.share(kind);
                all.push(Staff {
                    pipeline: self.pipeline.clone(),
                    step: step.name.clone(),
                    variant: able.variant.id.clone(),
                    device: able.kind,
                    batch: group.batch,
                    replicas: group.replicas,
                    rps: *load,
                    target_ms: self.question.target as f64 / 1e6,
                    reserved: Reservation {
                        variant: able.number,
                        device: able.kind,
                        devices,
                        busy: devices * busy,
                    },
                });
            }
        }
        all
    }
}
