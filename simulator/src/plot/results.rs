//! From the figures of an experiment to its charts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bars, Body, Chart, Line};
use crate::experiment::Record;

/// Figures that are drawn, with their axis' label and, where there is one, their bound.
const DRAWN: [(&str, &str, &str); 7] = [
    ("goodput_rps", "goodput, requests/s", "fluid_bound_rps"),
    ("full_satisfaction_target_ms", "smallest target met, ms", ""),
    ("satisfaction_share", "share answered in time", ""),
    ("good_rps", "answered in time, requests/s", ""),
    ("p99_ms", "99th percentile, ms", ""),
    ("busy_share", "share of device time used", ""),
    (
        "deviation_count",
        "requests, standard deviation",
        "closed_form_count",
    ),
];

/// Least number of values of a quantity for a curve over it.
const LEAST_POINTS: usize = 4;
/// Most charts of one figure that are curves; beyond that bars are clearer.
const MOST_PANELS: usize = 12;
/// Bounds further apart than this are drawn as 1, and values as shares of them.
const WIDE: f64 = 5.0;

/// More cells than this are not named one by one.
const MOST_CELLS: usize = 200;
const OVER_BOUND: &str = "goodput over fluid bound";

/// The charts of an experiment's figures: means over seeds, by policy. Cells that differ in a
/// number within their names (`..-25ms`, `../1.5x`, `40-devices`) become curves over it, others
/// groups of bars.
pub fn charts(title: &str, records: &[Record]) -> Vec<Chart> {
    let has_goodput = records.iter().any(|record| record.metric == "goodput_rps");
    let mut charts = Vec::new();
    for (metric, label, bound) in DRAWN {
        let mut figure = Figure::of(records, metric, bound);
        if has_goodput && metric != "goodput_rps" {
            // What was measured at the peak explains the peak; what follows loads is a curve.
            figure.cells.retain(|cell| cell.contains('/'));
        }
        if !figure.cells.is_empty() {
            charts.extend(figure.charts(&format!("{title} (simulated)"), label));
        }
    }
    charts
}

/// One metric of all cells and policies.
struct Figure<'a> {
    cells: Vec<&'a str>,
    policies: Vec<&'a str>,
    /// By cell and policy.
    values: BTreeMap<(&'a str, &'a str), f64>,
    bounds: BTreeMap<&'a str, f64>,
}

/// A cell's name with a number taken out.
struct Split<'a> {
    before: &'a str,
    number: f64,
    after: &'a str,
}

// === impl Figure ===

impl<'a> Figure<'a> {
    fn of(records: &'a [Record], metric: &str, bound: &str) -> Self {
        let mut figure = Self {
            cells: Vec::new(),
            policies: Vec::new(),
            values: BTreeMap::new(),
            bounds: BTreeMap::new(),
        };
        for record in records.iter().filter(|record| record.seed.is_none()) {
            let Some(cell) = record.cell.as_deref() else {
                continue;
            };
            if record.metric == bound {
                figure.bounds.insert(cell, record.value);
            }
            if record.metric != metric {
                continue;
            }
            let policy = record.policy.as_deref().unwrap_or("any policy");
            if !figure.policies.contains(&policy) {
                figure.policies.push(policy);
            }
            // A cell's records stand together.
            if figure.cells.last() != Some(&cell) && !figure.cells.contains(&cell) {
                figure.cells.push(cell);
            }
            figure.values.insert((cell, policy), record.value);
        }
        figure
    }

    fn value(&self, cell: &str, policy: &str) -> Option<f64> {
        self.values.get(&(cell, policy)).copied()
    }

    fn bound(&self, cell: &str) -> Option<f64> {
        self.bounds.get(cell).copied()
    }

    fn charts(&self, title: &str, label: &str) -> Vec<Chart> {
        match self.numbers() {
            _ if self.cells.len() > MOST_CELLS => vec![self.ranks(title, label)],
            Some(at) => self.curves(title, label, at),
            None => vec![self.bars(title, label)],
        }
    }

    /// Each policy's values in increasing order: a picture of more cells than have room for a name.
    fn ranks(&self, title: &str, label: &str) -> Chart {
        let bounded = self.cells.iter().all(|cell| self.bound(cell).is_some());
        let share = |cell: &&str, policy: &str| {
            let value = self.value(cell, policy)?;
            Some(if bounded {
                value / self.bound(cell)?
            } else {
                value
            })
        };
        let curve = |policy: &&str| {
            let cells = self.cells.iter();
            let mut values: Vec<f64> = cells.filter_map(|cell| share(cell, policy)).collect();
            values.sort_by(f64::total_cmp);
            let count = values.len().max(1) as f64;
            let points = (1..)
                .zip(values)
                .map(|(at, value)| (f64::from(at) / count, value));
            Line {
                name: (*policy).to_owned(),
                points: points.collect(),
                reference: false,
            }
        };
        Chart {
            title: title.to_owned(),
            x_label: format!("share of the {} cells", self.cells.len()),
            y_label: if bounded { OVER_BOUND } else { label }.to_owned(),
            body: Body::Lines {
                series: self.policies.iter().map(curve).collect(),
                log_x: false,
            },
        }
    }

    /// Which number within the names the curves run over: the one with the most values.
    fn numbers(&self) -> Option<usize> {
        let most = self.cells.iter().map(|cell| split(cell).len()).max()?;
        let count = |at: usize| {
            let splits: Option<Vec<Split<'_>>> = self
                .cells
                .iter()
                .map(|cell| split(cell).into_iter().nth(at))
                .collect();
            let splits = splits?;
            let values: BTreeSet<u64> = splits.iter().map(|part| part.number.to_bits()).collect();
            let panels: BTreeSet<(&str, &str)> = splits
                .iter()
                .map(|part| (part.before, part.after))
                .collect();
            let drawn = values.len() >= LEAST_POINTS && panels.len() <= MOST_PANELS;
            drawn.then_some((values.len(), at))
        };
        (0..most).filter_map(count).max().map(|(_, at)| at)
    }

    fn curves(&self, title: &str, label: &str, at: usize) -> Vec<Chart> {
        let parts: Vec<(&str, Split<'_>)> = self
            .cells
            .iter()
            .filter_map(|cell| Some((*cell, split(cell).into_iter().nth(at)?)))
            .collect();
        let panels = distinct(parts.iter().map(|(_, part)| (part.before, part.after)));
        let panel = |(before, after): (&str, &str)| {
            let mut cells: Vec<&(&str, Split<'_>)> = parts
                .iter()
                .filter(|(_, part)| (part.before, part.after) == (before, after))
                .collect();
            cells.sort_by(|a, b| a.1.number.total_cmp(&b.1.number));
            let curve = |name: &str, value: &dyn Fn(&str) -> Option<f64>, reference| Line {
                name: name.to_owned(),
                points: cells
                    .iter()
                    .filter_map(|(cell, part)| Some((part.number, value(cell)?)))
                    .collect(),
                reference,
            };
            let mut series: Vec<Line> = self
                .policies
                .iter()
                .map(|policy| curve(policy, &|cell| self.value(cell, policy), false))
                .collect();
            let bound = curve("fluid bound", &|cell| self.bound(cell), true);
            series.extend((!bound.points.is_empty()).then_some(bound));
            let numbers: Vec<f64> = cells.iter().map(|(_, part)| part.number).collect();
            let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
            let (unit, rest) = unit(after);
            let of = [before, rest].map(|part| part.trim_matches(['-', '/']));
            let of = of.join(" ");
            Chart {
                title: match of.trim() {
                    "" => title.to_owned(),
                    of => format!("{title}: {of}"),
                },
                x_label: unit.to_owned(),
                y_label: label.to_owned(),
                body: Body::Lines {
                    series,
                    log_x: low > 0.0 && high / low > 10.0,
                },
            }
        };
        panels.into_iter().map(panel).collect()
    }

    fn bars(&self, title: &str, label: &str) -> Chart {
        let bounds: Vec<Option<f64>> = self.cells.iter().map(|cell| self.bound(cell)).collect();
        let known: Vec<f64> = bounds.iter().copied().flatten().collect();
        let low = known.iter().copied().fold(f64::INFINITY, f64::min);
        let high = known.iter().copied().fold(0.0, f64::max);
        let shares = known.len() == bounds.len() && low > 0.0 && high / low > WIDE;
        let scaled = |value: Option<f64>, bound: &Option<f64>| match bound {
            Some(bound) if shares => value.map(|value| value / bound),
            _ => value,
        };
        let label = if shares { OVER_BOUND } else { label };
        let of = |policy: &&str| Bars {
            name: (*policy).to_owned(),
            values: self
                .cells
                .iter()
                .zip(&bounds)
                .map(|(cell, bound)| scaled(self.value(cell, policy), bound))
                .collect(),
        };
        Chart {
            title: title.to_owned(),
            x_label: String::new(),
            y_label: label.to_owned(),
            body: Body::Bars {
                groups: self.cells.iter().map(|cell| (*cell).to_owned()).collect(),
                series: self.policies.iter().map(of).collect(),
                bounds: bounds.iter().map(|bound| scaled(*bound, bound)).collect(),
                bound_name: "bound".to_owned(),
            },
        }
    }
}

/// The first of each, in order.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// The numbers that begin a part of a name: `a-25ms/1.5x` has 25 and 1.5.
fn split(name: &str) -> Vec<Split<'_>> {
    let starts = name
        .char_indices()
        .filter(|(at, _)| *at == 0 || name[..*at].ends_with(['-', '/']));
    starts
        .filter_map(|(at, _)| {
            let rest = &name[at..];
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            Some(Split {
                before: &name[..at],
                number: rest[..digits].parse().ok()?,
                after: &rest[digits..],
            })
        })
        .collect()
}

/// What a name says after its number: what that is, as an axis' label, and the rest.
fn unit(after: &str) -> (&str, &str) {
    let word = after.trim_start_matches('-');
    let end = word
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(word.len());
    let label = match &word[..end] {
        "ms" => "target, ms",
        "x" => "offered load over peak",
        "rps" => "offered load, requests/s",
        other => other,
    };
    (label, &word[end..])
}
