//! A load in steps against a latency target, for Sextant and for Triton with each of the delays by which its dynamic
//! batches are usually set. The load of each server is in parts of the most that it answers. Queries come open loop,
//! and their time counts from when they were due.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    contestants::{self, Contestant, Model, Peer},
    figure, median,
    resnet::RESNET,
};
use crate::{
    bench::{
        autoscaling::{
            arrivals::{self, Arrival, Shape},
            clients::{self, End, Question},
        },
        bed::Bench,
        report::Report,
    },
    models, shell,
};

/// The latency target of the application, milliseconds.
const TARGET_MS: f64 = 25.0;
/// Triton's delays, milliseconds.
const DELAYS_MS: [(&str, u32); 3] = [
    ("triton-delay-0ms", 0),
    ("triton-delay-2ms", 2),
    ("triton-delay-10ms", 10),
];
/// Triton refuses a query that has waited for this time, milliseconds: half of the target is left for its run.
const QUEUED_MS: f64 = TARGET_MS / 2.0;
/// The load in each step, as a share of the most that the server answers.
const STEPS: [f64; 5] = [0.2, 0.7, 1.5, 0.7, 0.2];
/// Length of a step, seconds.
const STEP_S: f64 = 4.0;
/// The beginning of a step that does not count, seconds, because the step before still has an effect.
const SETTLING_S: f64 = 0.5;
/// Connections: more than the queries that are under way where answers come in time.
const CLIENTS: usize = 256;
/// Connections that fill a server.
const FULL: usize = 64;
/// Time between the last preparation and the first query.
const LEAD: Duration = Duration::from_millis(300);

/// The outcomes of the queries of a step.
#[derive(Debug, Default, Clone, Copy)]
struct Step {
    sent: u32,
    admitted: u32,
    in_time: u32,
}

/// Measures all servers in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    models::write(&bench.provisioned.python, &[RESNET.name])?;
    let model = Model {
        latency_ms: TARGET_MS,
        ..RESNET
    };
    // Without the target no query is refused, so the load shows the most that the server answers.
    let patient = RESNET.body();
    let patient = bench.write("steps-patient.json", &patient)?;
    for contestant in start(bench, report, model)? {
        let mut of_full = contestant.clone();
        if contestant.name == "sextant" {
            of_full.body.clone_from(&patient);
        }
        let mut most = Vec::new();
        for _ in 0..3 {
            most.push(of_full.load(bench, FULL)?.per_s);
        }
        let most = median(most);
        let turns = bench.arguments.repetitions.max(2) as u64;
        let steps = (0..turns).map(|turn| play(bench, &contestant, most, turn));
        let turns: Vec<_> = steps.collect::<Result<_>>()?;
        tell(report, contestant.name, most, &turns);
    }
    Ok(())
}

/// Starts Sextant and the three settings of Triton, if Triton can be installed.
fn start(bench: &Bench<'_>, report: &mut Report, model: Model) -> Result<Vec<Contestant>> {
    let mut all = vec![contestants::sextant(bench, report, model)?];
    let triton = Peer::named("nvidia-pytriton")?;
    for (name, delay_ms) in DELAYS_MS {
        let environment = [
            ("WAIT_MS", delay_ms.to_string()),
            ("QUEUED_MS", QUEUED_MS.to_string()),
        ];
        match contestants::start_peer(bench, report, (triton, &environment), model) {
            Ok(contestant) => all.push(Contestant { name, ..contestant }),
            Err(error) => shell::say(format!("{name} is left out: {error:#}")),
        }
    }
    Ok(all)
}

/// Sends one server the queries of all steps.
fn play(
    bench: &Bench<'_>,
    contestant: &Contestant,
    most_per_s: f64,
    turn: u64,
) -> Result<[Step; STEPS.len()]> {
    let least = STEPS.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = STEPS.iter().copied().fold(0.0, f64::max);
    let shape = Shape {
        warm_up_s: 0.0,
        measured_s: STEP_S * STEPS.len() as f64,
        range_rps: [least * most_per_s, greatest * most_per_s],
        seed: bench.arguments.seed + turn,
    };
    let arrivals: Vec<Arrival> = arrivals::arrivals(&STEPS, &shape, &[1.0]);
    let questions = [Question {
        body: fs::read(&contestant.body)?,
        target_ms: TARGET_MS,
    }];
    let to = (contestant.server.address, contestant.path);
    let begin = Instant::now() + LEAD;
    let ends = clients::ends(CLIENTS, to, &questions, (&arrivals, begin));
    let mut steps = [Step::default(); STEPS.len()];
    for end in &ends {
        let step = (end.arrival.at_s / STEP_S) as usize;
        if end.arrival.at_s - STEP_S * step as f64 >= SETTLING_S
            && let Some(step) = steps.get_mut(step)
        {
            step.add(end);
        }
    }
    Ok(steps)
}

fn tell(report: &mut Report, name: &str, most_per_s: f64, turns: &[[Step; STEPS.len()]]) {
    let is_ours = name == "sextant";
    report.add(figure("steps_most_rps", most_per_s, "rps", None).of(name));
    for (at, load) in STEPS.iter().enumerate() {
        let over = |of: fn(&Step) -> f64| median(turns.iter().map(|turn| of(&turn[at])).collect());
        let step = format!("steps_{}_at_{:.0}_percent", at + 1, 100.0 * load);
        let goal = is_ours.then_some(">= 0.99");
        let in_time = over(|step| ratio(step.in_time, step.admitted));
        let metric = format!("{step}_in_time_of_admitted_ratio");
        report.add(figure(&metric, in_time, "ratio", goal).of(name));
        let metric = format!("{step}_in_time_of_sent_ratio");
        let in_time = over(|step| ratio(step.in_time, step.sent));
        report.add(figure(&metric, in_time, "ratio", None).of(name));
    }
    let worst = turns.iter().flatten();
    let worst = worst.map(|step| ratio(step.in_time, step.admitted));
    let worst = worst.fold(1.0, f64::min);
    report.add(
        figure(
            "steps_worst_in_time_of_admitted_ratio",
            worst,
            "ratio",
            None,
        )
        .of(name),
    );
}

fn ratio(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}

// === impl Step ===

impl Step {
    fn add(&mut self, end: &End) {
        self.sent += 1;
        if end.refused.is_none() {
            self.admitted += 1;
            self.in_time += u32::from(end.lag_ms + end.took_ms <= TARGET_MS);
        }
    }
}
