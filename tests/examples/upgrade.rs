//! `upgrade --before PATH [--json]`: upgrades a fleet of another binary to the one under test, under load, and reports
//! the outcomes of the queries and what was kept of the registered models. `cargo xtask upgrade-test` starts it.

#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::{panic::AssertUnwindSafe, path::PathBuf, process::ExitCode};

use futures::FutureExt;
use serde_json::json;
use sextant_tests::upgrade::{OldVersion, UpgradeReport, upgrade};

#[tokio::main]
async fn main() -> ExitCode {
    let mut before = None;
    let mut is_json = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--before" => before = arguments.next().map(PathBuf::from),
            "--json" => is_json = true,
            _ => before = None,
        }
    }
    let Some(before) = before else {
        println!("`upgrade --before PATH [--json]`");
        return ExitCode::FAILURE;
    };
    let before = OldVersion::Binary(before);
    // A failure panics and has printed its reason.
    let ended = AssertUnwindSafe(upgrade(&before)).catch_unwind().await;
    let is_well = ended.as_ref().is_ok_and(UpgradeReport::is_well);
    match ended {
        Ok(upgraded) if is_json => println!("{}", document(&upgraded)),
        Ok(upgraded) => println!("{}", line(&upgraded)),
        Err(_) if is_json => println!("{}", json!({"experiment": "upgrade", "passed": false})),
        Err(_) => println!("upgrade: FAILED, and why stands above"),
    }
    match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn document(of: &UpgradeReport) -> serde_json::Value {
    json!({
        "experiment": "upgrade",
        "passed": of.is_well(),
        "queries": of.sent,
        "failed": of.refused,
        "longest_wait_ms": of.longest.as_millis() as u64,
        "longest_gap_ms": of.longest_gap.as_millis() as u64,
        "kept": of.kept.len() - of.lost.len(),
        "lost": of.lost,
    })
}

fn line(of: &UpgradeReport) -> String {
    let outcome = if of.is_well() { "passed" } else { "FAILED" };
    let failed: u64 = of.refused.values().sum();
    let (longest, gap) = (of.longest.as_millis(), of.longest_gap.as_millis());
    let (kept, all) = (of.kept.len() - of.lost.len(), of.kept.len());
    format!(
        "upgrade: {outcome}; {} queries, {failed} failed {:?}, longest wait {longest} ms, longest gap {gap} ms; {kept} of \
         {all} things kept, lost {:?}",
        of.sent, of.refused, of.lost
    )
}
