//! The services of `docker-compose.yml` under a project of the test's own.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::autoscale;
use crate::containers::engine::docker;
use crate::http::Connection;
use crate::provision::compose::Compose;
use crate::{paths, server, shell};

/// The name of the test's Compose project.
const PROJECT: &str = "sextant-compose-test";
/// Longest time until all containers are healthy.
const HEALTHY_WITHIN: Duration = Duration::from_secs(180);
/// Profiles that the test uses. Commands that look something up or take it down use all of them.
const PROFILES: [&str; 2] = ["standby", "observe"];
/// The engine's socket.
const SOCKET: &str = "/var/run/docker.sock";
/// The files for workers that the autoscaler starts and ends.
const FILES: [&str; 3] = [
    "docker-compose.yml",
    "deploy/compose/autoscale.yml",
    "xtask/src/compose_test/emulated.yml",
];
/// The label by which Compose recognises its containers.
const LABEL: &str = "com.docker.compose.project";

/// The files that describe the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `docker-compose.yml`, with a fixed number of workers.
    Fixed,
    /// As many workers as the load needs, with emulated devices.
    Autoscaled,
}

/// The services; they are taken down with their volumes on drop.
pub struct Stack {
    /// The kind of services.
    pub kind: Kind,
    compose: Compose,
    image: String,
    keep: bool,
    /// Where the front end is published.
    pub api: SocketAddr,
    /// Where Prometheus is published.
    pub prometheus: SocketAddr,
    /// Where Grafana is published.
    pub grafana: SocketAddr,
}

/// A container as the engine lists it.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    state: String,
    status: String,
}

impl Stack {
    /// A stack of `image` on free ports, without anything of an earlier run.
    pub fn new(compose: Compose, image: String, keep: bool) -> Result<Self> {
        let stack = Self {
            kind: Kind::Fixed,
            compose,
            image,
            keep,
            api: server::free_address()?,
            prometheus: server::free_address()?,
            grafana: server::free_address()?,
        };
        stack.down()?;
        Ok(stack)
    }

    /// Replaces the running services with those of another kind.
    pub fn turn_into(&mut self, kind: Kind) -> Result<()> {
        self.down()?;
        self.kind = kind;
        Ok(())
    }

    /// Names of the running containers that the autoscaler has started.
    pub fn autoscaled(&self) -> Result<Vec<String>> {
        let fleet = format!("label=sextant.fleet={PROJECT}");
        let list = ["ps", "--filter", &fleet, "--format", "{{.Names}}"];
        let list = shell::output(&mut docker(&list))?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// `compose ARGUMENTS` of this project, with every profile that the test uses.
    pub fn compose(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare();
        for profile in PROFILES {
            command.args(["--profile", profile]);
        }
        command.args(arguments);
        command
    }

    /// `compose up` as users type it: without a profile, in the background, until all services are healthy.
    pub fn up(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.bare();
        command.args(["up", "--detach", "--wait"]).args(arguments);
        shell::run(&mut command)
    }

    /// `compose up` of one service, without those that it depends on.
    pub fn up_one(&self, service: &str, arguments: &[&str]) -> Result<()> {
        let up = ["up", "--detach", "--wait", "--no-deps"];
        shell::run(&mut self.compose(&[&up, arguments, &[service]].concat()))
    }

    /// Ends and removes containers, networks and volumes.
    pub fn down(&self) -> Result<()> {
        let down = ["down", "--volumes", "--remove-orphans"];
        shell::run(&mut self.compose(&down))
    }

    /// Fails if the engine still has something of the project.
    pub fn ensure_gone(&self) -> Result<()> {
        let filter = format!("label={LABEL}={PROJECT}");
        for kind in ["container", "volume", "network"] {
            let all: &[&str] = if kind == "container" { &["--all"] } else { &[] };
            let list = [&[kind, "ls", "--quiet", "--filter", &filter], all].concat();
            let left = shell::output(&mut docker(&list))?;
            ensure!(
                left.trim().is_empty(),
                "left after `down`: {kind} {}",
                left.trim()
            );
        }
        Ok(())
    }

    /// The images that the services need, without the one that is built here.
    pub fn images(&self) -> Result<Vec<String>> {
        let list = shell::output(&mut self.compose(&["config", "--images"]))?;
        let names = list.lines().map(str::trim);
        let others = names.filter(|name| !name.is_empty() && *name != self.image);
        Ok(others.map(str::to_owned).collect())
    }

    /// The containers of a service, in the order of their creation.
    pub fn containers(&self, service: &str) -> Result<Vec<Container>> {
        let mut all = self.all()?;
        all.retain(|container| container.service == service);
        all.reverse();
        ensure!(!all.is_empty(), "`{service}` has no container");
        Ok(all)
    }

    /// Waits until every container is healthy.
    pub fn await_healthy(&self) -> Result<()> {
        let deadline = Instant::now() + HEALTHY_WITHIN;
        loop {
            let all = self.all()?;
            let waited_for = |of: &&Container| !of.is_healthy();
            let Some(ill) = all.iter().find(waited_for) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                bail!(
                    "a container of `{}` is not healthy after {} s: {}",
                    ill.service,
                    HEALTHY_WITHIN.as_secs(),
                    ill.status
                );
            }
            shell::pause(Duration::from_millis(250));
        }
    }

    /// Waits until the front end knows exactly `count` workers.
    pub fn await_workers(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + HEALTHY_WITHIN;
        loop {
            let workers = self.get("/v1/workers");
            let known = workers.map(|body| body["workers"].as_array().map_or(0, Vec::len));
            if known.as_ref().is_ok_and(|known| *known == count) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the front end knows {known:?} workers, not {count}"
            );
            shell::pause(Duration::from_millis(250));
        }
    }

    /// `GET path` of the front end as JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        Connection::open(self.api, Duration::from_secs(30))?
            .get(path)?
            .json()
    }

    /// The response of a container to `GET path` on its own port, headers included.
    pub fn get_inside(&self, container: &Container, path: &str) -> Result<String> {
        // The image has bash and no HTTP client; its port is not published.
        let script = "exec 3<>/dev/tcp/localhost/8080 && \
                      printf 'GET %s HTTP/1.0\\r\\n\\r\\n' \"$0\" >&3 && cat <&3";
        shell::output(&mut docker(&[
            "exec",
            &container.id,
            "bash",
            "-c",
            script,
            path,
        ]))
    }

    /// Kills the process of a container as a crash would, and waits until the engine has started it again.
    pub fn crash(&self, container: &Container) -> Result<()> {
        // `docker kill` counts as a stop by hand, after which an engine starts nothing again. A process
        // of its machine's name space may kill what is the first process in its own.
        let before = container.inspect("{{.State.Pid}}")?;
        let script = "kill -KILL \"$0\"";
        let sh = ["--entrypoint", "bash", &self.image, "-c", script, &before];
        let run = ["run", "--rm", "--pid=host", "--user=0"];
        shell::run(&mut docker(&[&run[..], &sh].concat()))?;
        let deadline = Instant::now() + HEALTHY_WITHIN;
        loop {
            let now = container.inspect("{{.State.Pid}}")?;
            if now != before && now != "0" {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the engine has not started `{}` again",
                container.service
            );
            shell::pause(Duration::from_millis(100));
        }
    }

    /// Takes a container out of the project's network, or back in.
    pub fn network(&self, container: &Container, connected: bool) -> Result<()> {
        let network = format!("{PROJECT}_default");
        let id = &container.id;
        let change: &[&str] = match connected {
            true => &["connect", "--alias", &container.service, &network, id],
            false => &["disconnect", &network, id],
        };
        shell::run(docker(&["network"]).args(change))
    }

    /// `sextant` of the image as a client of the front end, with the digits example in `/digits`.
    pub fn client(&self) -> Command {
        let digits = paths::root().join("examples/digits");
        let mount = format!("{}:/digits:ro", digits.display());
        let network = format!("{PROJECT}_default");
        let run = ["run", "--rm", "--network", &network, "--volume", &mount];
        let client = [&self.image, "--server", "http://api:8080"];
        docker(&[&run[..], &client].concat())
    }

    /// Writes what the containers logged into a file.
    pub fn save_logs(&self) -> Result<PathBuf> {
        let logs = shell::output(&mut self.compose(&["logs", "--no-color", "--timestamps"]))?;
        let file = paths::empty_target("compose-test")?.join("logs.txt");
        std::fs::write(&file, logs).context("cannot write the logs")?;
        Ok(file)
    }

    fn bare(&self) -> Command {
        let mut command = self.compose.command();
        if self.kind == Kind::Autoscaled {
            for file in FILES {
                command.args(["--file", file]);
            }
            command.envs(autoscale::SETTINGS);
            if let Ok(socket) = std::fs::metadata(SOCKET) {
                command.env("DOCKER_GID", socket.gid().to_string());
            }
        }
        command
            .args(["--project-name", PROJECT])
            .env("SEXTANT_IMAGE", &self.image)
            .env("SEXTANT_PORT", self.api.port().to_string())
            .env("PROMETHEUS_PORT", self.prometheus.port().to_string())
            .env("GRAFANA_PORT", self.grafana.port().to_string());
        command
    }

    /// All containers, the newest first.
    fn all(&self) -> Result<Vec<Container>> {
        let filter = format!("label={LABEL}={PROJECT}");
        let format = "{{.ID}}\t{{.Label \"com.docker.compose.service\"}}\t{{.State}}\t{{.Status}}";
        let list = ["ps", "--all", "--filter", &filter, "--format", format];
        let list = shell::output(&mut docker(&list))?;
        list.lines().map(Container::parse).collect()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.keep {
            match self.all() {
                Ok(all) if all.is_empty() => shell::say("kept: nothing, as nothing is up"),
                Ok(all) if all.iter().any(|it| it.service == "api" && it.is_healthy()) => {
                    shell::say(format!("kept: the API is on http://{}", self.api));
                }
                Ok(all) => shell::say(format!(
                    "kept: {} containers of the project `{PROJECT}`; the API is not up",
                    all.len()
                )),
                Err(error) => shell::say(format!("{error:#}")),
            }
        } else if let Err(error) = self.down() {
            shell::say(format!("{error:#}"));
        }
    }
}

impl Container {
    fn parse(line: &str) -> Result<Self> {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().context("the engine's list has another form");
        Ok(Self {
            id: next()?,
            service: next()?,
            state: next()?,
            status: next()?,
        })
    }

    fn inspect(&self, format: &str) -> Result<String> {
        let value = shell::output(&mut docker(&["inspect", "--format", format, &self.id]))?;
        Ok(value.trim().to_owned())
    }

    fn is_healthy(&self) -> bool {
        self.state == "running" && self.status.contains("(healthy)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_starts_is_not_healthy_yet() {
        let healthy = |status: &str| {
            let container = Container::parse(&format!("1a\tworker\trunning\t{status}"));
            container.unwrap().is_healthy()
        };
        assert!(healthy("Up 2 minutes (healthy)"));
        assert!(!healthy("Up 2 seconds (health: starting)"));
        assert!(!healthy("Up 2 minutes (unhealthy)"));
        assert!(Container::parse("1a\tworker").is_err());
    }
}
