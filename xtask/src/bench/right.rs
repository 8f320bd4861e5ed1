//! Whether answers are right. Wrong answers that public reports found elsewhere are tried here, and the cost of the
//! checks is measured.
//!
//! Each case is a kind of answer that is wrong although its status is 200, with the tests for it. The figure is the
//! number of cases of which a test fails.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::{
    Arguments, example, median,
    report::{Figure, Report},
    scheduler::collected,
};
use crate::{
    paths,
    provision::{self, tools},
    shell,
};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 2] = ["answers", "overhead"];

/// Queries of a counted run. A second run has twice as many; the difference between the runs does not include the
/// start.
const QUERIES: u32 = 20_000;

/// Measurements with and without checks, in turns.
const PAIRS: usize = 3;

/// The share of queries that are run again alone by default.
const SHARE: &str = "0.001";

/// A way in which an answer can be silently wrong, and the tests for it.
struct Case {
    name: &'static str,
    tests: &'static [&'static str],
}

/// The targets that have the tests. If several packages have a target of one name, all of them run.
const TARGETS: [&str; 7] = [
    "conformance",
    "dispatch",
    "http",
    "registration",
    "v1",
    "v2",
    "worker",
];

const CASES: [Case; 12] = [
    Case {
        name: "indices",
        tests: &[
            "faults::rows_of_which_nobody_knows_whose_they_are_are_run_again_one_by_one",
            "faults::rows_on_a_device_of_which_nobody_knows_whose_they_are_answer_nobody",
        ],
    },
    Case {
        name: "detections",
        tests: &["company::a_list_of_what_all_rows_have_is_not_divided_among_them"],
    },
    Case {
        name: "longest",
        tests: &["company::an_answer_as_long_as_the_longest_of_a_batch_is_seen"],
    },
    Case {
        name: "fourth-row",
        tests: &["company::rows_are_compared_at_the_largest_batch"],
    },
    Case {
        name: "whole-numbers",
        tests: &[
            "company::whole_numbers_of_a_batch_beside_floats_of_rows_are_seen",
            "company::a_place_in_the_batch_among_large_numbers_is_seen",
        ],
    },
    Case {
        name: "outlier",
        tests: &["company::scales_of_a_whole_batch_take_no_strangers_in"],
    },
    Case {
        name: "unforeseen",
        tests: &["agreement::a_variant_whose_queries_change_each_other_leaves_batches"],
    },
    Case {
        name: "out-of-range",
        tests: &["numbers_beyond_a_table_are_refused"],
    },
    Case {
        name: "bad-query-code",
        tests: &["faults::a_bad_query_is_refused_alike_alone_and_in_company"],
    },
    Case {
        name: "missing-values",
        tests: &["queries::missing_values_and_infinities_go_in_and_come_out"],
    },
    Case {
        name: "statistics",
        tests: &["statistics_count_rows_and_runs_whatever_a_query_came_by"],
    },
    Case {
        name: "failed-model",
        tests: &["models::files_that_are_no_models_fail_with_their_code"],
    },
];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("answers") {
        answers(report)?;
    }
    if arguments.wants("overhead") {
        overhead(report)?;
    }
    Ok(())
}

fn answers(report: &mut Report) -> Result<()> {
    provision::runtime()?;
    let told = told()?;
    let mut wrong = 0;
    for case in &CASES {
        let mut is_right = true;
        for test in case.tests {
            is_right &= passed(&told, test)?;
        }
        let count = u32::from(!is_right);
        wrong += count;
        let figure = figure("silently_wrong_answers_of_case", count.into(), "count");
        report.add(figure.of(case.name));
    }
    report.add(figure("cases", CASES.len() as f64, "count"));
    report.add(Figure {
        goal: Some("0"),
        ..figure("silently_wrong_answers", wrong.into(), "count")
    });
    Ok(())
}

/// Runs the tests of all cases and returns their output.
fn told() -> Result<String> {
    let mut command = shell::command("cargo");
    command.args(["test", "--no-fail-fast", "--workspace"]);
    command.args(TARGETS.iter().flat_map(|target| ["--test", target]));
    // The tests run one after the other, because some measure what a machine does under load.
    command.args(["--", "--exact", "--format=pretty", "--test-threads=1"]);
    command.args(CASES.iter().flat_map(|case| case.tests));
    eprintln!("$ {}", shell::show(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a test passed in every target that has it. A test that no longer exists is an error, because its case would
/// not be tested.
fn passed(told: &str, test: &str) -> Result<bool> {
    let start = format!("test {test} ... ");
    let ends: Vec<&str> = told
        .lines()
        .filter_map(|it| it.strip_prefix(&start))
        .collect();
    ensure!(!ends.is_empty(), "nothing is said of the test `{test}`");
    Ok(ends.iter().all(|end| *end == "ok"))
}

/// Compares the instructions that callgrind counts with and without the sampling of batches, for the same number of
/// queries.
fn overhead(report: &mut Report) -> Result<()> {
    if let Err(error) = tools::valgrind() {
        shell::say(format!("instructions of samples: skipped, {error:#}"));
        return Ok(());
    }
    let program = example("sextant-dispatcher", "company")?;
    let folder = paths::target("bench");
    std::fs::create_dir_all(&folder)?;
    let instructions = |queries: u32, share: &str| {
        let counted = folder.join(format!("callgrind-company-{queries}-{share}.out"));
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", counted.display()))
            .arg(&program)
            .args([&queries.to_string(), share]);
        shell::run(&mut command)?;
        collected(&counted)
    };
    let each = |share: &str| -> Result<f64> {
        let difference = instructions(2 * QUERIES, share)? - instructions(QUERIES, share)?;
        Ok(difference / f64::from(QUERIES))
    };
    // Chance decides which queries share a batch, so the counts differ from run to run.
    let pairs = (0..PAIRS).map(|_| Ok((each("0")?, each(SHARE)?)));
    let pairs: Vec<(f64, f64)> = pairs.collect::<Result<_>>()?;
    let without = median(pairs.iter().map(|pair| pair.0).collect());
    report.add(figure("query_instructions", without, "count"));
    let percent = pairs.iter().map(|(off, on)| (on / off - 1.0) * 100.0);
    report.add(figure(
        "batch_check_overhead_instructions_percent",
        median(percent.collect()),
        "percent",
    ));
    Ok(())
}

fn figure(metric: &str, value: f64, unit: &'static str) -> Figure {
    Figure::new("right", metric, value, unit, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tests_are_read_wherever_they_are() {
        let told =
            "test a::b ... ok\ntest c ... ok\ntest c ... FAILED\ntest result: ok. 1 passed\n";
        assert!(passed(told, "a::b").expect("it is there"));
        assert!(!passed(told, "c").expect("it is there"));
        assert!(passed(told, "b").is_err());
    }
}
