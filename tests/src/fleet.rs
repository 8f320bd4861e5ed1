//! Several processes with real stores; each test places the roles.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use sextant_test_servers::{postgres::Postgres, redis::Redis, s3::S3};
use tempfile::TempDir;

use crate::{
    Api, Machine, binary,
    cluster::SHORT_MEASUREMENTS,
    disk::Disk,
    process::{Launch, Process, children_of, command, command_of},
    wire::Wire,
};
use place::{Place, faketime, port_of};
use wires::Wires;

mod end;
mod place;
mod wires;

pub use wires::End;

/// The folder of the data of all processes.
const DATA: &str = "data";

/// How the processes of a fleet are started.
#[derive(Debug, Clone, Default)]
pub struct FleetSettings {
    /// `key=value` pairs for `--set` of every process.
    pub set: Vec<String>,
    /// Environment of every process.
    pub environment: Vec<(String, String)>,
    /// Size of a separate disk for the data folders of all processes, bytes; see [`Fleet::disk`].
    pub disk_bytes: Option<u64>,
}

/// The stores and the processes that use them. All end when it is dropped. The test fails if a process then does not
/// end by itself, or has panicked.
#[derive(Debug)]
pub struct Fleet {
    /// The metadata store.
    pub redis: Redis,
    /// The registry.
    pub postgres: Postgres,
    /// The artefact store.
    pub s3: S3,
    folder: TempDir,
    disk: Result<Disk, String>,
    settings: FleetSettings,
    members: BTreeMap<String, Member>,
}

/// A process of a fleet.
#[derive(Debug)]
struct Member {
    roles: String,
    set: Vec<String>,
    /// The binary, if it is not the one under test.
    binary: Option<PathBuf>,
    /// Where it runs.
    place: Place,
    /// The wires between it and the others and the stores, if it has any.
    wires: Option<Wires>,
    process: Option<Process>,
}

impl Fleet {
    /// Starts the stores, but no process.
    pub fn over_stores(settings: FleetSettings) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self {
            redis: Redis::start(),
            postgres: Postgres::start(),
            s3: S3::start(),
            disk: Disk::wanted(&folder.path().join(DATA), settings.disk_bytes),
            folder,
            settings,
            members: BTreeMap::new(),
        }
    }

    /// One process for each role, and two workers: `api`, `dispatcher`, `autoscaler`, `variant-gen`,
    /// `worker-1`, `worker-2`.
    pub fn start(settings: FleetSettings) -> Self {
        let mut fleet = Self::over_stores(settings);
        for role in ["dispatcher", "autoscaler", "variant-gen"] {
            fleet.spawn(role, role, &[]);
        }
        for worker in ["worker-1", "worker-2"] {
            fleet.spawn(worker, "worker", &[]);
        }
        fleet.spawn("api", "api", &[]);
        fleet
    }

    /// Starts a process called `name` with `roles`, and waits until it listens.
    pub fn spawn(&mut self, name: &str, roles: &str, set: &[&str]) {
        self.add(name, roles, set, Place::Here);
    }

    /// The same with another binary.
    pub fn spawn_of(&mut self, binary: &Path, name: &str, roles: &str) {
        self.put(name, roles, &[], Place::Here);
        if let Some(member) = self.members.get_mut(name) {
            member.binary = Some(binary.to_owned());
        }
        self.launch(name);
    }

    /// The same on another machine.
    pub fn spawn_on(&mut self, machine: &Machine, name: &str, roles: &str) {
        let offer = |url: String| {
            let (rest, port) = port_of(&url);
            let here = machine.offer(port);
            rest.replace("127.0.0.1:PORT", &here.to_string())
        };
        let stores = [self.redis.url(), self.postgres.url(), self.s3.endpoint()];
        let place = Place::Machine {
            wrap: machine.wrap(),
            address: machine.address(),
            stores: stores.map(offer),
        };
        self.add(name, roles, &[], place);
    }

    /// The same on this machine, at the address at which `machine` reaches it.
    pub fn spawn_beside(&mut self, machine: &Machine, name: &str, roles: &str) {
        self.add(name, roles, &[], Place::Beside(machine.address_here()));
    }

    /// The same with a wrong clock: `+1h`, `-30m`.
    pub fn spawn_at(&mut self, offset: &str, name: &str, roles: &str) {
        self.add(name, roles, &[], Place::Clock(offset.to_owned()));
    }

    /// The same with its name and its port for the others in the environment, as in a container.
    pub fn spawn_contained(&mut self, name: &str, roles: &str, environment: &[(String, String)]) {
        self.add(name, roles, &[], Place::Container(environment.to_vec()));
    }

    /// Declares a process that [`launching`](Self::launching) then starts, and whose wires can be disturbed. `clock` is
    /// as for [`spawn_at`](Self::spawn_at).
    pub(crate) fn name(&mut self, name: &str, roles: &str, set: &[&str], clock: Option<&str>) {
        let place = clock.map_or(Place::Here, |offset| Place::Clock(offset.to_owned()));
        self.put(name, roles, set, place);
        let wires = Wires::of(self);
        if let Some(member) = self.members.get_mut(name) {
            member.wires = Some(wires);
        }
    }

    /// A wire of a process, if it has wires.
    pub(crate) fn wire(&self, name: &str, end: End) -> Option<&Wire> {
        Some(self.members.get(name)?.wires.as_ref()?.end(end))
    }

    /// The disk with the data of the processes, or why there is none.
    pub fn disk(&self) -> Result<&Disk, &str> {
        self.disk.as_ref().map_err(|reason| &**reason)
    }

    fn add(&mut self, name: &str, roles: &str, set: &[&str], place: Place) {
        self.put(name, roles, set, place);
        self.launch(name);
    }

    fn put(&mut self, name: &str, roles: &str, set: &[&str], place: Place) {
        let member = Member {
            roles: roles.to_owned(),
            set: set.iter().map(|pair| (*pair).to_owned()).collect(),
            binary: None,
            place,
            wires: None,
            process: None,
        };
        let before = self.members.insert(name.to_owned(), member);
        assert!(before.is_none(), "`{name}` is there already");
    }

    /// Starts an ended process again with the same data.
    pub fn launch(&mut self, name: &str) {
        let member = &self.members[name];
        assert!(member.process.is_none(), "`{name}` runs already");
        let Launch { command, log } = self.launching(name);
        self.attach(name, Process::start(command, &log));
    }

    /// The launch of a process with the same data.
    pub(crate) fn launching(&self, name: &str) -> Launch {
        Launch {
            command: self.command(name, &self.members[name]),
            log: self.log_file(name),
        }
    }

    /// Takes over the process that [`launching`](Self::launching) started.
    pub(crate) fn attach(&mut self, name: &str, process: Process) {
        if let Some(member) = self.members.get_mut(name) {
            member.process = Some(process);
        }
    }

    /// A process, if it runs.
    pub(crate) fn running(&self, name: &str) -> Option<&Process> {
        self.members.get(name)?.process.as_ref()
    }

    /// Takes a process out in order to end it, if it runs.
    pub(crate) fn take_if_running(&mut self, name: &str) -> Option<Process> {
        self.members.get_mut(name)?.process.take()
    }

    fn command(&self, name: &str, member: &Member) -> Command {
        let here = [self.redis.url(), self.postgres.url(), self.s3.endpoint()];
        let here = match &member.wires {
            Some(wires) => wires.stores(here),
            None => here,
        };
        let disk = self.disk.as_ref().map(Disk::wrap).unwrap_or_default();
        let loopback = std::net::Ipv4Addr::LOCALHOST;
        let (wrap, address, [redis, postgres, s3]) = match &member.place {
            Place::Machine {
                wrap,
                address,
                stores,
            } => (wrap.clone(), *address, stores.clone()),
            Place::Beside(address) => (disk, *address, here),
            Place::Here | Place::Clock(_) | Place::Container(_) => (disk, loopback, here),
        };
        let binary = match &member.binary {
            Some(binary) => binary,
            None => binary::sextant(),
        };
        let mut command = command_of(binary, &wrap);
        command.args(["serve", "--role", &member.roles]);
        command.args(["--log-format", "json", "--listen", &format!("{address}:0")]);
        command.arg("--data-dir").arg(self.data().join(name));
        let reached = match (&member.wires, &member.place) {
            (_, Place::Container(_)) => Vec::new(),
            (wires, _) => {
                let mut reached = vec![format!("worker.name={name}")];
                match wires {
                    Some(wires) => reached.extend(wires.settings()),
                    None => reached.push(format!("fleet.listen={address}:0")),
                }
                reached
            }
        };
        let own = [
            "auth.mode=off".to_owned(),
            format!("metadata.url={redis}"),
            format!("registry.url={postgres}"),
            format!("objects.url=s3://{}", self.s3.bucket()),
            format!("objects.endpoint={s3}"),
        ];
        let short = SHORT_MEASUREMENTS.map(str::to_owned);
        let pairs = short.iter().chain(&reached).chain(&own);
        for pair in pairs.chain(&self.settings.set).chain(&member.set) {
            command.args(["--set", pair]);
        }
        command
            .env("AWS_ACCESS_KEY_ID", self.s3.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.s3.secret_key())
            .envs(self.settings.environment.iter().cloned());
        match &member.place {
            Place::Clock(offset) => {
                command
                    .env("LD_PRELOAD", faketime())
                    .env("FAKETIME", offset)
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            }
            Place::Container(environment) => {
                command.envs(environment.iter().cloned());
            }
            _ => {}
        }
        command
    }

    /// A client of the process `api`.
    pub fn api(&self) -> Api {
        self.api_of("api")
    }

    /// A client of a process.
    pub fn api_of(&self, name: &str) -> Api {
        Api::new(self.process(name).address())
    }

    /// A command of the binary's client for the process `api`.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut client = command();
        client.args(["--server", self.address("api")]);
        client.args(arguments).stdin(Stdio::null());
        client
    }

    /// `http://127.0.0.1:port` of a process.
    pub fn address(&self, name: &str) -> &str {
        self.process(name).address()
    }

    /// Ends a process like a power cut.
    pub fn kill(&mut self, name: &str) {
        self.take(name).kill();
    }

    /// Asks a process to end and waits for its end.
    pub fn stop(&mut self, name: &str) {
        let status = self.take(name).stop();
        assert!(status.success(), "`{name}` ended with {status}");
    }

    /// Waits until a process has ended by itself, and checks its end as if it had been asked to end.
    pub fn has_ended(&mut self, name: &str) {
        let status = self.take(name).ended();
        assert!(status.success(), "`{name}` ended with {status}");
    }

    /// Stops a process while it works.
    pub fn freeze(&self, name: &str) {
        self.process(name).signal(Signal::STOP);
    }

    /// Lets a stopped process continue.
    pub fn thaw(&self, name: &str) {
        self.process(name).signal(Signal::CONT);
    }

    /// The log of all lives of a process.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.log_file(name)).unwrap_or_default()
    }

    /// The data folder of a process.
    pub fn folder_of(&self, name: &str) -> PathBuf {
        let folder = self.data().join(name);
        self.disk
            .as_ref()
            .map_or(folder.clone(), |it| it.seen(&folder))
    }

    /// The id of a process.
    pub fn process_id(&self, name: &str) -> u32 {
        self.process(name).id()
    }

    /// Ids of processes that a process has started with this subcommand.
    pub fn children(&self, name: &str, subcommand: &str) -> Vec<u32> {
        children_of(self.process_id(name), subcommand)
    }

    fn process(&self, name: &str) -> &Process {
        let process = self.members[name].process.as_ref();
        process.unwrap_or_else(|| panic!("`{name}` does not run"))
    }

    fn take(&mut self, name: &str) -> Process {
        let member = self.members.get_mut(name).expect("a process of the fleet");
        member.process.take().expect("it runs")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join(DATA)
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }
}
