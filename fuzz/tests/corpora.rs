//! Each file of the corpora, and each that was once a finding, goes through its target without a panic.

use std::{fs, panic::catch_unwind, path::PathBuf};

use sextant_fuzz::TARGETS;

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target]
        .iter()
        .collect()
}

#[test]
fn every_file_of_the_corpora_does_no_harm() {
    for (name, target) in TARGETS {
        let files = fs::read_dir(folder(name)).expect("each target has a corpus");
        let mut count = 0;
        for file in files {
            let path = file.expect("a readable folder").path();
            let bytes = fs::read(&path).expect("a readable file");
            if catch_unwind(|| target(&bytes)).is_err() {
                panic!("`{name}` fails with {}", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "the corpus of `{name}` is empty");
    }
}

#[test]
fn every_folder_belongs_to_a_target() {
    let corpora = folder("").read_dir().expect("the corpora are there");
    for corpus in corpora {
        let name = corpus.expect("a readable folder").file_name();
        assert!(
            TARGETS.iter().any(|(target, _)| name == *target),
            "there is no target {name:?}"
        );
    }
}
