//! The file that `docs/lab.md` shows is valid, and the experiments that documents name are shipped.

use std::path::{Path, PathBuf};

use sextant_lab::{experiment, experiment::Experiment, fleets, partition, replicas};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect("the page")
}

#[test]
fn the_shown_file_is_valid() {
    let page = read("docs/lab.md");
    let shown = page.split("```toml\n").nth(1).expect("a file");
    let shown = shown.split("```").next().unwrap_or_default();
    let experiment = Experiment::parse(shown, "page").expect("an experiment");
    let cells = experiment.cells.iter().map(|cell| cell.name.as_str());
    let cells: Vec<&str> = cells.collect();
    assert_eq!(cells, ["2-devices", "4-devices", "8-devices"]);
    assert_eq!(experiment.quick.cells.len(), 1);
}

#[test]
fn named_experiments_are_shipped() {
    let replicas = replicas::names();
    let mut shipped = experiment::names();
    shipped.extend(partition::names());
    shipped.extend(fleets::names());
    shipped.extend(replicas.iter().map(String::as_str));
    let mut count = 0;
    for page in [
        "README.md",
        "docs/figures.md",
        "docs/lab.md",
        "docs/scaling.md",
    ] {
        let text = read(page);
        let named = text.split("sextant-lab experiment ").skip(1);
        for name in named.filter_map(|rest| rest.split([' ', '\n', '`']).next()) {
            assert!(shipped.contains(&name), "{page} names `{name}`");
            count += 1;
        }
    }
    assert!(count > 20, "{count} are named");
}
