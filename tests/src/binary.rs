//! The binary under test: the one that was built beside the tests.
//!
//! A build of the workspace has just made it. If only these tests were built, it may be missing or
//! older than the sources. Then it is built once, so that no test uses an old service.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::SystemTime,
};

/// Folders whose files are not part of the binary.
const OTHER_FOLDERS: [&str; 5] = ["target", "tests", "xtask", "examples", "docs"];
/// The folder of the laboratory, which is part of its binary only.
const LABORATORY: &str = "lab";

/// Path of the current binary.
pub fn sextant() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match env::var_os("SEXTANT_BIN") {
        Some(path) => path.into(),
        None => current("sextant", newest(root(), &[LABORATORY])),
    })
}

/// Path of the laboratory's current binary.
pub fn sextant_lab() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| current("sextant-lab", newest(root(), &[])))
}

/// The pages at the workspace's root and in `docs/`, by their paths from the root.
pub fn documents() -> Vec<PathBuf> {
    let pages = ["", "docs"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("the folder can be read");
        entries.map(move |entry| Path::new(folder).join(entry.expect("an entry").file_name()))
    });
    let mut pages: Vec<PathBuf> = pages
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the workspace")
}

/// A folder for files that tests keep between runs, beside the binary.
pub fn scratch() -> PathBuf {
    let folder = build_folder().join("whole-system-tests");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// `target/debug`: the folder of the test's own executable, without `deps`.
fn build_folder() -> PathBuf {
    let test = env::current_exe().expect("a test knows its executable");
    let deps = test.parent().expect("an executable lies in a folder");
    deps.parent()
        .expect("`deps` lies in the build folder")
        .to_owned()
}

/// The binary of the package of the same name. `newest` is the time of the newest source.
fn current(package: &str, newest: SystemTime) -> PathBuf {
    let binary = build_folder().join(package);
    let lock = File::create(scratch().join("build.lock")).expect("the lock can be created");
    lock.lock().expect("the lock can be had");
    // A source that is not part of the binary may be newer than it: the stamp shows that a build
    // has seen it.
    let stamp = scratch().join(format!("{package}.stamp"));
    if changed(&binary).max(changed(&stamp)) < newest {
        build(package);
        File::create(stamp).expect("the stamp can be written");
    }
    binary
}

fn build(package: &str) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", package])
        .current_dir(root())
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "`{package}` does not compile");
}

/// When a file was changed; the Unix epoch if there is none.
fn changed(path: &Path) -> SystemTime {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When the newest Rust source was changed, without folders of the names in `but`.
fn newest(folder: &Path, but: &[&str]) -> SystemTime {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                let others = OTHER_FOLDERS.iter().chain(but);
                let skipped = name.starts_with('.') || others.into_iter().any(|it| *it == name);
                return if skipped {
                    SystemTime::UNIX_EPOCH
                } else {
                    newest(&path, but)
                };
            }
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if is_source {
                changed(&path)
            } else {
                SystemTime::UNIX_EPOCH
            }
        })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
