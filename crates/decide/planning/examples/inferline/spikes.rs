//! Plans and tuners over spikes (InferLine, figures 4.6a and b).
//!
//! The traces of AutoScale are not to be had. These have what is told of them: sixty rates for 30 s each, at most 300
//! queries/s, the first quarter as the planner's sample; one with a big spike, one with a spike at once and a drop after
//! 1000 s.

use sextant_planning::{
    plan::{Options, Plan, Problem, cg_peak, coarse, search},
    profiles::Error,
    tune::{Rule, Tuner, timeline},
};

use crate::{Traffic, print, problem, shipped, traffic, traffic::Piece};

const PIECE_S: f64 = 30.0;

/// A big spike.
const BIG: [f64; 60] = [
    92., 88., 95., 101., 97., 90., 94., 103., 99., 96., 91., 98., 104., 100., 95., 97., 102., 99.,
    105., 110., 118., 131., 149., 172., 198., 226., 255., 278., 293., 300., 296., 284., 265., 241.,
    214., 188., 166., 148., 134., 124., 116., 111., 107., 103., 100., 98., 101., 104., 99., 96.,
    94., 97., 100., 102., 98., 95., 93., 96., 99., 97.,
];

/// A spike at once, and a drop.
const INSTANT: [f64; 60] = [
    118., 122., 115., 120., 125., 119., 116., 121., 124., 118., 117., 123., 120., 119., 122., 121.,
    118., 120., 300., 297., 294., 298., 300., 295., 292., 296., 299., 300., 297., 293., 295., 298.,
    296., 300., 294., 292., 297., 299., 295., 296., 293., 298., 300., 297., 294., 296., 299., 295.,
    60., 58., 62., 61., 57., 59., 63., 60., 58., 61., 62., 59.,
];

pub fn run() -> Result<(), Error> {
    for (name, rates) in [("inferline-fig4.6a", BIG), ("inferline-fig4.6b", INSTANT)] {
        trace(name, &rates)?;
    }
    Ok(())
}

/// A plan beside what follows traffic.
struct Way<'a> {
    name: &'static str,
    plan: &'a Plan,
    rule: Option<Rule>,
}

fn trace(name: &str, rates: &[f64]) -> Result<(), Error> {
    let pipeline = shipped("ec2-2018", "social-media")?;
    let graph = pipeline.graph.most_accurate();
    let pieces: Vec<Piece> = rates
        .iter()
        .map(|rate| Piece {
            seconds: PIECE_S,
            from: *rate,
            to: *rate,
        })
        .collect();
    let (before, after) = pieces.split_at(rates.len() / 4);
    let sample = Traffic::new(&graph, traffic::arrivals(before, 1.0, 21), 22);
    let live = Traffic::new(&graph, traffic::arrivals(after, 1.0, 23), 24);
    let of = problem(&graph, sample.load(), pipeline.latency_ms);
    let (Some(peak), Some(unit)) = (cg_peak(&of), coarse(&of)) else {
        return Ok(());
    };
    let Some(own) = search(&of, Options::default()).plan else {
        return Ok(());
    };
    let unit_rule = Rule::Coarse {
        unit_millirate: (unit.rate * 1e3) as u64,
    };
    let ways = [
        ("coarse-grained", &peak, Some(unit_rule)),
        ("planner-only", &own, None),
        ("printed", &own, Some(Rule::Printed)),
        ("ratio", &own, Some(Rule::Ratio)),
        ("estimate", &own, Some(Rule::Estimate)),
    ];
    print(
        name,
        "",
        "initial_cost_ratio",
        peak.cost(&graph) / own.cost(&graph),
    );
    let figures: Vec<(f64, f64)> = ways
        .map(|(name, plan, rule)| Way { name, plan, rule })
        .iter()
        .map(|way| way.figures(name, &of, &live))
        .collect();
    for (at, way) in [(3, "ratio"), (4, "estimate")] {
        print(
            name,
            way,
            "cost_to_coarse_grained_ratio",
            figures[0].0 / figures[at].0,
        );
        print(
            name,
            way,
            "misses_to_coarse_grained_ratio",
            figures[0].1 / figures[at].1.max(1e-9),
        );
    }
    Ok(())
}

impl Way<'_> {
    /// Cost and share of misses, printed.
    fn figures(&self, experiment: &str, of: &Problem<'_>, live: &Traffic) -> (f64, f64) {
        let service = of.target / 2;
        // A plan that nobody tunes is one whose tuner sees nothing.
        let seen: &[u64] = if self.rule.is_some() {
            &live.arrivals
        } else {
            &[]
        };
        let tuner = Tuner::new(self.rule.unwrap_or(Rule::Ratio), *of, self.plan, service);
        let timeline = timeline(of.graph, self.plan, seen, tuner);
        let hours = live.arrivals.last().map_or(0.0, |at| *at as f64 / 3.6e12);
        let cost = if self.rule.is_some() {
            timeline.cost
        } else {
            self.plan.cost(of.graph) * hours
        };
        let missed = timeline
            .estimate(of.graph, live.load())
            .missed_share(of.target);
        print(experiment, self.name, "cost_usd", cost);
        print(experiment, self.name, "missed_percent", missed * 100.0);
        print(
            experiment,
            self.name,
            "changes_count",
            f64::from(timeline.changes),
        );
        (cost, missed)
    }
}
