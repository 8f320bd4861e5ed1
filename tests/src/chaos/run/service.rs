//! The processes of a setting, by name.

use std::process::ExitStatus;

use rustix::process::Signal;

use crate::{
    Disk, Fleet, FleetSettings, Settings, TestCluster, Wire,
    chaos::plan::{DISK_BYTES, FailureRates, LONE, Plan, STORAGE_BYTES, Setting},
    fleet::End,
    process::{Launch, Process},
};

/// The service of a run.
pub enum Service {
    /// One process with all roles.
    One(Box<TestCluster>),
    /// Several processes with stores.
    Fleet(Box<Fleet>),
}

impl Service {
    /// Starts the stores, and the process if there is only one.
    pub fn start(plan: &Plan) -> Self {
        let mut set: Vec<String> = SETTINGS.map(str::to_owned).to_vec();
        let share = |hundredths: u64| hundredths as f64 / 100.0;
        let FailureRates { loads, batches } = plan.failing;
        set.push(format!("worker.emulated.failing_loads={}", share(loads)));
        set.push(format!("worker.emulated.failing_runs={}", share(batches)));
        match &plan.setting {
            Setting::One => {
                set.push(format!("limits.storage_bytes={STORAGE_BYTES}"));
                Self::One(Box::new(TestCluster::start(Settings {
                    set,
                    faults: true,
                    disk_bytes: Some(DISK_BYTES),
                    ..Settings::default()
                })))
            }
            Setting::Fleet { wrong_clock, .. } => {
                let mut fleet = Fleet::over_stores(FleetSettings {
                    set,
                    disk_bytes: Some(DISK_BYTES),
                    ..FleetSettings::default()
                });
                let front_ends = plan.front_ends();
                for (number, name) in (plan.seed..).zip(plan.processes()) {
                    let clock = wrong_clock.as_ref().filter(|(process, _)| *process == name);
                    let clock = clock.map(|(_, offset)| &**offset);
                    // Every other front end keeps the tensors of its queries for the workers.
                    let at = front_ends.iter().position(|front_end| *front_end == name);
                    let keeps_tensors =
                        at.is_some_and(|at| (at as u64 + plan.seed).is_multiple_of(2));
                    // Different seeds, so that workers do not fail at the same time.
                    let seed = format!("worker.emulated.seed={number}");
                    let set = match keeps_tensors {
                        true => vec![&*seed, KEEPS_TENSORS],
                        false => vec![&*seed],
                    };
                    fleet.name(&name, role(&name), &set, clock);
                }
                Self::Fleet(Box::new(fleet))
            }
        }
    }

    /// A process, if it runs.
    pub fn running(&self, name: &str) -> Option<&Process> {
        match self {
            Self::One(cluster) => cluster.running(),
            Self::Fleet(fleet) => fleet.running(name),
        }
    }

    /// Ends a process like a power cut, if it runs.
    pub fn kill(&mut self, name: &str) {
        if let Some(process) = self.take(name) {
            process.kill();
        }
    }

    /// Signals a process, if it runs.
    pub fn signal(&self, name: &str, signal: Signal) {
        if let Some(process) = self.running(name) {
            process.signal(signal);
        }
    }

    /// The launch of a process that was started before.
    pub fn launching(&self, name: &str) -> Launch {
        match self {
            Self::One(cluster) => cluster.launching(),
            Self::Fleet(fleet) => fleet.launching(name),
        }
    }

    /// Takes over the process that [`launching`](Self::launching) started.
    pub fn attach(&mut self, name: &str, process: Process) {
        match self {
            Self::One(cluster) => cluster.attach(process),
            Self::Fleet(fleet) => fleet.attach(name, process),
        }
    }

    /// Asks a process to end and returns its exit status, if it runs.
    pub fn stop(&mut self, name: &str) -> Option<ExitStatus> {
        Some(self.take(name)?.stop())
    }

    /// The log of all lives of a process.
    pub fn log(&self, name: &str) -> String {
        match self {
            Self::One(cluster) => cluster.log(),
            Self::Fleet(fleet) => fleet.log(name),
        }
    }

    /// The stores; `None` if there is one process.
    pub fn stores(&mut self) -> Option<&mut Fleet> {
        match self {
            Self::One(_) => None,
            Self::Fleet(fleet) => Some(fleet),
        }
    }

    /// The disk with the data of every process, or why there is none.
    pub fn disk(&self) -> Result<&Disk, &str> {
        match self {
            Self::One(cluster) => cluster.disk(),
            Self::Fleet(fleet) => fleet.disk(),
        }
    }

    /// A wire of a process; `None` if there is one process.
    pub fn wire(&self, name: &str, end: End) -> Option<&Wire> {
        match self {
            Self::One(_) => None,
            Self::Fleet(fleet) => fleet.wire(name, end),
        }
    }

    fn take(&mut self, name: &str) -> Option<Process> {
        match self {
            Self::One(cluster) => cluster.take(),
            Self::Fleet(fleet) => fleet.take_if_running(name),
        }
    }
}

/// Settings of every process: little room for inputs, so that a leak is noticed soon; a lease that can lapse during a
/// run; and registrations that give way soon.
const SETTINGS: [&str; 6] = [
    "variants.engines=emulated",
    "worker.cores=1",
    "worker.io_bytes=131072",
    "limits.shutdown_delay_ms=1200",
    "fleet.worker_lease_ms=4000",
    "variants.slow_registration_ms=1000",
];

/// The setting of a front end whose tensors go directly to the workers and back.
const KEEPS_TENSORS: &str = "fleet.inline_bytes=0";

/// The role of a process of a fleet: its name begins with it.
fn role(name: &str) -> &'static str {
    let roles = ["api", "dispatcher", "autoscaler", "variant-gen", "worker"];
    let role = roles.into_iter().find(|role| name.starts_with(role));
    role.unwrap_or(LONE)
}
