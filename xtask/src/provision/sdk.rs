//! What generates SDKs from the OpenAPI document, compiles and runs them.

use std::path::Path;

use anyhow::Result;

use super::{python, system};
use crate::shell::{self, say};

/// What the Python side needs: `tests/sdk/requirements.txt`.
const REQUIREMENTS: &str = include_str!("../../../tests/sdk/requirements.txt");

/// Programs and the packages that have them.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("node", "--version", "nodejs"),
    ("tsc", "--version", "node-typescript"),
    ("java", "-version", "default-jre-headless"),
];

/// Makes the environment `python-sdk` in the cache, and installs what is missing.
pub fn ensure(cache: &Path) -> Result<()> {
    python::environment(&cache.join("python-sdk"), REQUIREMENTS)?;
    let missing = PROGRAMS
        .iter()
        .filter(|(program, flag, _)| !shell::succeeds(shell::command(program).arg(flag)));
    let packages: Vec<&str> = missing.map(|(_, _, package)| *package).collect();
    match packages.is_empty() {
        true => {
            say("TypeScript and Java: found");
            Ok(())
        }
        false => system::install(&packages, "SDKs from the OpenAPI document"),
    }
}
