//! A user's own question: the shipped example, and all errors that its files can have.

use std::path::{Path, PathBuf};

use sextant_baselines::{Options, Policy};
use sextant_simulator::what_if::{Devices, Question, SERVED, Trials};

const DEVICES: &str = "[devices.gpu]\ncount = 1\n[models.a]\ntarget_ms = 50.0\n\
                       profiles.gpu = { alpha_ms = 2.0, beta_ms = 8.0 }\n";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/what-if")
        .join(name)
}

fn shipped() -> Question {
    Question::load(&example("requests.csv"), &example("devices.toml")).expect("the example is read")
}

fn trials(policies: &[Policy]) -> Trials<Options> {
    let policies = policies.iter();
    Trials {
        policies: policies.map(|it| (it.name(), Options::of(*it))).collect(),
        most_devices: 8,
        threads: 2,
    }
}

fn question(trace: &str, devices: &str) -> Result<Question, String> {
    let devices = Devices::parse(devices, "devices.toml", Path::new("."));
    let devices = devices.map_err(|error| error.to_string())?;
    Question::read(trace, "requests.csv", devices).map_err(|error| error.to_string())
}

#[test]
fn the_least_number_of_devices_serves_every_model_and_one_less_does_not() {
    let policies = [Policy::Sextant, Policy::Eager];
    let answer = shipped().answer(&trials(&policies), &|_, _| {});
    assert_eq!(answer.devices, 4);
    let named: Vec<&str> = answer.policies.iter().map(|of| of.policy).collect();
    assert_eq!(named, policies.map(Policy::name));
    for of in &answer.policies {
        let least = of.least_devices.expect("eight devices are enough");
        assert!(least > 1, "one device is not enough for the example");
        for outcome in &of.outcomes {
            let enough = outcome.worst.1 >= SERVED;
            assert_eq!(enough, outcome.devices >= least, "{outcome:?}");
            assert!(outcome.p50_ms <= outcome.p99_ms && outcome.p99_ms <= outcome.max_ms);
            assert!((0.0..=1.0).contains(&outcome.busy_share), "{outcome:?}");
            assert_eq!(
                enough,
                outcome.goodput_rps >= outcome.good_rps,
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn the_answer_does_not_depend_on_threads() {
    let question = shipped();
    let many = question.answer(&trials(&[Policy::Eager, Policy::Symphony]), &|_, _| {});
    let one = Trials {
        threads: 1,
        ..trials(&[Policy::Eager, Policy::Symphony])
    };
    let one = question.answer(&one, &|_, _| {});
    assert_eq!(one.records(), many.records());
}

#[test]
fn an_unknown_model_is_named_with_its_line_and_the_nearest_that_is_known() {
    let devices = "[devices.gpu]\ncount = 1\nprofile = \"symphony-zoo-a100\"\n";
    let text = question("timestamp,model\n0.0,ResNet50\n0.1,resnet5O\n", devices)
        .expect_err("there is no such model");
    assert!(text.contains("requests.csv, line 3"), "{text}");
    assert!(
        text.contains("`resnet5O`") && text.contains("ResNet50"),
        "{text}"
    );
}

#[test]
fn a_target_that_no_device_meets_is_told_and_answered() {
    let devices = DEVICES.replace("50.0", "5.0");
    let question = question("timestamp,model\n0,a\n1,a\n", &devices).expect("it is valid");
    let impossible: Vec<&str> = question
        .impossible()
        .map(|model| model.name.as_str())
        .collect();
    assert_eq!(impossible, ["a"]);
    let answer = question.answer(&trials(&[Policy::Sextant]), &|_, _| {});
    assert_eq!(answer.policies[0].least_devices, None);
    assert_eq!(answer.policies[0].outcomes[0].served_share, 0.0);
}

#[test]
fn a_trace_of_one_moment_is_answered() {
    let question = question("timestamp,model\n7,a\n", DEVICES).expect("it is valid");
    let answer = question.answer(&trials(&[Policy::Sextant]), &|_, _| {});
    assert_eq!(answer.policies[0].least_devices, Some(1));
}

#[test]
fn malformed_devices_are_refused_with_line_and_value() {
    let cases = [
        ("count = 1", "count = 0", "line 2: `0`"),
        ("count = 1", "count = -1", "line 2: `-1`"),
        ("count = 1", "count = 4000000000", "line 2: `4000000000`"),
        ("count = 1", "size = 1", "line 2: `size`"),
        ("50.0", "0", "line 4: `0`"),
        ("50.0", "nan", "line 4: `nan`"),
        ("50.0", "inf", "line 4: `inf`"),
        ("50.0", "-3.5", "line 4: `-3.5`"),
        ("50.0", "\"fast\"", "line 4: `\"fast\"`"),
        ("target_ms = 50.0\n", "", "line 3: `a` has no `target_ms`"),
        ("8.0", "-8.0", "line 5: `-8.0`"),
        ("8.0", "nan", "line 5: `nan`"),
        (", beta_ms = 8.0", "", "either `alpha_ms` and `beta_ms`"),
        ("profiles.gpu", "profiles.tpu", "line 5: `tpu`"),
        (
            "{ alpha_ms = 2.0, beta_ms = 8.0 }",
            "{ table_ms = [4.0, 3.0] }",
            "line 5: `3.0`",
        ),
        (
            "{ alpha_ms = 2.0, beta_ms = 8.0 }",
            "{ table_ms = [] }",
            "empty `table_ms`",
        ),
        (
            "profiles.gpu = { alpha_ms = 2.0, beta_ms = 8.0 }",
            "",
            "no profile",
        ),
        (
            "count = 1",
            "count = 1\nprofile = \"none.csv\"",
            "line 3: `\"none.csv\"`",
        ),
        ("[devices.gpu]\ncount = 1", "[devices]", "no kind of device"),
        ("[devices.gpu]", "[devices.gpu", "line 1"),
    ];
    for (from, to, expected) in cases {
        let devices = DEVICES.replace(from, to);
        let text = question("timestamp,model\n0,a\n", &devices).expect_err(to);
        assert!(text.contains("devices.toml"), "{to}: {text}");
        assert!(
            text.contains(expected),
            "`{to}` gives `{text}`, not `{expected}`"
        );
    }
}

#[test]
fn malformed_traces_are_refused_with_line_and_value() {
    let cases = [
        ("", "line 1"),
        ("timestamp,model\n", "line 1"),
        ("time,model\n0,a\n", "`time,model`"),
        ("timestamp,model\n0,a\nsoon,a\n", "line 3: `soon`"),
        ("timestamp,model\n0,a\nNaN,a\n", "line 3: `NaN`"),
        ("timestamp,model\n0,a\n1\n", "line 3: `1`"),
    ];
    for (trace, expected) in cases {
        let text = question(trace, DEVICES).expect_err(trace);
        assert!(
            text.contains("requests.csv") && text.contains(expected),
            "{text}"
        );
    }
}
