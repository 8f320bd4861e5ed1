//! Recorded queries: their arrivals and their routes.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{Graph, Nanos, Routes, parts};

use super::SEED;
use crate::cli::Error;

/// Most queries of a trace: more than a day at 100 a second.
const MOST_QUERIES: usize = 10_000_000;

/// A trace.
pub struct Trace {
    /// When each query came after the first, ns, in order.
    pub arrivals: Vec<Nanos>,
    /// Their routes; `None` where no column is a step's.
    pub routes: Option<Routes>,
}

impl Trace {
    /// Reads a file with a header.
    pub fn load(path: &Path, graph: &Graph) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::read(&text, graph)
            .map_err(|problem| Error::Usage(format!("{}: {problem}", path.display())))
    }

    fn read(text: &str, graph: &Graph) -> Result<Self, String> {
        let mut lines = text
            .trim_start_matches('\u{feff}')
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or("it is empty")?;
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let time = names
            .iter()
            .position(|name| *name == "timestamp")
            .ok_or("it has no column `timestamp`")?;
        let columns = Columns::new(graph, &names);
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut queries: Vec<(f64, Vec<u16>)> = Vec::new();
        for (at, line) in lines {
            if queries.len() == MOST_QUERIES {
                return Err(format!(
                    "it has more than {MOST_QUERIES} queries: plan for a part of them"
                ));
            }
            let values: Vec<&str> = line.split(',').map(str::trim).collect();
            let wrong = |value: &str, what: &str| format!("line {}: `{value}` {what}", at + 1);
            let value = values.get(time).copied().unwrap_or("");
            let seconds = value
                .parse::<f64>()
                .ok()
                .filter(|seconds| seconds.is_finite() && seconds.abs() < 1e11);
            let seconds = seconds.ok_or_else(|| wrong(value, "is no time in seconds"))?;
            let rows = columns.rows((graph, &values), &mut random);
            let rows = rows.map_err(|value| wrong(value, "is no number of rows from 0 to 65,535"));
            queries.push((seconds, rows?));
        }
        queries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first = queries.first().ok_or("it has no query")?.0;
        let mut routes = Routes::new(graph.steps().len());
        for (_, rows) in &queries {
            routes.push(rows);
        }
        let arrivals = queries
            .iter()
            .map(|(at, _)| ((at - first) * 1e9).round() as Nanos);
        Ok(Self {
            arrivals: arrivals.collect(),
            routes: columns.0.iter().any(Option::is_some).then_some(routes),
        })
    }
}

/// By step of the graph: the column of its rows, or of those of the step that it is an arm of.
struct Columns(Vec<Option<Column>>);

#[derive(Clone, Copy)]
enum Column {
    Own(usize),
    /// Of a step that is split: which arm a query takes is drawn.
    Whole(usize),
}

// === impl Columns ===

impl Columns {
    fn new(graph: &Graph, names: &[&str]) -> Self {
        let of = |name: &str| names.iter().position(|known| *known == name);
        let columns = graph.steps().iter().map(|step| {
            let whole = || of(parts::step_of(&step.name)).map(Column::Whole);
            of(&step.name).map(Column::Own).or_else(whole)
        });
        Self(columns.collect())
    }

    /// The rows of a query by step, or the value that is no number of rows.
    fn rows<'a>(
        &self,
        (graph, values): (&Graph, &[&'a str]),
        random: &mut impl Rng,
    ) -> Result<Vec<u16>, &'a str> {
        let rows = self.0.iter().map(|column| match column {
            None => Ok(1),
            Some(Column::Own(at) | Column::Whole(at)) => {
                let value = values.get(*at).copied().unwrap_or("");
                value.parse::<u16>().map_err(|_| value)
            }
        });
        let mut rows = rows.collect::<Result<Vec<u16>, &str>>()?;
        for split in graph.splits() {
            if split
                .iter()
                .any(|at| matches!(self.0[*at], Some(Column::Own(_))))
            {
                // Arms without a column were not taken.
                let without = split.iter().filter(|at| self.0[**at].is_none());
                without.for_each(|at| rows[*at] = 0);
                continue;
            }
            let chance = |at: &usize| graph.steps()[*at].scale.probability;
            let mut left = random.random::<f64>() * split.iter().map(chance).sum::<f64>();
            let mut taken = split.last();
            for at in split {
                left -= chance(at);
                if left < 0.0 {
                    taken = Some(at);
                    break;
                }
            }
            let others = split.iter().filter(|at| taken != Some(*at));
            others.for_each(|at| rows[*at] = 0);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use sextant_planning::{
        parts::{Frequency, Part},
        profiles::Set,
    };

    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        let set = Set::named("ec2-2018").unwrap();
        Trace::read(text, &set.pipeline("tf-cascade").unwrap().graph)
    }

    #[test]
    fn queries_are_put_in_order_and_columns_of_steps_are_their_routes() {
        let trace = read("timestamp,slow\n12.5,1\n10,0\n").unwrap();
        assert_eq!(trace.arrivals, [0, 2_500_000_000]);
        let routes = trace.routes.unwrap();
        assert_eq!((routes.of(0), routes.of(1)), (&[1, 0][..], &[1, 1][..]));
    }

    #[test]
    fn a_query_of_a_step_that_is_split_takes_one_of_its_arms() {
        let set = Set::named("ec2-2018").unwrap();
        let of = &set.pipeline("tf-cascade").unwrap().graph.steps()[0];
        let part = |step: &str, asks: &str, probability: f64| Part {
            step: step.to_owned(),
            asks: asks.to_owned(),
            after: Vec::new(),
            often: Frequency::WhereItCould(probability),
            rows: 1.0,
            choices: of.choices.clone(),
        };
        let parts = vec![part("score", "a", 0.75), part("score", "b", 0.25)];
        let graph = parts::graph(parts, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        let text = |header: &str, line: &str| {
            let lines = (0..400).map(|at| format!("{at},{line}\n"));
            format!("timestamp,{header}\n{}", lines.collect::<String>())
        };
        let routes = |header: &str, line: &str| {
            let trace = Trace::read(&text(header, line), &graph).unwrap();
            trace.routes.unwrap()
        };
        let drawn = routes("score", "3");
        let is_one = |query: &[u16]| query.contains(&3) && query.contains(&0);
        assert!((0..400).all(|query| is_one(drawn.of(query))));
        assert!((drawn.visits(0) - 0.75).abs() < 0.1);
        assert_eq!(routes("score", "0").visits(0), 0.0);
        assert_eq!(routes("score of b", "2").of(7), [0, 2]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert!(read("timestamp,slow\n1,-1\n").is_err_and(|why| why.contains("line 2: `-1`")));
        assert!(read("timestamp\nNaN\n").is_err_and(|why| why.contains("line 2: `NaN`")));
        assert!(read("time\n1\n").is_err_and(|why| why.contains("`timestamp`")));
        assert!(read("timestamp\n").is_err_and(|why| why.contains("no query")));
    }
}
