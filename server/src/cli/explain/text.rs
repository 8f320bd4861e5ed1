//! Pools and decisions as text.

use serde_json::Value;

use crate::cli::{
    listing,
    output::{Table, cell, rows, short},
};

const DAY_MS: u64 = 86_400_000;

/// Pools, desired beside actual, what they cost, and what is wrong with them.
pub fn overview(scaling: &Value) -> String {
    let mut table = Table::new(&[
        "pool",
        "#desired",
        "#up",
        "#leaving",
        "#draining",
        "#least",
        "#most",
        "#$/h each",
        "provider",
    ]);
    for pool in rows(scaling, "/pools") {
        let columns = [
            "/device_type",
            "/desired",
            "/up",
            "/leaving",
            "/draining",
            "/least",
            "/most",
            "/price_per_hour_usd",
            "/provider",
        ];
        table.row(columns.map(|column| cell(pool, column)).to_vec());
    }
    let none = "no pools: there are no workers, and none are desired";
    let mut lines = vec![listing::or(&table, none)];
    let troubled = rows(scaling, "/pools").iter();
    let troubled = troubled.filter(|pool| pool.get("trouble").is_some());
    lines.extend(
        troubled.map(|pool| format!("{}: {}", cell(pool, "/device_type"), cell(pool, "/trouble"))),
    );
    lines.push(match scaling.pointer("/desired_token") {
        None | Some(Value::Null) => "no autoscaler has said yet what is desired".to_owned(),
        Some(_) => costs(scaling),
    });
    lines.join("\n")
}

fn costs(scaling: &Value) -> String {
    let actual = cell(scaling, "/cost_per_hour_usd/actual");
    match cell(scaling, "/cost_per_hour_usd/desired").as_str() {
        "-" => format!("all workers cost {actual} $/h"),
        desired => format!("all workers cost {actual} $/h, those that are desired {desired} $/h"),
    }
}

/// A decision: a line on what was done, and indented ones on why.
pub fn decision(decision: &Value, now_ms: u64) -> String {
    let to = cell(decision, "/to");
    let mut lines = vec![format!(
        "#{} {} {}: {} -> {to} {} ({})",
        cell(decision, "/number"),
        time(decision, now_ms),
        cell(decision, "/subject/name"),
        cell(decision, "/from"),
        if to == "1" { "worker" } else { "workers" },
        cell(decision, "/action"),
    )];
    lines.push(format!("    {}", cell(decision, "/reason")));
    lines.extend(rows(decision, "/inputs").iter().map(input));
    lines.extend(rows(decision, "/alternatives").iter().map(alternative));
    lines.join("\n")
}

/// `    for digits, latency 16 to 32 ms, accuracy 0.95: 850/s asked for, 1100/s planned for`.
fn input(input: &Value) -> String {
    let mut who = vec![cell(input, "/application")];
    if let Some(latency_ms) = input.get("latency_ms").and_then(Value::as_f64) {
        let (from, to) = (plain(latency_ms), plain(2.0 * latency_ms));
        who.push(format!("latency {from} to {to} ms"));
    }
    let number = |name: &str| input.get(name).and_then(Value::as_f64);
    let accuracy = number("min_accuracy").map(|it| format!("accuracy {}", plain(it)));
    let error = number("max_error").map(|it| format!("error {}", plain(it)));
    let agreement = number("min_agreement").map(|it| format!("agreement {}", plain(it)));
    who.extend(accuracy.into_iter().chain(error).chain(agreement));
    format!(
        "    for {}: {}/s asked for, {}/s planned for",
        who.join(", "),
        cell(input, "/offered_rps"),
        cell(input, "/planned_rps"),
    )
}

/// `    not 1 worker of gpu (3.83 $/h): 3 workers of cpu-8 cost less`.
fn alternative(alternative: &Value) -> String {
    let cost = alternative.get("cost_per_hour_usd").and_then(Value::as_f64);
    format!(
        "    not {}{}: {}",
        cell(alternative, "/what"),
        cost.map_or_else(String::new, |cost| format!(" ({} $/h)", short(cost))),
        cell(alternative, "/why_not"),
    )
}

/// All digits that a number has, and no more.
fn plain(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    rounded.to_string()
}

/// When it was made, UTC; with the date where that is more than a day ago.
fn time(decision: &Value, now_ms: u64) -> String {
    let Some(at_ms) = decision.get("at_ms").and_then(Value::as_u64) else {
        return "-".to_owned();
    };
    let seconds = at_ms % DAY_MS / 1000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let time = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    match now_ms.abs_diff(at_ms) < DAY_MS {
        true => time,
        false => format!("{} {time}", date(at_ms / DAY_MS)),
    }
}

/// The date so many days after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Whole cycles of the calendar first, so that any number of days takes few steps.
    const CYCLE_DAYS: u64 = 146_097;
    let (mut year, mut rest) = (1970 + 400 * (days / CYCLE_DAYS), days % CYCLE_DAYS);
    let length = |year| 365 + u64::from(is_leap(year));
    while rest >= length(year) {
        rest -= length(year);
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made() -> Value {
        json!({
            "number": 12, "at_ms": 64_991_000, "subject": {"kind": "pool", "name": "cpu-8"},
            "action": "add_workers", "from": 2, "to": 3, "reason": "2.4 workers are needed",
            "inputs": [
                {"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95,
                    "offered_rps": 850.0, "planned_rps": 1100.0},
                {"application": "prices", "max_error": 0.25, "offered_rps": 1.5, "planned_rps": 2},
            ],
            "alternatives": [
                {"what": "1 worker of gpu", "cost_per_hour_usd": 3.828, "why_not": "dearer"},
                {"what": "9 workers", "why_not": "8 at most"},
            ],
        })
    }

    #[test]
    fn a_decision_is_a_line_and_its_reasons() {
        let expected = "\
#12 18:03:11 cpu-8: 2 -> 3 workers (add_workers)
    2.4 workers are needed
    for digits, latency 16 to 32 ms, accuracy 0.95: 850/s asked for, 1100/s planned for
    for prices, error 0.25: 1.50/s asked for, 2/s planned for
    not 1 worker of gpu (3.83 $/h): dearer
    not 9 workers: 8 at most";
        assert_eq!(decision(&made(), 64_991_000 + DAY_MS - 1), expected);
        let later = decision(&made(), 64_991_000 + DAY_MS);
        assert!(
            later.starts_with("#12 1970-01-01 18:03:11 cpu-8"),
            "{later}"
        );
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn desired_stands_beside_actual() {
        let scaling = json!({
            "desired_token": 4,
            "pools": [
                {"device_type": "cpu-8", "desired": 3, "least": 1, "most": 8, "up": 1, "leaving": 1,
                    "draining": 1, "provider": "process", "price_per_hour_usd": 0.384},
                {"device_type": "gpu", "desired": null, "least": null, "most": null, "up": 0, "leaving": 0,
                    "draining": 0, "trouble": "`up` failed: raise the quota"},
            ],
            "cost_per_hour_usd": {"desired": 1.152, "actual": 0.768},
        });
        let expected = "\
pool   desired  up  leaving  draining  least  most  $/h each  provider
cpu-8        3   1        1         1      1     8     0.384  process
gpu          -   0        0         0      -     -         -  -
gpu: `up` failed: raise the quota
all workers cost 0.768 $/h, those that are desired 1.15 $/h";
        assert_eq!(overview(&scaling), expected);
        let nothing = json!({"desired_token": null, "pools": [],
            "cost_per_hour_usd": {"desired": null, "actual": 0.0}});
        let expected = "no pools: there are no workers, and none are desired\n\
                      no autoscaler has said yet what is desired";
        assert_eq!(overview(&nothing), expected);
    }
}
