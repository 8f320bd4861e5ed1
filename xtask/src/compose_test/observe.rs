//! Checks the monitoring of the stack: Prometheus sees every process, Grafana has the dashboard.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::stack::Stack;
use crate::http::Connection;
use crate::shell;

/// Longest time until every process was seen twice; Prometheus looks for processes every ten seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(90);
/// Processes whose metrics are collected, by the service's name.
const WATCHED: [&str; 6] = [
    "api",
    "autoscaler",
    "dispatcher",
    "dispatcher-standby",
    "variant-gen",
    "worker",
];

/// Starts Prometheus and waits until it has seen every process and has read its rules.
pub fn prometheus(stack: &Stack) -> Result<()> {
    stack.up_one("prometheus", &[])?;
    let wanted: BTreeSet<&str> = WATCHED.into();
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let body = get(stack.prometheus, "/api/v1/query?query=up%3D%3D1")?;
        let series = body["data"]["result"].as_array().into_iter().flatten();
        let roles = series.filter_map(|of| of["metric"]["role"].as_str());
        let missing: Vec<&str> = difference(&wanted, &roles.collect());
        if missing.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            bail!("Prometheus does not see {missing:?}");
        }
        shell::pause(Duration::from_millis(500));
    }
    let rules = get(stack.prometheus, "/api/v1/rules")?;
    let groups = rules["data"]["groups"].as_array().map_or(0, Vec::len);
    ensure!(groups > 0, "Prometheus has no rules: {rules}");
    Ok(())
}

/// Starts Grafana and looks for the dashboard.
pub fn grafana(stack: &Stack) -> Result<()> {
    stack.up_one("grafana", &[])?;
    let found = get(stack.grafana, "/api/search?type=dash-db")?;
    let dashboards = found.as_array().map_or(0, Vec::len);
    ensure!(dashboards > 0, "Grafana has no dashboard: {found}");
    Ok(())
}

fn difference<'a>(wanted: &BTreeSet<&'a str>, seen: &BTreeSet<&str>) -> Vec<&'a str> {
    wanted
        .iter()
        .copied()
        .filter(|role| !seen.contains(role))
        .collect()
}

fn get(at: SocketAddr, path: &str) -> Result<Value> {
    Connection::open(at, Duration::from_secs(30))?
        .get(path)?
        .json()
}
