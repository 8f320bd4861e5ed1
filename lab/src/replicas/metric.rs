//! Outcomes of requests, minute by minute.

use super::Nanos;

/// Latency of a request that was refused, ms.
const FAILED: f64 = f64::MAX;

/// Requests of one job that came in one minute.
#[derive(Debug, Clone, Default)]
struct Minute {
    in_time: u32,
    failed: u32,
    /// Latencies of requests that did not fail, ms.
    latencies: Vec<f32>,
}

/// The outcomes of one job's requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    minutes: Vec<Minute>,
}

/// The counts of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobReport {
    /// Requests.
    pub requests: u64,
    /// Refused requests.
    pub failed: u64,
    /// Refused and late requests.
    pub violations: u64,
}

/// The outcomes of all requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Counts of each job.
    pub jobs: Vec<JobReport>,
    /// Late and refused requests, percent: the mean over minutes of the mean over the jobs that had requests in the
    /// minute.
    pub violation_percent: f64,
    /// Number of jobs minus the sum of their utilities, mean over minutes. The utility of a job in a minute is the
    /// target divided by the 99th percentile of its latencies, at most 1.
    pub lost_utility: f64,
    /// Mean over time of the number of serving replicas.
    pub replicas_mean: f64,
    /// Changes of the number of replicas: time, s, job, new number.
    pub changes: Vec<(f64, usize, u32)>,
}

impl Record {
    /// A request that came in a minute has ended after `latency_ms` ms.
    pub(super) fn ended(&mut self, arrived: Nanos, latency_ms: f64, failed: bool, target_ms: f64) {
        let at = (arrived / (60 * super::SECOND)) as usize;
        if self.minutes.len() <= at {
            self.minutes.resize_with(at + 1, Minute::default);
        }
        let minute = &mut self.minutes[at];
        match failed {
            true => minute.failed += 1,
            false => minute.latencies.push(latency_ms as f32),
        }
        minute.in_time += u32::from(!failed && latency_ms <= target_ms);
    }

    fn report(&self) -> JobReport {
        let failed: u64 = self.minutes.iter().map(|of| u64::from(of.failed)).sum();
        let served: u64 = self
            .minutes
            .iter()
            .map(|of| of.latencies.len() as u64)
            .sum();
        let in_time: u64 = self.minutes.iter().map(|of| u64::from(of.in_time)).sum();
        JobReport {
            requests: served + failed,
            failed,
            violations: served + failed - in_time,
        }
    }
}

impl Minute {
    fn requests(&self) -> u32 {
        self.failed + self.latencies.len() as u32
    }

    /// The target divided by the 99th percentile, with linear interpolation between ranks.
    fn utility(&mut self, target_ms: f64) -> f64 {
        self.latencies.sort_by(f32::total_cmp);
        let count = self.requests();
        if count == 0 {
            return 0.0;
        }
        let at = |rank: usize| self.latencies.get(rank).map_or(FAILED, |of| f64::from(*of));
        let position = 0.99 * f64::from(count - 1);
        let rank = position.floor();
        let (low, high) = (at(rank as usize), at(position.ceil() as usize));
        let percentile = low + (high - low) * (position - rank);
        (target_ms / percentile.max(f64::MIN_POSITIVE)).min(1.0)
    }
}

/// The report of a run over `minutes` minutes.
pub(super) fn report(
    mut records: Vec<Record>,
    minutes: usize,
    target_ms: f64,
    (replicas_mean, changes): (f64, Vec<(f64, usize, u32)>),
) -> Report {
    // A request that begins in the last minute may come a little later.
    let bins = minutes + 1;
    let (mut satisfied, mut counted, mut utility) = (0.0, 0.0, 0.0);
    for bin in 0..bins {
        let (mut share, mut jobs) = (0.0, 0.0);
        for record in &mut records {
            let Some(minute) = record.minutes.get_mut(bin) else {
                continue;
            };
            if minute.requests() == 0 {
                continue;
            }
            share += f64::from(minute.in_time) / f64::from(minute.requests());
            jobs += 1.0;
            utility += minute.utility(target_ms);
        }
        if jobs > 0.0 {
            satisfied += share / jobs;
            counted += 1.0;
        }
    }
    Report {
        violation_percent: 100.0 * (1.0 - satisfied / f64::max(counted, 1.0)),
        lost_utility: records.len() as f64 - utility / bins as f64,
        jobs: records.iter().map(Record::report).collect(),
        replicas_mean,
        changes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One minute of a job with latencies (count, ms) and refused requests.
    fn one(latencies: &[(usize, f64)], failed: usize) -> Report {
        let mut record = Record::default();
        for (count, ms) in latencies {
            (0..*count).for_each(|_| record.ended(0, *ms, false, 720.0));
        }
        (0..failed).for_each(|_| record.ended(0, 5.0, true, 720.0));
        report(vec![record], 0, 720.0, (1.0, Vec::new()))
    }

    fn close(report: &Report, satisfied: f64, utility: f64) {
        assert!(
            (report.violation_percent - 100.0 * (1.0 - satisfied)).abs() < 1e-9,
            "{report:?}"
        );
        assert!(
            (1.0 - report.lost_utility - utility).abs() < 1e-6,
            "{report:?}"
        );
    }

    #[test]
    fn late_and_refused_requests_are_violations_and_a_percentile_of_refused_ones_is_worth_nothing()
    {
        close(&one(&[(197, 300.0), (1, 900.0)], 2), 0.985, 0.0);
        close(&one(&[(98, 200.0), (2, 1440.0)], 0), 0.98, 0.5);
        close(&one(&[(199, 200.0)], 1), 0.995, 1.0);
        close(&one(&[(99, 200.0)], 1), 0.99, 0.0);
        close(&one(&[(1, 720.0)], 0), 1.0, 1.0);
    }
}
