use std::{fs, path::Path};

use super::*;
use crate::paths;

/// What every Debian has, Python, and what only containers of the tests have.
const OTHERS: [&str; 12] = [
    "bash",
    "cp",
    "mkfifo",
    "python3",
    "setpriv",
    "sh",
    "sleep",
    "tar",
    "unshare",
    "/bin/sh",
    "/bin/true",
    "/bin/nothing",
];
/// What is written before the name of a program.
const CALL: &str = "Command::new(\"";
/// Where the system keeps what packages have.
const PLACES: [&str; 4] = ["\"/usr/", "\"/bin/", "\"/sbin/", "\"/opt/"];
/// Folders without tests of their own.
const NOT_SEARCHED: [&str; 5] = ["target", "xtask", "examples", "docs", "node_modules"];

/// What a source calls or looks for and no package is named for, as `file:line: what`.
fn unnamed(file: &str, text: &str, needs: &[&Need]) -> Vec<String> {
    let known = |name: &str| {
        let mut named = needs
            .iter()
            .flat_map(|need| need.programs.iter().chain(need.files));
        OTHERS.contains(&name) || named.any(|known| *known == name)
    };
    let mut unnamed = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let calls = line.split(CALL).skip(1);
        let places = PLACES.iter().flat_map(|place| {
            let after = line.match_indices(place).map(|(at, _)| &line[at + 1..]);
            after.collect::<Vec<_>>()
        });
        let names = calls
            .chain(places)
            .filter_map(|rest| rest.split('"').next());
        let unknown = names.filter(|name| !known(name));
        unnamed.extend(unknown.map(|name| format!("{file}:{}: `{name}`", at + 1)));
    }
    unnamed
}

/// The sources of tests, and of what starts servers for them: names from the root, and texts, in which everything
/// else is blank lines.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !NOT_SEARCHED.contains(&&*name) {
            sources(&path, found);
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let inside = path.strip_prefix(paths::root()).unwrap();
        let name = inside.to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let is_test = name.contains("tests/") || name.ends_with("tests.rs");
        let text = match is_test || name.contains("test-servers/") {
            true => text,
            false => {
                let begin = text.find("#[cfg(test)]").unwrap_or(text.len());
                let lines = text[..begin].matches('\n').count();
                "\n".repeat(lines) + &text[begin..]
            }
        };
        found.push((name, text));
    }
}

fn all_unnamed(needs: &[&Need]) -> Vec<String> {
    let mut found = Vec::new();
    sources(&paths::root(), &mut found);
    let files = found.iter();
    files
        .flat_map(|(name, text)| unnamed(name, text, needs))
        .collect()
}

#[test]
fn what_tests_call_has_a_package() {
    let unnamed = all_unnamed(&all());
    assert!(
        unnamed.is_empty(),
        "no row of `xtask/src/provision/needs.rs` names what tests call:\n{}",
        unnamed.join("\n")
    );
}

#[test]
fn a_row_that_is_missing_is_noticed() {
    let without: Vec<&Need> = SERVERS.iter().chain(TOOLS).collect();
    let unnamed = all_unnamed(&without);
    let of = |program: &str| {
        let end = format!(": `{program}`");
        let lines = unnamed.iter().filter(|line| line.ends_with(&end));
        lines.cloned().collect::<Vec<_>>()
    };
    let [tsc] = &of("tsc")[..] else {
        panic!("{unnamed:?}");
    };
    assert!(tsc.starts_with("tests/tests/sdk.rs:"), "{tsc}");
    assert_eq!(unnamed.len(), of("tsc").len() + of("node").len());
}

#[test]
fn calls_and_places_are_found_in_a_text() {
    let text = "\n  run(Command::new(\"tsc\").arg(\"-p\"));\nlet it = [\"/opt/x\", \"/usr/lib/postgresql\"];";
    assert_eq!(
        unnamed("a.rs", text, SERVERS.iter().collect::<Vec<_>>().as_slice()),
        ["a.rs:2: `tsc`", "a.rs:3: `/opt/x`"]
    );
}
