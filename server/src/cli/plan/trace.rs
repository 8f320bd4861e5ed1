//! Recorded queries: when they came, and where they went.

use std::path::Path;

use sextant_planning::{Graph, Nanos, Routes};

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
        let of_step = |name: &str| names.iter().position(|known| *known == name);
        let columns: Vec<Option<usize>> = graph
            .steps()
            .iter()
            .map(|step| of_step(&step.name))
            .collect();
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
            let rows = columns.iter().map(|column| match column {
                None => Ok(1),
                Some(column) => {
                    let value = values.get(*column).copied().unwrap_or("");
                    value
                        .parse::<u16>()
                        .map_err(|_| wrong(value, "is no number of rows from 0 to 65,535"))
                }
            });
            queries.push((seconds, rows.collect::<Result<_, _>>()?));
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
            routes: columns.iter().any(Option::is_some).then_some(routes),
        })
    }
}

#[cfg(test)]
mod tests {
    use sextant_planning::profiles::Set;

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
    fn what_is_wrong_is_told_with_its_line() {
        assert!(read("timestamp,slow\n1,-1\n").is_err_and(|why| why.contains("line 2: `-1`")));
        assert!(read("timestamp\nNaN\n").is_err_and(|why| why.contains("line 2: `NaN`")));
        assert!(read("time\n1\n").is_err_and(|why| why.contains("`timestamp`")));
        assert!(read("timestamp\n").is_err_and(|why| why.contains("no query")));
    }
}
