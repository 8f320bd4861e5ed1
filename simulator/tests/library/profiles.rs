use sextant_simulator::{
    Error,
    profiles::{self, Curve},
};

fn error_of(text: &str) -> String {
    let read = profiles::read(text, "zoo.csv");
    read.expect_err("it is malformed").to_string()
}

#[test]
fn shipped_files_hold_what_the_papers_print() {
    let count = |name: &str| profiles::load(name).unwrap().len();
    assert_eq!(count("symphony-zoo-gtx1080ti"), 35);
    assert_eq!(count("symphony-zoo-a100"), 37);
    assert_eq!(count("clockwork-v100"), 6);
    let zoo = profiles::load("symphony-zoo-a100").unwrap();
    let bert = zoo.iter().find(|profile| profile.model == "BERT").unwrap();
    assert_eq!(bert.line(), (7.353, 0.222));
    assert_eq!(bert.target(), Some(59_000_000));
    assert_eq!(bert.latency(16).unwrap().of(2), 14_928_000);
}

#[test]
fn every_zoo_target_is_twice_the_batch_of_four() {
    for name in ["symphony-zoo-gtx1080ti", "symphony-zoo-a100"] {
        for profile in profiles::load(name).unwrap() {
            let (alpha, beta) = profile.line();
            let twice = (2.0 * (4.0 * alpha + beta)).floor().max(20.0);
            assert_eq!(profile.target_ms, Some(twice), "{}", profile.model);
        }
    }
}

#[test]
fn measured_sizes_are_interpolated() {
    let all = profiles::load("clockwork-v100").unwrap();
    let resnet = all.iter().find(|p| p.model == "resnet50").unwrap();
    let Curve::Points(points) = &resnet.curve else {
        panic!("clockwork's profiles are measured points");
    };
    assert_eq!(points.last(), Some(&(16, 15.67)));
    assert_eq!(resnet.load_ms, Some(8.33));
    let table = resnet.latency(256).unwrap();
    assert_eq!(table.measured_rows(), 16);
    assert_eq!(table.of(4), 5_610_000);
    assert_eq!(table.of(6), 7_370_000);
    let (alpha, beta) = resnet.line();
    assert!(
        (alpha - 0.868).abs() < 0.02 && (beta - 1.98).abs() < 0.1,
        "{alpha} {beta}"
    );
}

#[test]
fn malformed_profiles_name_file_line_and_value() {
    let header = "model,alpha_ms,beta_ms,slo_ms\n";
    for (line, value) in [
        ("A,1.0,2.0,0", "`0` as `slo_ms`"),
        ("A,-1.0,2.0,20", "`-1.0` as `alpha_ms`"),
        ("A,1.0,NaN,20", "`NaN` as `beta_ms`"),
        ("A,inf,1.0,20", "`inf` as `alpha_ms`"),
        ("A,1.0,,20", "`` as `beta_ms`"),
        ("A,fast,1.0,20", "`fast` as `alpha_ms`"),
        ("A,0,0,20", "`0` as `alpha_ms`"),
        (",1.0,1.0,20", "`` as `model`"),
        ("A,1.0,2.0", "`A,1.0,2.0` has 3 values, not 4"),
    ] {
        let message = error_of(&format!("{header}B,1,1,20\n{line}\n"));
        assert!(message.starts_with("zoo.csv, line 3: "), "{message}");
        assert!(message.contains(value), "{message}");
    }
}

#[test]
fn malformed_tables_name_file_line_and_value() {
    for (text, said) in [
        (
            "model,b1_ms,b2_ms\nA,2.0,1.5\n",
            "line 2: `1.5` as `b2_ms` is less",
        ),
        ("model,b1_ms,b2_ms\nA,0,1.5\n", "line 2: `0` as `b1_ms`"),
        ("model,b1_ms,b2_ms\nA,1.0,\n", "line 2: `` as `b2_ms`"),
        ("model,b2_ms,b4_ms\nA,1.0,2.0\n", "line 1: "),
        ("model,b1_ms,b4_ms,b2_ms\nA,1.0,2.0,3.0\n", "line 1: "),
        (
            "model,alpha_ms\nA,1.0\n",
            "line 1: `model,alpha_ms` has no column `beta_ms`",
        ),
        (
            "model,alpha_ms,beta_ms\nA,1,1\nA,2,2\n",
            "line 3: `A` as `model` occurs twice",
        ),
        ("model,alpha_ms,beta_ms\n", "followed by no profile"),
        ("", "line 1: `` is an empty file"),
    ] {
        let message = error_of(text);
        assert!(message.starts_with("zoo.csv, "), "{message}");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn an_unknown_profile_is_answered_with_the_known_ones() {
    let message = profiles::load("zoo").unwrap_err().to_string();
    assert!(
        message.contains("`zoo`") && message.contains("clockwork-v100"),
        "{message}"
    );
    let missing = profiles::load("./no/such/file.csv").unwrap_err();
    assert!(matches!(missing, Error::Read { .. }), "{missing}");
}

#[test]
fn a_path_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.csv");
    std::fs::write(&path, "model,alpha_ms,beta_ms\nmine,1.5,3\n").unwrap();
    let mine = profiles::load(path.to_str().unwrap()).unwrap();
    assert_eq!(mine[0].model, "mine");
    assert_eq!(mine[0].target_ms, None);
}

#[test]
fn a_family_lies_on_straight_lines_between_the_measured_models() {
    let measured = profiles::load("clockwork-v100").unwrap();
    let family = profiles::family(&measured, 61).unwrap();
    assert_eq!(family.len(), 61);
    let names: std::collections::BTreeSet<&str> = family
        .iter()
        .map(|profile| profile.model.as_str())
        .collect();
    assert_eq!(names.len(), 61);
    for profile in &measured {
        assert!(family.contains(profile), "{}", profile.model);
    }
    let weights: Vec<f64> = family.iter().filter_map(|known| known.weights_mb).collect();
    assert!(weights.windows(2).all(|pair| pair[0] < pair[1]));
    // ResNet18 and DenseNet169 are neighbours by size; the sixth of eleven lies in the middle.
    let middle = family.iter().find(|known| known.model == "resnet18+6");
    let middle = middle.unwrap();
    assert!((middle.weights_mb.unwrap() - (46.7 + 56.5) / 2.0).abs() < 1e-9);
    assert!((middle.load_ms.unwrap() - (3.81 + 4.50) / 2.0).abs() < 1e-9);
    let latency = middle.latency(16).unwrap();
    assert_eq!(latency.of(16), 14_435_000);
    for profile in &family {
        assert_eq!(profile.latency(64).unwrap().measured_rows(), 16);
    }
    assert!(profiles::family(&measured, 5).is_err());
    let lines = profiles::load("symphony-zoo-a100").unwrap();
    assert!(profiles::family(&lines, 99).is_err());
}
