//! The state that all parts of a run share: the plan, the history, the service, and the addresses of its processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};

use super::service::Service;
use crate::chaos::{
    Plan,
    history::{Event, History},
};

/// Time between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Idle time after which a connection is not used again.
const IDLE: Duration = Duration::from_secs(5);
/// Number of starts of a process that may fail because a store is away.
const STARTS: usize = 60;
/// Time between two starts.
const START_EVERY: Duration = Duration::from_millis(500);

/// See the module.
pub struct Stage {
    /// The plan.
    pub plan: Plan,
    /// The history.
    pub history: Arc<History>,
    /// For everything but uploads.
    pub http: reqwest::Client,
    /// For bodies that may be refused before they are sent: their connection cannot be used again.
    pub uploads: reqwest::Client,
    /// The listener for webhooks.
    pub hooks: std::net::TcpListener,
    service: Mutex<Option<Service>>,
    addresses: RwLock<BTreeMap<String, String>>,
    dead: Mutex<BTreeSet<u32>>,
    /// See [`Event::Pace`].
    waited: Mutex<f64>,
}

impl Stage {
    /// Starts the stores, and the process if there is only one. Blocks.
    pub fn set(plan: Plan, history: Arc<History>) -> Self {
        // The client may have been built with TLS, which then requires a provider. Fails if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let service = Service::start(&plan);
        let address = |name: String| {
            let address = service.running(&name)?.address().to_owned();
            Some((name, address))
        };
        let addresses = plan.processes().into_iter().filter_map(address).collect();
        // Sooner than the service closes it, so that no query is sent on a connection that is being closed.
        let builder = || {
            reqwest::Client::builder()
                .no_proxy()
                .pool_idle_timeout(IDLE)
        };
        let uploads = builder().pool_max_idle_per_host(0).build();
        let hooks = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self {
            plan,
            history,
            http: builder().build().expect("a client"),
            uploads: uploads.expect("a client"),
            hooks,
            service: Mutex::new(Some(service)),
            addresses: RwLock::new(addresses),
            dead: Mutex::default(),
            waited: Mutex::default(),
        }
    }

    /// Starts the processes that do not run yet: first a fleet's first dispatcher, so that it leads and the plan names
    /// the target of its faults; then all others at once, because starting them one by one takes long. Blocks.
    pub fn start_all(&self) {
        let mut waiting = self.plan.processes();
        waiting.retain(|name| self.address(name).is_none());
        if let Some(first) = waiting.iter().position(|name| name == "dispatcher") {
            self.revive(&waiting.remove(first));
        }
        std::thread::scope(|scope| {
            for name in waiting {
                scope.spawn(move || self.revive(&name));
            }
        });
    }

    /// The address of a process, while it is up.
    pub fn address(&self, name: &str) -> Option<String> {
        let addresses = self.addresses.read();
        addresses
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// Stores how busy the machine is.
    pub fn waited(&self, part: f64) {
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }

    /// How busy it was at the last look.
    pub fn last_waited(&self) -> f64 {
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the service. Blocks.
    pub fn with<T>(&self, action: impl FnOnce(&mut Service) -> T) -> Option<T> {
        self.lock().as_mut().map(action)
    }

    /// Ends a process like a power cut. Blocks.
    pub fn kill(&self, name: &str) {
        let process = name.to_owned();
        self.history.note(Event::Down { process });
        self.reach(name, None);
        self.with(|service| service.kill(name));
    }

    /// Starts a killed process, repeatedly until it listens, as a supervisor would. Blocks.
    pub fn revive(&self, name: &str) {
        for _ in 0..STARTS {
            let Some(launch) = self.with(|service| service.launching(name)) else {
                return;
            };
            let process = name.to_owned();
            match launch.start() {
                Ok(started) => {
                    self.reach(name, Some(started.address().to_owned()));
                    self.with(|service| service.attach(name, started));
                    self.history.note(Event::Up { process });
                    return;
                }
                Err(cause) => {
                    let log = self.with(|service| service.log(name)).unwrap_or_default();
                    let last = log.lines().last().unwrap_or_default();
                    let cause = format!("{cause}: {last}");
                    self.history.note(Event::NotStarted { process, cause });
                }
            }
            std::thread::park_timeout(START_EVERY);
        }
    }

    /// Asks all processes to end, front ends first, records their exits, and leaves their logs in `folder`. Blocks.
    pub fn end(&self, folder: &Path) {
        let mut service = self.lock().take();
        let Some(running) = &mut service else { return };
        let mut names = self.plan.processes();
        names.reverse();
        for name in names {
            self.history.note(Event::Down {
                process: name.clone(),
            });
            if let Some(status) = running.stop(&name) {
                self.history.note(Event::Stopped {
                    process: name.clone(),
                    is_success: status.success(),
                    cause: status.to_string(),
                });
            }
            let log = running.log(&name);
            for line in log.lines().filter(|line| line.contains("panicked at")) {
                self.history.note(Event::Panicked {
                    process: name.clone(),
                    line: line.to_owned(),
                });
            }
            if let Err(error) = fs::write(folder.join(format!("{name}.log")), log) {
                let cause = format!("the log of `{name}` is lost: {error}");
                self.history.note(Event::Trouble { cause });
            }
        }
        // The drop checks what is left, and panics if that is too much.
        drop(service);
    }

    /// Checks every process. Blocks.
    fn look(&self) {
        let service = self.lock();
        let Some(service) = service.as_ref() else {
            return;
        };
        for process in self.plan.processes() {
            let Some(id) = service.running(&process).map(|running| running.id()) else {
                continue;
            };
            match resident_bytes(id) {
                Some(bytes) => self.history.note(Event::Memory { process, bytes }),
                None => {
                    let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
                    if dead.insert(id) {
                        self.history.note(Event::Died { process });
                    }
                }
            }
        }
    }

    fn reach(&self, name: &str, address: Option<String>) {
        let mut all = self
            .addresses
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match address {
            Some(address) => all.insert(name.to_owned(), address),
            None => all.remove(name),
        };
    }

    fn lock(&self) -> MutexGuard<'_, Option<Service>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks every process periodically.
pub async fn watch(stage: Arc<Stage>) -> Result<(), String> {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let stage = Arc::clone(&stage);
        super::blocking(move || stage.look()).await?;
    }
}

/// Resident memory of a process; `None` if it has ended.
fn resident_bytes(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
