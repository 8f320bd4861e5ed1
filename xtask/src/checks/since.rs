//! Finds the tests that a change can reach: those of the packages whose files differ from a revision, and of all
//! packages that depend on them.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::Result;

use crate::{packages::Packages, paths, shell};

/// The package that has the one binary.
const BINARY: &str = "sextant";
/// The package whose tests run the binary. Cargo does not know of this dependency.
const WHOLE_SYSTEM: &str = "sextant-tests";

/// Files outside every package, by the beginning of their paths, and the packages that are built from them.
const BUILT_OF: [(&str, &[&str]); 2] = [
    ("migrations/", &["sextant-registry"]),
    ("openapi/", &["sextant-api"]),
];
/// Files outside every package that tests read: documents, and what these describe.
const READ: [&str; 7] = [
    "docs/",
    "examples/",
    "sdk/",
    "deploy/",
    "docker-compose.yml",
    "Dockerfile",
    "README.md",
];
/// The packages whose tests read [`READ`].
const READERS: [&str; 5] = [
    "sextant-api",
    "sextant-config",
    BINARY,
    WHOLE_SYSTEM,
    "xtask",
];

/// The tests that a change can reach.
#[derive(Debug, PartialEq, Eq)]
pub enum Reach {
    /// All tests, because this file concerns every package.
    All(String),
    /// The tests of these packages.
    Of(BTreeSet<String>),
}

impl Reach {
    /// The tests that changes of these files, relative to the root, can reach.
    pub fn of<'a>(packages: &Packages, files: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut changed, mut readers) = (BTreeSet::new(), BTreeSet::new());
        for file in files {
            let built = BUILT_OF.iter().find(|(start, _)| file.starts_with(start));
            if let Some(package) = packages.owner(Path::new(file)) {
                changed.insert(package.to_owned());
            } else if let Some((_, built)) = built {
                changed.extend(built.iter().map(|it| (*it).to_owned()));
            } else if READ.iter().any(|start| file.starts_with(start)) {
                readers.extend(READERS.map(str::to_owned));
            } else if !file.ends_with(".md") {
                return Self::All(file.to_owned());
            }
        }
        let mut reached = with_dependents(packages, changed);
        if reached.contains(BINARY) {
            reached.insert(WHOLE_SYSTEM.to_owned());
        }
        reached.append(&mut readers);
        Self::Of(reached)
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(file) => write!(f, "`{file}` changed: all tests are run"),
            Self::Of(packages) if packages.is_empty() => {
                f.write_str("no test depends on what changed")
            }
            Self::Of(packages) => {
                let names: Vec<&str> = packages.iter().map(String::as_str).collect();
                write!(f, "the changes reach {}", names.join(", "))
            }
        }
    }
}

impl Reach {
    /// Whether no test depends on what changed.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Of(packages) if packages.is_empty())
    }

    /// An expression of nextest that selects the tests; `None` for all tests.
    pub fn filter(&self) -> Option<String> {
        let Self::Of(packages) = self else {
            return None;
        };
        let packages = packages.iter().map(|name| format!("package(={name})"));
        Some(packages.collect::<Vec<_>>().join(" | "))
    }
}

/// These packages and all that depend on one of them.
fn with_dependents(packages: &Packages, mut reached: BTreeSet<String>) -> BTreeSet<String> {
    loop {
        let depends = packages
            .iter()
            .filter(|(_, it)| !it.depends_on.is_disjoint(&reached));
        let more: Vec<&str> = depends
            .map(|(name, _)| name)
            .filter(|name| !reached.contains(*name))
            .collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more.into_iter().map(str::to_owned));
    }
}

/// The files that differ from a revision, untracked files included, relative to the root.
///
/// # Errors
///
/// Git knows no such revision.
pub fn changed_files(revision: &str) -> Result<Vec<String>> {
    let git = |arguments: &[&str]| {
        let mut git = shell::command("git");
        shell::output(git.arg("-C").arg(paths::root()).args(arguments))
    };
    let differing = git(&["diff", "--name-only", "--no-renames", revision, "--"])?;
    let unknown = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files = differing.lines().chain(unknown.lines());
    Ok(files.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `sextant` depends on `sextant-api`, which depends on `sextant-types`; `sextant-keda` on nothing.
    fn packages() -> Packages {
        let package = |name: &str, folder: &str, depends_on: &[&str]| {
            let dependencies = depends_on.iter().map(|name| json!({"name": name}));
            json!({
                "name": name,
                "manifest_path": format!("/w/{folder}/Cargo.toml"),
                "dependencies": dependencies.collect::<Vec<_>>(),
            })
        };
        let metadata = json!({"packages": [
            package("sextant-types", "crates/types", &["serde"]),
            package("sextant-keda", "crates/wire/keda", &[]),
            package("sextant-api", "api", &["sextant-types"]),
            package("sextant", "server", &["sextant-api"]),
            package("sextant-tests", "tests", &["sextant-types"]),
            package("fixture", "tests/fixture", &[]),
        ]});
        Packages::read(&metadata, Path::new("/w")).unwrap()
    }

    fn of(names: &[&str]) -> Reach {
        Reach::Of(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_change_reaches_what_depends_on_its_package() {
        let packages = packages();
        let all = ["sextant", "sextant-api", "sextant-tests", "sextant-types"];
        assert_eq!(Reach::of(&packages, ["crates/types/src/lib.rs"]), of(&all));
        // Tests that do not depend on the binary's package run the binary.
        assert_eq!(Reach::of(&packages, ["api/src/lib.rs"]), of(&all[..3]));
        assert_eq!(
            Reach::of(&packages, ["crates/wire/keda/src/lib.rs"]),
            of(&["sextant-keda"])
        );
        assert_eq!(
            Reach::of(&packages, ["tests/fixture/a.rs"]),
            of(&["fixture"])
        );
        let filter = of(&["a", "b"]).filter();
        assert_eq!(filter.as_deref(), Some("package(=a) | package(=b)"));
    }

    #[test]
    fn a_file_of_no_package_reaches_who_reads_it() {
        let packages = packages();
        assert_eq!(Reach::of(&packages, ["docs/cli.md"]), of(&READERS));
        assert_eq!(Reach::of(&packages, ["STYLE.md"]), of(&[]));
        let lock = Reach::All("Cargo.lock".to_owned());
        assert_eq!(Reach::of(&packages, ["STYLE.md", "Cargo.lock"]), lock);
        assert_eq!(lock.filter(), None);
    }

    #[test]
    fn the_packages_that_are_named_exist() {
        let packages = Packages::of_workspace().unwrap();
        let built = BUILT_OF.iter().flat_map(|(_, packages)| *packages);
        for name in built.chain(&READERS) {
            assert!(packages.get(name).is_some(), "{name}");
        }
        for path in BUILT_OF.map(|(path, _)| path).iter().chain(&READ) {
            assert!(paths::root().join(path).exists(), "{path}");
            assert_eq!(packages.owner(Path::new(path)), None, "{path}");
        }
    }
}
