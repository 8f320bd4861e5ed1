//! The files that `docs/simulator.md` shows are valid, and the experiments that it names are shipped.

use std::path::Path;

use sextant_simulator::{experiment, experiment::Experiment, fleet, partition, what_if::Devices};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulator.md");
    std::fs::read_to_string(path).expect("the page")
}

#[test]
fn shown_files_are_valid() {
    let page = page();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(blocks.len(), 3);
    let experiment = Experiment::parse(blocks[0], "page").expect("an experiment");
    let cells: Vec<&str> = experiment
        .cells
        .iter()
        .map(|cell| cell.name.as_str())
        .collect();
    assert_eq!(cells, ["2-devices", "4-devices", "8-devices"]);
    assert_eq!(experiment.quick.cells.len(), 1);
    let fleets = fleet::Experiment::parse(blocks[1], "page").expect("fleets");
    assert_eq!(fleets.cells.len(), 1);
    Devices::parse(blocks[2], "page", Path::new(".")).expect("a devices file");
}

#[test]
fn named_experiments_are_shipped() {
    let page = page();
    let named = page.split("--experiment ").skip(1);
    for name in named.filter_map(|rest| rest.split([' ', '\n', '`']).next()) {
        if name.starts_with("symphony") || name.starts_with("clockwork") {
            let is_shipped = experiment::names().contains(&name);
            assert!(is_shipped || partition::names().contains(&name), "{name}");
        }
    }
}
