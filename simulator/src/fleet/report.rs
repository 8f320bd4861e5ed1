//! The report of a run.

use std::{cmp::Ordering, collections::VecDeque};

use sextant_types::index::{IndexVec, VariantIx};

use super::{Setting, need::need};

/// The length of time in which reversals are counted, s.
const TURNS_S: f64 = 600.0;

/// A run's figures. Queries that came in the measured time count, whenever they ended. Costs are those of that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// By class of queries.
    pub classes: Vec<QueryCounts>,
    /// By type: device hours that are paid for.
    pub device_hours: Vec<f64>,
    /// The cost of these, US dollars.
    pub cost_usd: f64,
    /// Length of the measured time, s.
    pub seconds: f64,
    /// Changes of the number of devices that start, are up and stay: the time, s from the beginning of the run, the
    /// type, and the new number.
    pub counts: Vec<(f64, usize, u32)>,
    /// When a variant on a device became interfered, s from the beginning of the run, with the type of the device and
    /// the variant.
    pub interfered: Vec<(f64, usize, VariantIx)>,
    /// Queries in the run, including those before the measured time.
    pub simulated: u64,
    /// By variant: the number of answers.
    pub answers: IndexVec<VariantIx, u64>,
    /// Loads that ended well, in the whole run.
    pub loads: u64,
}

/// The outcomes of queries.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueryCounts {
    /// Queries that came.
    pub sent: u64,
    /// Answered in time.
    pub in_time: u64,
    /// Answered too late.
    pub late: u64,
    /// Refused.
    pub refused: u64,
    /// Sum over the answers of the accuracy as a share of the application's best, percent.
    pub accuracy_sum_percent: f64,
}

// === impl Report ===

impl Report {
    /// All classes together.
    pub fn total(&self) -> QueryCounts {
        let mut total = QueryCounts::default();
        for class in &self.classes {
            total.sent += class.sent;
            total.in_time += class.in_time;
            total.late += class.late;
            total.refused += class.refused;
            total.accuracy_sum_percent += class.accuracy_sum_percent;
        }
        total
    }

    /// The most reversals of the number of devices of any type within ten minutes: how many changes in such a time go
    /// against the change before. The devices that are present when the run begins are not a change.
    pub fn reversals_in_ten_minutes(&self) -> u32 {
        let types = self.counts.iter().map(|(_, kind, _)| kind + 1).max();
        let turns = (0..types.unwrap_or(0)).map(|kind| self.turns(kind));
        turns.max().unwrap_or(0)
    }

    fn turns(&self, kind: usize) -> u32 {
        let of = self.counts.iter().filter(|(_, of, _)| *of == kind);
        let mut last = None::<u32>;
        let (mut within, mut most) = (VecDeque::<(f64, Ordering)>::new(), 0);
        for (at_s, _, count) in of {
            let step = count.cmp(&last.unwrap_or(*count));
            last = Some(*count);
            if step == Ordering::Equal {
                continue;
            }
            within.push_back((*at_s, step));
            while within
                .front()
                .is_some_and(|(first, _)| at_s - first >= TURNS_S)
            {
                within.pop_front();
            }
            let pairs = within.iter().zip(within.iter().skip(1));
            let turns = pairs.filter(|((_, one), (_, next))| one != next).count();
            most = most.max(turns as u32);
        }
        most
    }

    /// Devices of a type at a time of the run, s.
    pub fn devices_at(&self, kind: usize, at_s: f64) -> u32 {
        let mut latest = self.counts.iter().rev();
        let known = latest.find(|(at, of, _)| *of == kind && *at <= at_s);
        known.map_or(0, |(_, _, count)| *count)
    }

    /// When a variant was first interfered, and when there were first more devices of a type than at the beginning of
    /// the measured time, s from that beginning.
    fn firsts(&self, setting: &Setting) -> Vec<(String, f64)> {
        let from = setting.warm_up_s;
        let later = |at_s: &f64| *at_s > from;
        let mut interfered = self.interfered.iter().map(|(at_s, ..)| *at_s);
        let more = self.counts.iter().filter(|(_, kind, count)| {
            let before = self.devices_at(*kind, from);
            *count > before
        });
        let mut more = more.map(|(at_s, ..)| *at_s);
        let found = [
            ("first_interfered_s", interfered.find(later)),
            ("first_more_devices_s", more.find(later)),
        ];
        let found = found.into_iter();
        found
            .filter_map(|(name, at_s)| Some((name.to_owned(), at_s? - from)))
            .collect()
    }

    /// Names and values as reports have them, the unit last.
    pub(super) fn figures(&self, setting: &Setting) -> Vec<(String, f64)> {
        let total = self.total();
        let sent = total.sent.max(1) as f64;
        let answered = total.in_time + total.late;
        let hours: f64 = self.device_hours.iter().sum();
        let mut figures = vec![
            (
                "violation_percent",
                100.0 * (total.late + total.refused) as f64 / sent,
            ),
            (
                "accuracy_percent",
                total.accuracy_sum_percent / answered.max(1) as f64,
            ),
            ("device_hours", hours),
            ("cost_usd", self.cost_usd),
            (
                "cost_per_hour_usd",
                self.cost_usd / self.seconds.max(1e-9) * 3600.0,
            ),
            ("throughput_rps", answered as f64 / self.seconds.max(1e-9)),
            ("sent_count", total.sent as f64),
            ("answered_in_time_count", total.in_time as f64),
            ("late_count", total.late as f64),
            ("refused_count", total.refused as f64),
            (
                "reversals_in_ten_minutes_count",
                f64::from(self.reversals_in_ten_minutes()),
            ),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Vec<_>>();
        for (of, hours) in setting.types.iter().zip(&self.device_hours) {
            figures.push((format!("{}_device_hours", of.name), *hours));
        }
        figures.extend(self.firsts(setting));
        if let Some(need) = need(setting, self) {
            figures.push(("needed_cost_usd".to_owned(), need.cost_usd));
            let ratio = self.cost_usd / need.cost_usd;
            figures.push(("cost_over_need_ratio".to_owned(), ratio));
            figures.push(("below_need_percent".to_owned(), need.below_percent));
        }
        figures
    }
}

impl QueryCounts {
    /// The number of queries that have ended, in any way.
    pub fn ended(&self) -> u64 {
        self.in_time + self.late + self.refused
    }
}
