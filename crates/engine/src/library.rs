//! Where libraries lie that engines load when they start.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Where a library is: `configured`, else the file that the environment variable `variable` names, else
/// `place` in the cache folder that `cargo xtask provision` fills (`$SEXTANT_CACHE`, or `sextant` in the
/// user's cache folder).
///
/// Only files that exist are returned. A configured path that does not exist gives `None`: what was
/// asked for is never silently replaced.
pub fn find_library(
    configured: Option<&Path>,
    variable: Option<&str>,
    place: &Path,
) -> Option<PathBuf> {
    if let Some(path) = configured {
        return path.is_file().then(|| path.to_path_buf());
    }
    let named = variable.and_then(set).map(PathBuf::from);
    if let Some(path) = named.filter(|path| path.is_file()) {
        return Some(path);
    }
    let path = cache_folder()?.join(place);
    path.is_file().then_some(path)
}

/// The cache folder of this user, which may not be there yet; `None` where the environment names none.
pub fn cache_folder() -> Option<PathBuf> {
    set("SEXTANT_CACHE")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("sextant")))
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache/sextant")))
}

fn set(variable: &str) -> Option<std::ffi::OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}
