//! Figures of a run on devices whose memory cannot hold all models.

use super::{Record, label::Label, measure::Run, part::Part};
use crate::paged::{Class, Interval, PagedWorld, Report};
use sextant_simulator::Error;

/// Failures per request in Clockwork's run of six hours: 58 of 208 million.
const PUBLISHED_FAILURES: f64 = 58.0 / 208e6;

/// The layout of a report.
#[derive(Debug, Clone, Copy)]
struct ReportStyle<'a> {
    label: Label<'a>,
    cell: &'a str,
    /// Names of the classes, by position.
    names: &'a [&'a str],
    /// Number of intervals in a line; 0 for no lines.
    report_every: usize,
    /// Figures of classes do not count before this time, s.
    steady_from_s: f64,
}

// === impl Run ===

impl Run<'_> {
    /// One run on devices with limited memory.
    pub(super) fn timeline(&mut self) -> Result<(), Error> {
        let Some(memory) = &self.cell.memory else {
            return Ok(());
        };
        self.runs += 1;
        let paging = super::memory::paging(self.cell, memory, self.prepared, self.policy)?;
        let setting = self.prepared.setting(self.policy, self.seed);
        let mut source = self.prepared.source(self.cell.rate_rps, self.seed)?;
        let world = PagedWorld::new(&setting, &paging)?;
        let report = world.run(source.as_mut(), self.prepared.span());
        let names: Vec<&str> = self.prepared.groups.iter().map(Part::name).collect();
        let telling = ReportStyle {
            label: self.label,
            cell: &self.cell.name,
            names: &names,
            report_every: memory.report_every as usize,
            steady_from_s: memory.steady_from_s,
        };
        self.records.extend(telling.records(&report));
        Ok(())
    }
}

// === impl ReportStyle ===

impl ReportStyle<'_> {
    /// All figures of a report.
    fn records(&self, report: &Report) -> Vec<Record> {
        let mut records = Vec::new();
        for (name, interval) in self.lines(report) {
            let cell = format!("{}/{name}", self.cell);
            let label = Label {
                cell: Some(&cell),
                ..self.label
            };
            records.extend(self.of_interval(&label, &interval, report.devices));
            records.extend(self.of_classes(&label, &interval, &interval));
        }
        let total = report.total();
        records.extend(self.of_interval(&self.label, &total, report.devices));
        records.extend(self.of_classes(&self.label, &total, &self.steady(report)));
        records.extend(self.of_run(report, &total));
        records
    }

    /// Intervals of the report with their names, the minutes from and to.
    fn lines(&self, report: &Report) -> Vec<(String, Interval)> {
        if self.report_every == 0 {
            return Vec::new();
        }
        let mut from_s = 0.0;
        let mut named = Vec::new();
        for interval in report.grouped(self.report_every) {
            let until_s = from_s + interval.seconds;
            let minutes = |seconds: f64| format!("{:05.1}", seconds / 60.0);
            let name = format!("{}-{}min", minutes(from_s), minutes(until_s));
            named.push((name, interval));
            from_s = until_s;
        }
        named
    }

    /// The interval that the figures of classes cover.
    fn steady(&self, report: &Report) -> Interval {
        let length = report.intervals.first().map_or(1.0, |first| first.seconds);
        let skipped = (self.steady_from_s / length).round() as usize;
        let rest = report.intervals.get(skipped..).unwrap_or_default();
        let rest = Report {
            intervals: rest.to_vec(),
            ..Report::default()
        };
        rest.total()
    }

    fn of_interval(&self, label: &Label<'_>, span: &Interval, devices: u32) -> Vec<Record> {
        let all = span.class_total();
        let minutes = span.seconds / 60.0;
        let sent = all.sent.max(1) as f64;
        let rate = |count: u64| count as f64 / span.seconds;
        vec![
            label.record("offered_rps", rate(all.sent)),
            label.record("good_rps", rate(all.good)),
            label.record("satisfaction_share", all.good as f64 / sent),
            label.record("success_latency_max_ms", ms(all.latency_max as f64)),
            label.record("success_latency_mean_ms", ms(all.latency_mean())),
            label.record("late_count", all.late as f64),
            label.record("failed_count", all.failures() as f64),
            label.record("cold_request_share", all.cold as f64 / sent),
            label.record("cold_rps", rate(all.cold)),
            label.record("cold_models_count", span.cold_models),
            label.record(
                "cold_good_share",
                all.cold_good as f64 / all.cold.max(1) as f64,
            ),
            label.record("loads_per_minute_count", span.loads as f64 / minutes),
            label.record("pcie_busy_share", span.load_busy_share(devices)),
            label.record("exec_busy_share", span.exec_busy_share(devices)),
            label.record(
                "batch_mean_rows",
                span.rows as f64 / span.batches.max(1) as f64,
            ),
        ]
    }

    /// `all` gives the counts, `steady` the rates and latencies.
    fn of_classes(&self, label: &Label<'_>, all: &Interval, steady: &Interval) -> Vec<Record> {
        let mut records = Vec::new();
        if self.names.len() < 2 {
            return records;
        }
        let none = Class::default();
        for (at, name) in self.names.iter().enumerate() {
            let (all, then) = (all.classes.get(at), steady.classes.get(at));
            let (all, then) = (all.unwrap_or(&none), then.unwrap_or(&none));
            let mut push = |metric: &str, value: f64| {
                records.push(label.record(format!("{name}_{metric}"), value));
            };
            push("cold_starts", all.cold as f64);
            push("latency_max_ms", ms(all.latency_max as f64));
            push("offered_rps", then.sent as f64 / steady.seconds);
            push("throughput_rps", then.good as f64 / steady.seconds);
            push("latency_mean_ms", ms(then.latency_mean()));
        }
        records
    }

    /// Figures that exist only for the whole run.
    fn of_run(&self, report: &Report, total: &Interval) -> Vec<Record> {
        let label = &self.label;
        let all = total.class_total();
        let quantile = |share| ms(report.latencies.quantile(share) as f64);
        let error = |errors: &sextant_simulator::Histogram| ms(errors.quantile(0.99) as f64);
        let mut records = vec![
            label.record("requests_count", report.simulated as f64),
            label.record(
                "published_failures_count",
                PUBLISHED_FAILURES * all.sent as f64,
            ),
            label.record("p50_ms", quantile(0.5)),
            label.record("p99_ms", quantile(0.99)),
            label.record("infer_over_p99_ms", error(&report.infer.over)),
            label.record("infer_under_p99_ms", error(&report.infer.under)),
            label.record("load_over_p99_ms", error(&report.load.over)),
            label.record("load_under_p99_ms", error(&report.load.under)),
        ];
        let missed = all.missed.iter();
        records.extend(missed.map(|(reason, count)| {
            label.record(format!("missed_{}_count", reason.name()), *count as f64)
        }));
        let loads = total.failed_loads.iter();
        records.extend(loads.map(|(failure, count)| {
            let name = crate::paged::Reason::Failed(*failure).name();
            label.record(format!("load_{name}_count"), *count as f64)
        }));
        records
    }
}

fn ms(nanos: f64) -> f64 {
    nanos / 1e6
}
