//! The system's packages, where we may install them.

use anyhow::{Result, bail};

use crate::shell::{self, say};

/// Installs packages with apt when running as root, else says what to install.
pub fn install(packages: &[&str], purpose: &str) -> Result<()> {
    let names = packages.join(" ");
    if !is_root() || !shell::succeeds(shell::command("apt-get").arg("--version")) {
        bail!("install the packages `{names}` ({purpose}): this needs root and apt");
    }
    say(format!("installing {names} ({purpose})"));
    let apt = |arguments: &[&str]| {
        let mut command = shell::command("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments);
        command
    };
    let install = [
        &["install", "-y", "-qq", "--no-install-recommends"],
        packages,
    ]
    .concat();
    if shell::run(&mut apt(&install)).is_ok() {
        return Ok(());
    }
    // A fresh image has no package lists, or old ones.
    shell::run(&mut apt(&["update", "-qq"]))?;
    shell::run(&mut apt(&install))
}

fn is_root() -> bool {
    shell::output(shell::command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
