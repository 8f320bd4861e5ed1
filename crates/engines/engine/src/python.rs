//! Finds the packages of this machine's Python: libraries that engines load come as such packages, in folders that no
//! loader searches.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Most links from the `python3` on the path to the interpreter itself.
const MOST_LINKS: usize = 16;

/// The existing package folders (`site-packages`, `dist-packages`): first those that `PYTHONPATH` names, then those of
/// the first `python3` on the `PATH`, an environment before the interpreter that it was made of. No Python is started.
pub fn python_packages() -> Vec<PathBuf> {
    let variable = |name: &str| env::var_os(name).unwrap_or_default();
    packages(&variable("PATH"), &variable("PYTHONPATH"))
}

fn packages(path: &OsStr, python_path: &OsStr) -> Vec<PathBuf> {
    let named = env::split_paths(python_path).filter(|folder| folder.is_absolute());
    let mut found: Vec<PathBuf> = named.filter(|folder| folder.is_dir()).collect();
    let interpreter = env::split_paths(path)
        .map(|folder| folder.join("python3"))
        .find(|file| file.is_file());
    for file in interpreter.map(links).unwrap_or_default() {
        // An interpreter is in `bin` of its prefix.
        let Some(prefix) = file.parent().and_then(Path::parent) else {
            continue;
        };
        for folder in below(prefix) {
            if !found.contains(&folder) {
                found.push(folder);
            }
        }
    }
    found
}

/// A file and what it links to, link by link.
fn links(file: PathBuf) -> Vec<PathBuf> {
    let mut found = vec![file];
    while let Some(target) = found.last().and_then(|file| {
        let target = file.read_link().ok()?;
        Some(file.parent()?.join(target))
    }) {
        if found.len() > MOST_LINKS {
            break;
        }
        found.push(target);
    }
    found
}

/// Package folders below a prefix, the newest Python first.
fn below(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in ["lib", "lib64", "local/lib"] {
        let entries = std::fs::read_dir(prefix.join(place));
        let entries = entries.into_iter().flatten().flatten();
        let mut versions: Vec<(Vec<u32>, OsString)> = entries
            .map(|entry| entry.file_name())
            .filter_map(|name| Some((version(&name)?, name)))
            .collect();
        versions.sort();
        for (_, name) in versions.into_iter().rev() {
            let folder = prefix.join(place).join(name);
            let kinds = ["site-packages", "dist-packages"].map(|kind| folder.join(kind));
            found.extend(kinds.into_iter().filter(|folder| folder.is_dir()));
        }
    }
    found
}

/// The numbers of `python3.12`; `None` if a folder does not belong to a Python.
fn version(name: &OsStr) -> Option<Vec<u32>> {
    let numbers = name.to_str()?.strip_prefix("python3")?;
    let numbers = numbers.strip_prefix('.').unwrap_or(numbers);
    let numbers: Option<Vec<u32>> = numbers
        .split('.')
        .filter(|number| !number.is_empty())
        .map(|number| number.parse().ok())
        .collect();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(root: &Path, name: &str) -> PathBuf {
        let folder = root.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn an_environments_packages_come_before_those_of_its_interpreter() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let own = folder(root, "environment/lib/python3.12/site-packages");
        let local = folder(root, "usr/local/lib/python3.12/dist-packages");
        let new = folder(root, "usr/lib/python3.12/site-packages");
        let old = folder(root, "usr/lib/python3.9/site-packages");
        let plain = folder(root, "usr/lib/python3/dist-packages");
        let _other = folder(root, "usr/lib/pythonic/site-packages");
        let bin = folder(root, "environment/bin");
        let real = folder(root, "usr/bin").join("python3.12");
        std::fs::write(&real, "").expect("a file");
        std::os::unix::fs::symlink("python3.12", root.join("usr/bin/python3")).expect("a link");
        let link = root.join("usr/bin/python3");
        std::os::unix::fs::symlink(link, bin.join("python3")).expect("a link");
        let named = folder(root, "named");
        let path = env::join_paths([&folder(root, "empty"), &bin]).expect("a path");
        let found = packages(&path, named.as_os_str());
        let canonical: Vec<PathBuf> = found
            .iter()
            .map(|it| it.canonicalize().expect("it is there"))
            .collect();
        let wanted = [named, own, new, old, plain, local];
        let wanted = wanted.map(|it| it.canonicalize().expect("it is there"));
        assert_eq!(canonical, wanted);
    }

    #[test]
    fn links_that_go_round_end() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("python3");
        std::os::unix::fs::symlink("python3", &file).expect("a link");
        assert!(links(file).len() <= MOST_LINKS + 1);
    }

    #[test]
    fn nothing_is_found_where_there_is_no_python() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(packages(root.path().as_os_str(), OsStr::new("relative:")).is_empty());
    }
}
