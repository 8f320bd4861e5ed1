//! Finds dependencies that no code names: each of them costs every build something.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{packages::Packages, paths};

/// Dependencies that only generated code of build scripts names.
const GENERATED: [&str; 2] = ["prost", "tonic-prost"];

/// The Rust sources below a folder, without those of packages inside.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.join("Cargo.toml").exists() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The text of a package's sources, with the files of others that they include.
fn text(folder: &Path) -> String {
    let mut files = Vec::new();
    sources(folder, &mut files);
    let mut all = String::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        for line in source.lines() {
            let taken_in = line.trim().strip_prefix("#[path = \"");
            let Some(taken_in) = taken_in.and_then(|it| it.strip_suffix("\"]")) else {
                continue;
            };
            let file = file.parent().unwrap_or(folder).join(taken_in);
            all.push_str(&fs::read_to_string(file).unwrap());
        }
        all.push_str(&source);
    }
    all
}

/// Whether a text contains this word.
fn names(text: &str, word: &str) -> bool {
    let is_of_word = |it: char| it.is_alphanumeric() || it == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_of_word) && !after.is_some_and(is_of_word)
    })
}

#[test]
fn every_dependency_is_named() {
    let packages = Packages::of_workspace().unwrap();
    let mut unused = Vec::new();
    for (name, package) in packages.iter() {
        let text = text(&paths::root().join(&package.folder));
        let others = package.depends_on.iter();
        let others = others.filter(|it| !GENERATED.contains(&it.as_str()));
        let missing = others.filter(|it| !names(&text, &it.replace('-', "_")));
        unused.extend(missing.map(|it| format!("`{name}` never names `{it}`")));
    }
    assert_eq!(unused, Vec::<String>::new());
}

#[test]
fn a_word_is_no_part_of_another() {
    assert!(names("use uuid::Uuid;", "uuid"));
    assert!(!names("let uuids = my_uuid;", "uuid"));
}
