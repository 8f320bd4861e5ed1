//! The service that is measured: every role but the worker's in one process over Redis, and pools of
//! emulated devices that the provider `process` starts and ends.

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
    /// The example's model that it has.
    pub model: &'static str,
    /// Longest time that an answer may take, ms.
    pub target_ms: f64,
    /// Its part of all queries.
    pub share: f64,
}

/// Half a second for the large model; a fifth of that for a model of which one device answers five
/// times as much.
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
    /// How many times as fast as a model's profile says.
    pub speed: f64,
    /// Price of one, US dollars an hour.
    pub hour_usd: f64,
    /// Fewest.
    pub least: u32,
    /// Most.
    pub most: u32,
}

/// A large device answers five times as much as a small one and costs three and a half times as much,
/// so it is worth it only while much is asked for.
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

/// How long workers stay that are not planned for any more, s: the trace's day takes minutes.
pub const HOLD_S: u32 = 30;

/// What the configuration says a start takes, s. Forecasts look as far ahead; what a start really takes
/// is measured.
pub const ASSUMED_START_S: u32 = 2;

/// How long the service may take until it is as it should be.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// A running service with everything measured.
pub struct Service {
    /// The process that answers.
    pub server: Server,
    /// Its program.
    pub binary: PathBuf,
    /// Its data folder.
    pub data: PathBuf,
    // Stops after the service.
    _redis: Redis,
}

/// Starts the service twice: once with a device of each type, on which the variants are measured, and
/// then as it is to be measured.
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
    /// What its program says of its version.
    pub fn version(&self) -> Result<String> {
        let text = shell::output(shell::command(&self.binary).arg("--version"))?;
        Ok(text.trim().trim_start_matches("sextant ").to_owned())
    }
}

/// What each application is asked.
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

/// The profiles of a variant on the types of the pools that were measured there, by position of the pool.
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
        // Nobody loads a variant that is dominated, so it keeps its estimates.
        let mut loaded = variants.iter().filter(|of| of["dominated_by"].is_null());
        if variants.is_empty() || loaded.any(|of| measured(of).contains(&None)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// As many workers as there are at least, none more is desired, and everything that is to be loaded is.
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

/// Waits until something holds. A question that could not be answered counts as no.
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
