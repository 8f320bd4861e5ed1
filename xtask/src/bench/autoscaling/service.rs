//! The measured service: all roles except the worker in one process over Redis, and pools of emulated devices that the
//! provider `process` starts and ends.

use std::{path::PathBuf, time::Duration, time::Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use sextant_test_servers::redis::Redis;

use super::clients::Question;
use crate::{
    demo, paths, provision,
    server::{self, Server},
    shell,
};

/// An application of the benchmark.
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// The example's model that the application has.
    pub model: &'static str,
    /// Longest time that an answer may take, ms.
    pub target_ms: f64,
    /// Its share of all queries.
    pub share: f64,
}

/// The large model has a target of half a second. The small one has a fifth of that, and one device answers five times
/// as many of its queries.
pub const APPLICATIONS: [Application; 2] = [
    Application {
        name: "digits",
        model: "cnn-large",
        target_ms: 500.0,
        share: 0.75,
    },
    Application {
        name: "glances",
        model: "cnn-small",
        target_ms: 100.0,
        share: 0.25,
    },
];

/// A pool.
pub struct Pool {
    /// The type of its devices.
    pub name: &'static str,
    /// How many times as fast as a model's profile its devices are.
    pub speed: f64,
    /// Price of one device, US dollars an hour.
    pub hour_usd: f64,
    /// Least number of workers.
    pub least: u32,
    /// Largest number of workers.
    pub most: u32,
}

/// A large device answers five times as many queries as a small one and costs three and a half times as much, so it
/// pays only under high load.
pub const POOLS: [Pool; 2] = [
    Pool {
        name: "small",
        speed: 0.01,
        hour_usd: 0.4,
        least: 1,
        most: 8,
    },
    Pool {
        name: "large",
        speed: 0.05,
        hour_usd: 1.4,
        least: 0,
        most: 2,
    },
];

/// How long workers that are no longer planned stay, s. It is short because the trace's day takes minutes.
pub const HOLD_S: u32 = 30;

/// The time of a start in the configuration, s. Forecasts look this far ahead; the real time of starts is measured.
pub const ASSUMED_START_S: u32 = 2;

/// Longest wait for the state that the service should reach.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// A running service whose variants are all measured.
pub struct Service {
    /// The process that answers queries.
    pub server: Server,
    /// Its program.
    pub binary: PathBuf,
    /// Its data folder.
    pub data: PathBuf,
    // Redis stops after the service.
    _redis: Redis,
}

/// Starts the service twice: first with a device of each type, on which the variants are measured, and then in the
/// state in which it is measured.
pub fn start() -> Result<Service> {
    let provisioned = provision::runtime()?;
    provision::needs::install(provision::needs::SERVERS)?;
    let binary = server::build()?;
    let redis = Redis::start();
    let data = paths::empty_target("bench-autoscaling")?;
    let launch = |with_all: bool| {
        let settings = settings(with_all);
        server::over_redis(&binary, &provisioned, (&data, &settings), &redis)
    };
    let server = launch(true)?;
    for of in &APPLICATIONS {
        demo::register_model(&binary, server.address, (of.name, of.model))?;
    }
    until("every variant is measured on every type of device", || {
        are_measured(&server)
    })?;
    drop(server);
    let server = launch(false)?;
    until("the pools have as many workers as they start with", || {
        are_settled(&server)
    })?;
    Ok(Service {
        server,
        binary,
        data,
        _redis: redis,
    })
}

// === impl Service ===

impl Service {
    /// The version that its program prints.
    pub fn version(&self) -> Result<String> {
        let text = shell::output(shell::command(&self.binary).arg("--version"))?;
        Ok(text.trim().trim_start_matches("sextant ").to_owned())
    }
}

/// The query for each application.
pub fn questions() -> Vec<Question> {
    let question = |of: &Application| {
        let mut body = demo::query(&json!({"latency_ms": of.target_ms}));
        body["application"] = of.name.into();
        Question {
            body: body.to_string().into_bytes(),
            target_ms: of.target_ms,
        }
    };
    APPLICATIONS.iter().map(question).collect()
}

/// The variants of an application, as the service describes them.
pub fn variants(server: &Server, application: &str) -> Result<Vec<Value>> {
    let path = format!("/v1/applications/{application}/variants");
    let mut body = server.connect()?.get(&path)?.json()?;
    match body["variants"].take() {
        Value::Array(variants) => Ok(variants),
        _ => bail!("`{path}` has no list of variants"),
    }
}

/// The measured profiles of a variant, by position of the pool on whose type it was measured.
pub fn measured(variant: &Value) -> [Option<&Value>; POOLS.len()] {
    let all = || variant["profiles"].as_array().into_iter().flatten();
    std::array::from_fn(|at| {
        all().find(|of| of["device_type"] == POOLS[at].name && of["estimated"] == false)
    })
}

fn settings(with_all: bool) -> String {
    let mut text = format!(
        r#"roles = ["api", "dispatcher", "autoscaler", "variant-gen"]

[fleet]
listen = "127.0.0.1:0"

[variants]
engines = ["emulated"]

[worker.emulated]
delays = false

[autoscaler]
hold_s = {HOLD_S}
"#
    );
    for of in &POOLS {
        let least = if with_all { of.least.max(1) } else { of.least };
        text.push_str(&format!(
            r#"
[worker.emulated.types.{name}]
speed = {speed:?}

[prices.devices.{name}]
hour_usd = {price:?}
start_s = {ASSUMED_START_S}

[autoscaler.pools.{name}]
least = {least}
most = {most}
"#,
            name = of.name,
            speed = of.speed,
            price = of.hour_usd,
            most = of.most,
        ));
    }
    text
}

fn are_measured(server: &Server) -> Result<bool> {
    for application in &APPLICATIONS {
        let variants = variants(server, application.name)?;
        // A dominated variant is never loaded, so it keeps its estimates.
        let mut loaded = variants.iter().filter(|of| of["dominated_by"].is_null());
        if variants.is_empty() || loaded.any(|of| measured(of).contains(&None)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether every pool has its least number of workers, no more are desired, and all planned variants are loaded.
fn are_settled(server: &Server) -> Result<bool> {
    let scaling = server.connect()?.get("/v1/scaling")?.json()?;
    let rows = |of: &str| scaling[of].as_array().cloned().unwrap_or_default();
    let pools = rows("pools");
    let pool_is_there = |of: &Pool| {
        let row = pools.iter().find(|row| row["device_type"] == of.name);
        let none = of.least == 0;
        row.map_or(none, |row| {
            row["up"] == of.least && row["desired"] == of.least && row["draining"] == 0
        })
    };
    let variants = rows("variants");
    let desired = variants.iter().filter(|row| !row["desired"].is_null());
    let mut ready = desired.map(|row| row["ready"].as_u64() > Some(0) && row["loading"] == 0);
    let is_loaded = ready.next().unwrap_or(false) && ready.all(|it| it);
    Ok(POOLS.iter().all(pool_is_there) && is_loaded)
}

/// Waits until `holds` returns true. An error counts as false.
fn until(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    shell::say(format!("waiting until {what}"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match holds() {
            Ok(true) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(false) if Instant::now() > deadline => {
                bail!(
                    "after {} s it does not hold that {what}",
                    PATIENCE.as_secs()
                )
            }
            _ => shell::pause(LOOK),
        }
    }
}
