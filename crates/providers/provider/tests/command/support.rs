//! Short scripts.

use std::{collections::BTreeMap, path::Path};

use sextant_provider::{
    Error, Pool,
    command::{Script, Settings},
};
use sextant_types::DeviceTypeName;

/// Settings for a script that `sh -c` runs; `$1` is the call, and `$FOLDER` a folder.
pub fn settings(script: &str, folder: &Path) -> Settings {
    let folder = folder.to_str().expect("text").to_owned();
    Settings {
        program: "sh".to_owned(),
        arguments: ["-c", script, "script"].map(str::to_owned).into(),
        environment: BTreeMap::from([("FOLDER".to_owned(), folder)]),
        timeout_ms: 30_000,
        settle_ms: 600_000,
    }
}

pub fn script(script: &str, folder: &Path) -> Script {
    Script::new(settings(script, folder))
}

pub fn pool(name: &str, end_ms: u64) -> Pool {
    let device_type = DeviceTypeName::new(name).expect("a name");
    Pool {
        device_type,
        end_ms,
    }
}

/// Asserts that the call was refused with a reason that contains these words.
pub fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    match result {
        Err(error @ Error::Refused { .. }) => {
            assert!(error.to_string().contains(words), "`{words}` in: {error}");
        }
        other => panic!("refused with `{words}`, not {other:?}"),
    }
}
