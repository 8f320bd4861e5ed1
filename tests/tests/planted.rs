//! The planted bugs: each patch applies, and is listed in the table of their page.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn patches() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("tests/planted")).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let patches = paths.filter(|path| path.extension().is_some_and(|it| it == "patch"));
    let name = |path: PathBuf| path.file_stem()?.to_str().map(str::to_owned);
    patches.filter_map(name).collect()
}

#[test]
fn every_patch_applies() {
    for name in patches() {
        let file = format!("tests/planted/{name}.patch");
        let checked = Command::new("git")
            .args(["apply", "--check", &file])
            .current_dir(root())
            .stdin(Stdio::null())
            .output()
            .expect("git can be started");
        let problem = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "`{file}`: {problem}");
    }
}

#[test]
fn the_table_names_every_patch_and_no_other() {
    let page = root().join("tests/planted/README.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let known: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(known.len(), named.len(), "a patch stands there twice");
    assert_eq!(known, patches());
}
