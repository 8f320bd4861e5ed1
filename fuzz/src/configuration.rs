//! A configuration file.

use std::{fs, sync::LazyLock};

use sextant_config::{Config, Sources};
use tempfile::TempDir;

/// A folder for the file, in memory where the machine has such a place.
static FOLDER: LazyLock<TempDir> = LazyLock::new(crate::files::folder);

/// A TOML file that is loaded, or refused with a reason. What is loaded can be shown with its secrets hidden,
/// and what is shown is a configuration again.
pub fn configuration(bytes: &[u8]) {
    let path = FOLDER.path().join("sextant.toml");
    fs::write(&path, bytes).expect("the folder takes a file");
    let load = || {
        Config::load(&Sources {
            file: Some(path.clone()),
            ..Sources::default()
        })
    };
    match load() {
        Ok(config) => {
            let shown = toml::to_string(&config.resolved()).expect("a configuration is a table");
            fs::write(&path, &shown).expect("the folder takes a file");
            if let Err(error) = load() {
                panic!("what is shown is refused: {error}\n{shown}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
