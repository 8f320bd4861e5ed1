//! Whether answers are right: what public reports found wrong elsewhere, tried here, and what watching for it costs.
//!
//! Each case is a kind of answer that is wrong with status 200, and the tests that ask for it. What is counted is the cases
//! of which a test fails.

use std::process::Command;

use anyhow::{Context, Result, ensure};

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

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 2] = ["answers", "overhead"];

/// Queries of a counted run. Twice as many are run as well: the difference has no start in it.
const QUERIES: u32 = 20_000;

/// Measurements with and without, in turns.
const PAIRS: usize = 3;

/// The share of queries that are run once more alone where nobody configures another.
const SHARE: &str = "0.001";

/// A way in which an answer can be wrong without a word.
struct Case {
    name: &'static str,
    tests: &'static [Test],
}

/// A test by its package, the target that has it, and its name there.
struct Test(&'static str, Target, &'static str);

#[derive(Clone, Copy)]
enum Target {
    Library,
    Integration(&'static str),
}

const REGISTRATION: Target = Target::Integration("registration");
const WORKER: Target = Target::Integration("worker");
const CONFORMANCE: Target = Target::Integration("conformance");

const CASES: [Case; 12] = [
    Case {
        name: "indices",
        tests: &[
            Test(
                "sextant-worker",
                WORKER,
                "faults::rows_of_which_nobody_knows_whose_they_are_are_run_again_one_by_one",
            ),
            Test(
                "sextant-worker",
                WORKER,
                "faults::rows_on_a_device_of_which_nobody_knows_whose_they_are_answer_nobody",
            ),
        ],
    },
    Case {
        name: "detections",
        tests: &[Test(
            "sextant-variant-gen",
            REGISTRATION,
            "company::a_list_of_what_all_rows_have_is_not_divided_among_them",
        )],
    },
    Case {
        name: "longest",
        tests: &[Test(
            "sextant-variant-gen",
            REGISTRATION,
            "company::an_answer_as_long_as_the_longest_of_a_batch_is_seen",
        )],
    },
    Case {
        name: "fourth-row",
        tests: &[Test(
            "sextant-variant-gen",
            REGISTRATION,
            "company::rows_are_compared_at_the_largest_batch",
        )],
    },
    Case {
        name: "whole-numbers",
        tests: &[
            Test(
                "sextant-variant-gen",
                REGISTRATION,
                "company::whole_numbers_of_a_batch_beside_floats_of_rows_are_seen",
            ),
            Test(
                "sextant-variant-gen",
                REGISTRATION,
                "company::a_place_in_the_batch_among_large_numbers_is_seen",
            ),
        ],
    },
    Case {
        name: "outlier",
        tests: &[Test(
            "sextant-variant-gen",
            REGISTRATION,
            "company::scales_of_a_whole_batch_take_no_strangers_in",
        )],
    },
    Case {
        name: "unforeseen",
        tests: &[Test(
            "sextant-dispatcher",
            Target::Integration("dispatch"),
            "agreement::a_variant_whose_queries_change_each_other_leaves_batches",
        )],
    },
    Case {
        name: "out-of-range",
        tests: &[
            Test(
                "sextant-engine-ort",
                CONFORMANCE,
                "numbers_beyond_a_table_are_refused",
            ),
            Test(
                "sextant-engine-openvino",
                CONFORMANCE,
                "numbers_beyond_a_table_are_refused",
            ),
            Test(
                "sextant-engine-rten",
                CONFORMANCE,
                "numbers_beyond_a_table_are_refused",
            ),
        ],
    },
    Case {
        name: "bad-query-code",
        tests: &[Test(
            "sextant-worker",
            WORKER,
            "faults::a_bad_query_is_refused_alike_alone_and_in_company",
        )],
    },
    Case {
        name: "missing-values",
        tests: &[
            Test(
                "sextant-api",
                Target::Library,
                "codec::elements::tests::missing_values_and_infinities_of_floats_are_read",
            ),
            Test(
                "sextant-api",
                Target::Library,
                "codec::write::tests::a_missing_value_is_null_and_infinities_say_which",
            ),
        ],
    },
    Case {
        name: "statistics",
        tests: &[Test(
            "sextant-tests",
            Target::Integration("v2"),
            "statistics_count_rows_and_runs_whatever_a_query_came_by",
        )],
    },
    Case {
        name: "failed-model",
        tests: &[Test(
            "sextant-tests",
            Target::Integration("v1"),
            "models::files_that_are_no_models_fail_with_their_code",
        )],
    },
];

/// Measures everything that is asked for.
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
    let mut wrong = 0;
    for case in &CASES {
        let mut is_right = true;
        for test in case.tests {
            is_right &= test.passes()?;
        }
        wrong += u32::from(!is_right);
        let figure = figure(
            "silently_wrong_answers_of_case",
            u32::from(!is_right).into(),
            "count",
        );
        report.add(figure.of(case.name));
    }
    report.add(figure("cases", CASES.len() as f64, "count"));
    report.add(Figure {
        goal: Some("0"),
        ..figure("silently_wrong_answers", wrong.into(), "count")
    });
    Ok(())
}

impl Test {
    /// Runs it. One that is no longer there is an error: nothing would tell of its case any more.
    fn passes(&self) -> Result<bool> {
        let Self(package, target, name) = self;
        let mut command = shell::command("cargo");
        command.args(["test", "--quiet", "--package", package]);
        match target {
            Target::Library => command.arg("--lib"),
            Target::Integration(target) => command.args(["--test", target]),
        };
        command.args(["--", "--exact", name]);
        eprintln!("$ {}", shell::show(&command));
        let output = command.output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        let (passed, failed) = counted(&told).with_context(|| {
            let why = String::from_utf8_lossy(&output.stderr);
            format!("`{package}` says nothing of its tests:\n{why}")
        })?;
        ensure!(passed + failed == 1, "`{package}` has no test `{name}`");
        Ok(failed == 0)
    }
}

/// How many tests passed and failed.
fn counted(told: &str) -> Option<(u32, u32)> {
    let line = told
        .lines()
        .find(|line| line.starts_with("test result: "))?;
    let count = |what: &str| {
        let part = line.split([';', '.']).find(|part| part.ends_with(what))?;
        part.trim().split(' ').next()?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

/// What callgrind counts with and without the sampling of batches, of as many queries.
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
    // How queries meet in batches differs from run to run by chance.
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
    fn results_of_tests_are_counted() {
        let told = "\nrunning 1 test\n.\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 78 filtered out\n";
        assert_eq!(counted(told), Some((1, 0)));
        let told =
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 78 filtered out";
        assert_eq!(counted(told), Some((0, 1)));
        assert_eq!(counted("error: could not compile"), None);
    }
}
