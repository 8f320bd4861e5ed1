use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use sextant_provider::{
    MachineId, Pool, Provider, bind_provider_conformance,
    command::{Script, Settings},
    conformance::{Ground, MACHINE},
};
use tempfile::TempDir;

use super::support::pool;

/// The script `machines.sh` over a folder.
struct ScriptFixture {
    folder: TempDir,
}

bind_provider_conformance!(async {
    let folder = TempDir::new().expect("a folder");
    Some(ScriptFixture { folder })
});

impl ScriptFixture {
    /// Finds the machine in any pool.
    fn find(&self, id: &str) -> Option<PathBuf> {
        let pools = fs::read_dir(self.folder.path()).expect("the folder");
        let found = pools.flatten().map(|pool| pool.path().join(id));
        found.into_iter().find(|path| path.exists())
    }
}

fn kill(machine: &Path) {
    let pid = fs::read_to_string(machine.join("pid")).unwrap_or_default();
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    // A separate session is a separate group.
    pid.map(|pid| kill_process_group(pid, Signal::KILL));
}

impl Drop for ScriptFixture {
    fn drop(&mut self) {
        let pools = fs::read_dir(self.folder.path()).expect("the folder");
        for pool in pools.flatten() {
            let machines = fs::read_dir(pool.path()).into_iter().flatten();
            machines.flatten().for_each(|machine| kill(&machine.path()));
        }
    }
}

#[async_trait]
impl Ground for ScriptFixture {
    async fn provider(&self) -> Arc<dyn Provider> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/machines.sh");
        let folder = self.folder.path().to_str().expect("text");
        Arc::new(Script::new(Settings {
            program: "sh".to_owned(),
            arguments: vec![script.to_owned()],
            environment: BTreeMap::from(
                [("FOLDER", folder), ("MACHINE", MACHINE)]
                    .map(|(name, value)| (name.to_owned(), value.to_owned())),
            ),
            timeout_ms: 30_000,
            settle_ms: 30_000,
        }))
    }

    fn pool(&self, name: &str, end_ms: u64) -> Pool {
        pool(name, end_ms)
    }

    async fn is_up(&self, machine: &MachineId) -> bool {
        let log = self.find(&machine.0).map(|folder| folder.join("log"));
        log.is_some_and(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("up")))
    }

    async fn crash(&self, machine: &MachineId) {
        kill(&self.find(&machine.0).expect("its folder"));
    }
}
