//! The files that `docs/simulator.md` shows are valid.

use std::path::Path;

use sextant_simulator::{fleet::Experiment, what_if::Devices};

#[test]
fn shown_files_are_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulator.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [devices, fleet] = blocks[..] else {
        panic!("two files, not {}", blocks.len())
    };
    Devices::parse(devices, "page", Path::new(".")).expect("a devices file");
    let fleet = Experiment::parse(fleet, "page").expect("a fleet");
    assert_eq!(fleet.cells.len(), 1);
}
