//! Starts the roles of this process.

use crate::config::Config;

/// Runs the configured roles until the process is told to stop. Logging has been started.
pub async fn run(config: Config) -> anyhow::Result<()> {
    anyhow::bail!("the roles {:?} are not wired", config.roles)
}
