//! How many devices recorded requests need, for people.

use sextant_types::number::short;

use super::{Sheet, made_by};
use crate::what_if::{Answer, Outcome, PolicyAnswer, Question, SERVED};

/// The answer to a question: the least numbers of devices, and the result of each number that was tried.
pub fn page(question: &Question, answer: &Answer) -> String {
    let (requests, seconds) = question.size();
    let kinds: Vec<String> = question
        .kinds()
        .iter()
        .map(|kind| format!("{} {}", kind.count, kind.name))
        .collect();
    let mut sheet = Sheet::new(&[
        "policy",
        "devices",
        "served %",
        "worst model %",
        "worst model",
        "goodput r/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "busy %",
    ]);
    for of in &answer.policies {
        for outcome in &of.outcomes {
            sheet.row(row(of, outcome));
        }
    }
    format!(
        "what-if: {requests} requests in {} s, devices: {} (simulated)\n{}\n\n{}\n\n{}",
        short(seconds),
        kinds.join(", "),
        made_by(),
        least(answer),
        sheet.render()
    )
}

fn row(of: &PolicyAnswer, outcome: &Outcome) -> Vec<String> {
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    vec![
        of.policy.to_string(),
        outcome.devices.to_string(),
        percent(outcome.served_share),
        percent(outcome.worst.1),
        match outcome.worst.1 < 1.0 {
            true => outcome.worst.0.clone(),
            false => "-".to_owned(),
        },
        short(outcome.goodput_rps),
        short(outcome.p50_ms),
        short(outcome.p99_ms),
        short(outcome.max_ms),
        percent(outcome.busy_share),
    ]
}

/// How many devices each policy needs.
fn least(answer: &Answer) -> String {
    let mut sheet = Sheet::new(&["policy", "devices needed"]);
    for of in &answer.policies {
        let needed = match of.least_devices {
            Some(devices) => devices.to_string(),
            None => format!("more than {}", answer.most_devices),
        };
        sheet.row(vec![of.policy.to_string(), needed]);
    }
    format!(
        "least number of devices with which {:.0} % of each model's requests are answered in \
         time:\n\n{}",
        100.0 * SERVED,
        sheet.render()
    )
}
