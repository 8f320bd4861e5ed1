//! What tuners ask for while traffic does not change.

use sextant_planning::{
    plan::{Options, Problem, search},
    profiles::Error,
    tune::{Rule, Tuner, timeline},
};

use crate::{Traffic, print, problem, shipped, traffic};

const RATE: f64 = 150.0;
const SECONDS: f64 = 900.0;

pub fn run() -> Result<(), Error> {
    let mut sums = [0.0; 3];
    for pipeline in [
        "image-processing",
        "video-monitoring",
        "social-media",
        "tf-cascade",
    ] {
        let pipeline = shipped("ec2-2018", pipeline)?;
        let graph = pipeline.graph.most_accurate();
        for variation in [1.0, 4.0, 16.0] {
            let traffic = |seed| {
                Traffic::new(
                    &graph,
                    traffic::constant(RATE, variation, SECONDS, seed),
                    seed + 1,
                )
            };
            let (sample, live) = (traffic(31), traffic(33));
            let of = problem(&graph, sample.load(), pipeline.latency_ms);
            let Some(plan) = search(&of, Options::default()).plan else {
                continue;
            };
            let planned: u32 = plan.steps.iter().map(|step| step.main().replicas).sum();
            let hours = live.arrivals.last().map_or(0.0, |at| *at as f64 / 1e9);
            for (at, (name, rule)) in [
                ("printed", Rule::Printed),
                ("ratio", Rule::Ratio),
                ("estimate", Rule::Estimate),
            ]
            .into_iter()
            .enumerate()
            {
                let tuner = Tuner::new(rule, of, &plan, of.target / 2);
                let timeline = timeline(&graph, &plan, &live.arrivals, tuner);
                let more: f64 = timeline.replica_s.iter().sum::<f64>() - f64::from(planned) * hours;
                let later = Problem {
                    load: live.load(),
                    ..of
                };
                let missed = timeline
                    .estimate(&graph, later.load)
                    .missed_share(of.target);
                let cell = format!("{}/{variation}/{name}", pipeline.name);
                print("inferline-alarms", &cell, "more_replica_s", more);
                print("inferline-alarms", &cell, "missed_percent", missed * 100.0);
                sums[at] += more.max(0.0);
            }
        }
    }
    for (name, sum) in ["printed", "ratio", "estimate"].iter().zip(sums) {
        print("inferline-alarms", name, "false_alarms_replica_s", sum);
        print(
            "inferline-alarms",
            name,
            "false_alarms_to_printed_ratio",
            sum / sums[0],
        );
    }
    Ok(())
}
