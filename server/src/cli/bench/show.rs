//! The display of a load: a line while it runs, and the figures at its end.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::IsTerminal,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sextant_bench_client::{Percentiles, Progress, Summary};

use super::{Error, Output};
use crate::cli::output::{Table, short};

/// Time between two looks at a load.
const PERIOD: Duration = Duration::from_millis(500);

/// A generator that is later than this with one query in a hundred measures itself as well, ms.
const LATE_MS: f64 = 1.0;

/// The line of a load that runs; on a terminal only.
pub struct Live {
    progress: Arc<Progress>,
    length: Duration,
    bar: ProgressBar,
}

impl Live {
    /// Of a load that takes so long.
    pub fn new(progress: Arc<Progress>, length: Duration) -> Self {
        let style = ProgressStyle::with_template("[{bar:24}] {msg}");
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(length.as_millis() as u64),
            false => ProgressBar::hidden(),
        };
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            progress,
            length,
            bar: bar.with_style(style),
        }
    }

    /// Shows it until it ends. Ctrl-C ends it early: what was measured is told.
    pub async fn until<T>(&self, load: impl Future<Output = T>) -> T {
        let mut load = std::pin::pin!(load);
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(PERIOD);
        let mut before = (begun, [0; 3]);
        loop {
            tokio::select! {
                ended = &mut load => {
                    self.bar.finish_and_clear();
                    return ended;
                }
                _ = ticks.tick() => before = self.show(begun, before),
                _ = tokio::signal::ctrl_c() => self.progress.stop(),
            }
        }
    }

    /// Shows what happened since the last look, and returns this one.
    fn show(&self, begun: Instant, (last, counts): (Instant, [u64; 3])) -> (Instant, [u64; 3]) {
        let now = Instant::now();
        let current = [
            self.progress.sent(),
            self.progress.answered(),
            self.progress.unanswered(),
        ];
        let seconds = (now - last).as_secs_f64().max(1e-3);
        let [sent, answered, refused] = [0, 1, 2].map(|at| {
            let more = current[at] - counts[at];
            format!("{:.0}", more as f64 / seconds)
        });
        let elapsed = now - begun;
        self.bar.set_position(elapsed.as_millis() as u64);
        let (elapsed, length) = (elapsed.as_secs_f64(), self.length.as_secs_f64());
        let under_way = current[0] - current[1] - current[2];
        self.bar.set_message(format!(
            "{elapsed:.0}/{length:.0} s  sent {sent}/s  answered {answered}/s  refused {refused}/s  under way {under_way}"
        ));
        (now, current)
    }
}

/// Prints the figures: an object on each line, or tables. The last is of all applications together.
pub fn print(summaries: &[Summary], output: Output) -> Result<(), Error> {
    if output.json {
        let lines = summaries.iter().map(|summary| {
            serde_json::to_string(summary).map_err(|error| Error::Answer {
                reason: error.to_string(),
            })
        });
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        return output.text(&lines.join("\n"));
    }
    output.text(&text(summaries))
}

fn text(summaries: &[Summary]) -> String {
    // With one application, the sum of all adds nothing.
    let shown = match summaries {
        [one, _all] => std::slice::from_ref(one),
        several => several,
    };
    let mut parts = vec![rates(shown).render(), String::new(), times(shown).render()];
    parts.push(String::new());
    let apart = shown.iter().filter(|summary| summary.application.is_some());
    for summary in apart {
        let name = name(summary);
        for (what, counts) in [
            ("variants", counts(&summary.variants)),
            ("refused", counts(&summary.refused)),
            ("broken", counts(&summary.broken)),
        ] {
            if !counts.is_empty() {
                parts.push(format!("{name}: {what} {counts}"));
            }
        }
    }
    let lag = summaries.last().and_then(|all| all.lag_ms.as_ref());
    if let Some(lag) = lag.filter(|lag| lag.p99 > LATE_MS) {
        parts.push(format!(
            "note: one query in a hundred was taken up {} ms late or later: the generator had too little processor, \
             and latencies are longer than the service's",
            short(lag.p99)
        ));
    }
    parts.join("\n")
}

fn rates(summaries: &[Summary]) -> Table {
    let mut table = Table::new(&[
        "application",
        "#sent/s",
        "#answered/s",
        "#sent",
        "#answered",
        "#refused",
        "#broken",
        "#target ms",
        "#in time",
        "#targets met",
    ]);
    for summary in summaries {
        table.row(vec![
            name(summary),
            short(summary.sent_per_s),
            short(summary.answered_per_s),
            summary.sent.to_string(),
            summary.answered.to_string(),
            summary.refused.values().sum::<u64>().to_string(),
            summary.broken.values().sum::<u64>().to_string(),
            summary.target_ms.map_or_else(|| "-".to_owned(), short),
            percent(summary.in_time_share),
            percent(summary.targets_met_share),
        ]);
    }
    table
}

fn times(summaries: &[Summary]) -> Table {
    let headings = [
        "latency, ms",
        "#mean",
        "#p50",
        "#p90",
        "#p99",
        "#p99.9",
        "#max",
    ];
    let mut table = Table::new(&headings);
    for summary in summaries {
        for (what, times) in [
            ("", &summary.latency_ms),
            (" from sending", &summary.from_sending_ms),
        ] {
            let cells = times
                .as_ref()
                .map_or_else(|| vec!["-".to_owned(); 6], cells);
            table.row([vec![format!("{}{what}", name(summary))], cells].concat());
        }
    }
    table
}

fn cells(times: &Percentiles) -> Vec<String> {
    let Percentiles {
        mean,
        p50,
        p90,
        p99,
        p99_9,
        max,
    } = *times;
    [mean, p50, p90, p99, p99_9, max].map(short).to_vec()
}

fn name(summary: &Summary) -> String {
    let name = summary.application.as_deref();
    name.unwrap_or("all").to_owned()
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", 100.0 * share))
}

/// `a 12, b 3`, the most frequent first.
fn counts<K: Display>(counts: &BTreeMap<K, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let counts = counts
        .into_iter()
        .map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}
