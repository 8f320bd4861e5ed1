//! Finds the libraries that engines load at their start.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The path of a library: `configured`, else the file that the environment variable `variable` names, else `packaged`
/// among the Python packages of the environment that this program was installed into, else `place` in the cache folder
/// that `cargo xtask provision` fills (`$SEXTANT_CACHE`, or `sextant` in the user's cache folder).
///
/// Only existing files are returned. A configured path that does not exist gives `None`: another library never silently
/// replaces it.
pub fn find_library(
    configured: Option<&Path>,
    variable: Option<&str>,
    packaged: &Path,
    place: &Path,
) -> Option<PathBuf> {
    if let Some(path) = configured {
        return path.is_file().then(|| path.to_path_buf());
    }
    let named = variable.and_then(set).map(PathBuf::from);
    if let Some(path) = named.filter(|path| path.is_file()) {
        return Some(path);
    }
    let among_packages = python_packages().into_iter();
    let mut among_packages = among_packages.map(|folder| folder.join(packaged));
    if let Some(path) = among_packages.find(|path| path.is_file()) {
        return Some(path);
    }
    let path = cache_folder()?.join(place);
    path.is_file().then_some(path)
}

/// The package folders of the Python environment in whose `bin` this program is; none if it is elsewhere.
fn python_packages() -> Vec<PathBuf> {
    let program = env::current_exe().and_then(|program| program.canonicalize());
    let environment = program.ok().and_then(|program| {
        let bin = program.parent()?;
        let is_bin = bin.file_name().is_some_and(|name| name == "bin");
        is_bin.then(|| bin.parent().map(Path::to_path_buf))?
    });
    environment.map_or_else(Vec::new, |it| packages_of(&it))
}

/// `lib/python3.*/site-packages`, and `dist-packages` as on Debian, the newest version first.
fn packages_of(environment: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir(environment.join("lib")).into_iter().flatten();
    let versions = versions.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let minor = name.to_str()?.strip_prefix("python3.")?.parse::<u32>().ok();
        Some((minor?, entry.path()))
    });
    let mut versions: Vec<(u32, PathBuf)> = versions.collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let folders = versions.into_iter();
    let folders =
        folders.flat_map(|(_, path)| ["site-packages", "dist-packages"].map(|it| path.join(it)));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// The cache folder of this user, which may not exist yet; `None` if the environment names none.
pub fn cache_folder() -> Option<PathBuf> {
    set("SEXTANT_CACHE")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("sextant")))
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache/sextant")))
}

fn set(variable: &str) -> Option<std::ffi::OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_an_environment_are_those_of_its_newest_python_first() {
        let environment = tempfile::tempdir().expect("a folder");
        let lib = environment.path().join("lib");
        for folder in [
            "python3.9/site-packages",
            "python3.11/dist-packages",
            "python2/site-packages",
        ] {
            fs::create_dir_all(lib.join(folder)).expect("a folder");
        }
        let found = packages_of(environment.path());
        let names = ["python3.11/dist-packages", "python3.9/site-packages"];
        assert_eq!(found, names.map(|name| lib.join(name)));
        assert!(packages_of(&lib).is_empty());
    }
}
