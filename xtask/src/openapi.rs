//! The committed interface description.

use anyhow::{Context, Result};

use crate::{paths, shell};

/// Writes `openapi/sextant.json` from the server's own description.
pub fn run() -> Result<()> {
    let mut command = shell::command("cargo");
    command.args(["run", "--quiet", "--package", "sextant", "--", "openapi"]);
    let text = shell::output(&mut command)?;
    let path = paths::root().join("openapi/sextant.json");
    std::fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    shell::say(format!("wrote {}", path.display()));
    Ok(())
}
