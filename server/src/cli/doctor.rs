//! `sextant doctor`: checks whether this machine has what a service needs.

use clap::Args;

use super::{Error, Output, Settings};
use crate::serve::examine::{self, Finding, State};

/// Check whether this machine has what a service with this configuration needs: engines, stores, folders, ports.
///
/// The command changes nothing. The exit code is 1 if something would keep the service from working.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    settings: Settings,
}

impl Doctor {
    /// Does it.
    pub fn run(self, output: Output) -> Result<(), Error> {
        let config = self.settings.load()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let findings = runtime.block_on(examine::examine(&config));
        output.text(&match output.json {
            true => lines(&findings)?,
            false => text(&findings),
        })?;
        let failed = findings.iter().filter(|it| it.state == State::Fail).count();
        match failed {
            0 => Ok(()),
            failed => Err(Error::Unfit { failed }),
        }
    }
}

/// An object on each line.
fn lines(findings: &[Finding]) -> Result<String, Error> {
    let lines = findings.iter().map(|finding| {
        serde_json::to_string(finding).map_err(|error| Error::Answer {
            reason: error.to_string(),
        })
    });
    Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn text(findings: &[Finding]) -> String {
    let widths = findings.iter().map(|finding| finding.check.len());
    let width = widths.max().unwrap_or(0);
    let line = |finding: &Finding| {
        let state = match finding.state {
            State::Ok => "ok  ",
            State::Warn => "warn",
            State::Fail => "FAIL",
        };
        let Finding { check, found, .. } = finding;
        let mut line = format!("{state}  {check:width$}  {found}");
        if let Some(advice) = &finding.advice {
            line.push_str(&format!("\n      {:width$}  -> {advice}", ""));
        }
        line
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}
