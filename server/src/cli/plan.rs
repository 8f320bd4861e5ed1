//! `sextant plan`: the variant, device type, batch size and number of replicas that each step of a pipeline needs.

use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sextant_planning::{
    Graph, Routes, VisitCounts, Whole,
    estimate::Load,
    plan::{Options, Plan as Planned, Problem, cg_peak, next_cheaper, search, with_residual},
    profiles::{Set, names},
};

use super::{
    Client, Error, Output,
    output::{Table, short},
};

mod registered;
mod scales;
mod trace;

use scales::Scales;

/// The seed of routes that the trace does not tell.
const SEED: u64 = 1;

/// Plan the replicas of a pipeline for recorded queries.
///
/// The steps, their variants and their profiles come from the service, or from a profile set. Costs and latencies are
/// estimates; docs/pipelines.md says how good they are.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// Its name.
    pipeline: String,
    /// Queries to plan for: CSV with the column `timestamp` (s); a column with the name of a step has the rows of
    /// each query at that step.
    #[arg(long, value_name = "CSV")]
    trace: PathBuf,
    /// Latency target of the pipeline as a whole.
    #[arg(long, value_name = "MS")]
    latency_ms: f64,
    /// Lowest accuracy of the pipeline as a whole, 0 to 1.
    #[arg(long, value_name = "A", default_value_t = 0.0)]
    min_accuracy: f64,
    /// Share of the queries that may be late, percent.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    late_percent: f64,
    /// A profile set to use instead of the service: `ec2-2018`, `cloud-2024`, `mixed-2025`, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    profiles: Option<String>,
    /// How often a step runs after the step before it ran, and on how many rows, if the trace does not say; may be
    /// repeated.
    #[arg(long, value_name = "STEP=SHARE[:ROWS]")]
    scale: Vec<String>,
}

impl Plan {
    /// Whether the service has to be asked.
    pub fn asks_service(&self) -> bool {
        self.profiles.is_none()
    }

    /// Plans by what the service measured.
    pub async fn run_registered(&self, client: &Client, output: Output) -> Result<(), Error> {
        self.check()?;
        let scales = Scales::parse(&self.scale)?;
        let (graph, whole) = registered::graph(client, &self.pipeline, scales).await?;
        self.answer((&graph, whole.as_ref()), output)
    }

    /// Plans by a profile set.
    pub fn run(&self, output: Output) -> Result<(), Error> {
        self.check()?;
        let named = self.profiles.as_deref().unwrap_or_default();
        let graph = of_set(named, &self.pipeline)?;
        let graph = Scales::parse(&self.scale)?.onto(&graph)?;
        self.answer((&graph, None), output)
    }

    fn check(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let (ms, least, late) = (self.latency_ms, self.min_accuracy, self.late_percent);
        if !(ms > 0.0 && ms <= 1e9) {
            return usage(format!("`--latency-ms {ms}`: it must be above 0"));
        }
        if !(0.0..=1.0).contains(&least) {
            return usage(format!("`--min-accuracy {least}`: it must be from 0 to 1"));
        }
        if !(0.0..=50.0).contains(&late) {
            return usage(format!("`--late-percent {late}`: it must be from 0 to 50"));
        }
        Ok(())
    }

    fn answer(
        &self,
        (graph, whole): (&Graph, Option<&Whole>),
        output: Output,
    ) -> Result<(), Error> {
        let trace = trace::Trace::load(&self.trace, graph)?;
        let drawn = || {
            Routes::draw(
                graph,
                trace.arrivals.len(),
                &mut ChaCha8Rng::seed_from_u64(SEED),
            )
        };
        let routes = trace.routes.unwrap_or_else(drawn);
        let problem = Problem {
            graph,
            load: Load {
                arrivals: &trace.arrivals,
                routes: &routes,
            },
            target: (self.latency_ms * 1e6) as u64,
            min_accuracy: self.min_accuracy,
            miss_share: self.late_percent / 100.0,
        };
        let (problem, measured) = problem.held_to(whole);
        let factor = measured.unwrap_or(1.0);
        let found = search(&problem, Options::default());
        let Some(plan) = found.plan else {
            return Err(Error::Usage(none(&problem, factor)));
        };
        let plan = with_residual(&problem, &plan);
        let mut answer = told(&self.pipeline, &problem, &plan);
        answer["accuracy"] = json!((problem.accuracy(&plan) * factor).min(1.0));
        answer["accuracy_measured"] = json!(measured.is_some());
        output.either(&answer, || shown(&answer))
    }
}

/// A pipeline of a shipped set or a file.
fn of_set(set: &str, pipeline: &str) -> Result<Graph, Error> {
    let usage = |error: sextant_planning::profiles::Error| Error::Usage(error.to_string());
    let set = match names().contains(&set) {
        true => Set::named(set).map_err(usage)?,
        false => {
            let text = std::fs::read_to_string(set).map_err(|source| Error::Io {
                path: Path::new(set).to_owned(),
                source,
            })?;
            Set::parse(&text).map_err(|error| Error::Usage(format!("{set}: {error}")))?
        }
    };
    Ok(set.pipeline(pipeline).map_err(usage)?.graph.clone())
}

/// Why there is no plan.
fn none(problem: &Problem<'_>, factor: f64) -> String {
    let quickest = problem.graph.only(|step, choice| {
        let least = step.choices.iter().map(|choice| choice.latency.of(1)).min();
        Some(choice.latency.of(1)) == least
    });
    let best = problem.graph.most_accurate();
    let first = |graph: &Graph| Planned {
        steps: graph
            .steps()
            .iter()
            .map(|_| sextant_planning::plan::StepPlan::of(0, 1, 10_000))
            .collect(),
    };
    let most = Problem {
        graph: &best,
        ..*problem
    };
    if !most.is_accurate(&first(&best)) {
        let accuracy = most.accuracy(&first(&best));
        return format!(
            "no plan is accurate enough: the most accurate variants reach `{:.4}` together",
            (accuracy * factor).min(1.0)
        );
    }
    let least = quickest.map_or(0.0, |graph| {
        let of = Problem {
            graph: &graph,
            ..*problem
        };
        of.estimate(&first(&graph))
            .quantile(1.0 - problem.miss_share) as f64
            / 1e6
    });
    format!(
        "no plan meets the targets: without waiting the quickest variants take `{least:.1}` ms; raise `--latency-ms`, or lower `--min-accuracy`"
    )
}

/// The answer as JSON.
fn told(pipeline: &str, problem: &Problem<'_>, plan: &Planned) -> Value {
    let learnt = VisitCounts::from_routes(problem.graph, problem.load.routes);
    let next = next_cheaper(problem, plan).map(|next| {
        json!({
            "cost_per_hour_usd": next.cost,
            "steps": steps(problem, &next.plan, None),
            "why_not": next.why.to_string(),
        })
    });
    let whole = cg_peak(problem).map(|plan| figures(problem, &plan));
    let mut answer = figures(problem, plan);
    answer["pipeline"] = json!(pipeline);
    answer["queries"] = json!(problem.load.arrivals.len());
    answer["queries_per_s"] = json!(problem.rate());
    answer["steps"] = steps(problem, plan, Some(&learnt));
    answer["next_cheaper"] = json!(next);
    answer["as_one_box"] = json!(whole);
    answer
}

/// Cost and misses, always together.
fn figures(problem: &Problem<'_>, plan: &Planned) -> Value {
    let estimate = problem.estimate(plan);
    json!({
        "cost_per_hour_usd": plan.cost(problem.graph),
        "p50_ms": estimate.quantile(0.5) as f64 / 1e6,
        "p99_ms": estimate.quantile(0.99) as f64 / 1e6,
        "late_share": estimate.missed_share(problem.target),
    })
}

fn steps(problem: &Problem<'_>, plan: &Planned, learnt: Option<&VisitCounts>) -> Value {
    let steps = problem.graph.steps().iter().zip(&plan.steps).enumerate();
    let steps = steps.map(|(at, (step, plan))| {
        let groups = plan.groups.iter().map(|group| {
            let choice = &step.choices[group.choice];
            json!({
                "variant": choice.variant,
                "device_type": choice.device,
                "max_batch": group.batch,
                "replicas": group.replicas,
            })
        });
        let mut told = json!({"step": step.name, "replicas": groups.collect::<Vec<_>>()});
        if let Some(known) = learnt.and_then(|learnt| learnt.step(at)) {
            told["visits"] = json!({"share": known.visits.value, "lower": known.visits.lower, "upper": known.visits.upper});
            told["rows"] = json!(known.rows.value);
        }
        told
    });
    steps.collect()
}

/// The answer for people.
fn shown(answer: &Value) -> String {
    let number = |pointer: &str| {
        answer
            .pointer(pointer)
            .and_then(Value::as_f64)
            .unwrap_or(0.0)
    };
    let mut table = Table::new(&[
        "step",
        "variant",
        "device type",
        "#max batch",
        "#replicas",
        "#of queries",
    ]);
    for step in super::output::rows(answer, "/steps") {
        for group in super::output::rows(step, "/replicas") {
            let share = step
                .pointer("/visits/share")
                .and_then(Value::as_f64)
                .unwrap_or(1.0);
            table.row(vec![
                super::output::cell(step, "/step"),
                super::output::cell(group, "/variant"),
                super::output::cell(group, "/device_type"),
                super::output::cell(group, "/max_batch"),
                super::output::cell(group, "/replicas"),
                format!("{:.1} %", share * 100.0),
            ]);
        }
    }
    let mut text = format!(
        "{}\n{} USD an hour: p50 {} ms, p99 {} ms, {:.2} % late, accuracy {:.4} by what was measured of {}\n",
        table.render().trim_end(),
        short(number("/cost_per_hour_usd")),
        short(number("/p50_ms")),
        short(number("/p99_ms")),
        number("/late_share") * 100.0,
        number("/accuracy"),
        match answer["accuracy_measured"] == true {
            true => "the whole",
            false => "the steps",
        },
    );
    if let Some(why) = answer
        .pointer("/next_cheaper/why_not")
        .and_then(Value::as_str)
    {
        let cost = short(number("/next_cheaper/cost_per_hour_usd"));
        text += &format!("next cheaper, {cost} USD an hour: {why}\n");
    }
    if answer["as_one_box"].is_object() {
        let (cost, late) = (
            short(number("/as_one_box/cost_per_hour_usd")),
            number("/as_one_box/late_share") * 100.0,
        );
        text +=
            &format!("replicated as one box for its peak: {cost} USD an hour, {late:.2} % late\n");
    }
    text.trim_end().to_owned()
}
