//! Checks the data folder, the disk below it, ports, cores and memory.

use std::{
    fs::{self, File, TryLockError},
    io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use sextant_config::{Config, Role};

use super::Finding;

/// A disk with less room is soon full, bytes.
const FEW_BYTES: u64 = 5 << 30;

/// A disk with less room is full, bytes.
const NO_BYTES: u64 = 100 << 20;

/// Less memory for loaded variants holds few of them, bytes.
const LITTLE_MEMORY: u64 = 512 << 20;

/// Looks at what the machine has.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![folder(&config.data_dir), disk(&config.data_dir)];
    // Without the role `api`, the process serves its health and metrics there.
    let ports = [
        ("listen", Some(config.listen)),
        ("fleet.listen", config.fleet.listen),
        ("grpc.listen", config.grpc.listen),
    ];
    let stated = ports
        .into_iter()
        .filter_map(|(setting, at)| Some(port(setting, at?)));
    findings.extend(stated);
    if config.roles.contains(Role::Worker) {
        findings.extend([cores(config), memory(config)]);
    }
    findings
}

/// Whether the data folder can be written, by nobody else, and who has it.
fn folder(folder: &Path) -> Finding {
    let check = "data folder";
    let name = folder.display();
    let Ok(metadata) = fs::metadata(folder) else {
        return match writable(existing(folder)) {
            Ok(()) => Finding::ok(check, format!("`{name}` is created at the first start")),
            Err(error) => Finding::fail(
                check,
                format!("`{name}` cannot be created: {error}"),
                "name another `data_dir`, or change the rights of the folder above",
            ),
        };
    };
    if let Err(error) = writable(folder) {
        let advice = "change its owner or its rights, or name another `data_dir`";
        return Finding::fail(
            check,
            format!("`{name}` cannot be written: {error}"),
            advice,
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if is_locked(folder) {
        let found = format!("`{name}` is in use by a running service");
        let advice = "to start another service, stop that one or name another `data_dir`";
        return Finding::warn(check, found, advice);
    }
    match mode & 0o077 {
        0 => Finding::ok(
            check,
            format!("`{name}` can be written, by its owner alone"),
        ),
        _ => Finding::warn(
            check,
            format!("`{name}` is open to other users (mode {mode:o})"),
            format!("unless they share it on purpose: `chmod 700 {name}`"),
        ),
    }
}

/// The folder, or the nearest one above it that is there.
fn existing(folder: &Path) -> &Path {
    let mut above = folder.ancestors();
    let there = above.find(|path| path.is_dir());
    there.unwrap_or(Path::new("."))
}

fn writable(folder: &Path) -> io::Result<()> {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    Ok(rustix::fs::access(folder, access)?)
}

fn is_locked(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("lock")) else {
        return false;
    };
    // If no process holds the lock, it is released at once.
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Room on the disk of the data folder.
fn disk(folder: &Path) -> Finding {
    let check = "disk";
    let advice = "make room, or name a `data_dir` on another disk";
    let there = existing(folder);
    match rustix::fs::statvfs(there) {
        Err(error) => Finding::warn(
            check,
            format!(
                "the room on the disk of `{}` is unknown: {error}",
                there.display()
            ),
            advice,
        ),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{} free", gibibytes(free));
            match free {
                0..NO_BYTES => Finding::fail(check, found, advice),
                NO_BYTES..FEW_BYTES => Finding::warn(check, found, advice),
                _ => Finding::ok(check, found),
            }
        }
    }
}

/// Whether a service can listen there.
fn port(setting: &str, at: SocketAddr) -> Finding {
    let check = format!("port {setting}");
    match TcpListener::bind(at) {
        Ok(_) => Finding::ok(check, format!("`{at}` is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::warn(
            check,
            format!("something listens on `{at}`: perhaps a service that runs"),
            format!("to start another one, stop it or name another `{setting}`"),
        ),
        Err(error) => Finding::fail(
            check,
            format!("nothing can listen on `{at}`: {error}"),
            format!("name an address of this machine and a port that you may use in `{setting}`"),
        ),
    }
}

fn cores(config: &Config) -> Finding {
    let (wanted, usable) = (config.worker_cores(), usable_cores());
    let found = format!("batches run on {wanted} of {usable} cores");
    match wanted > usable {
        true => Finding::warn(
            "cores",
            found,
            "lower `worker.cores`, or give the process more",
        ),
        false => Finding::ok("cores", found),
    }
}

/// Cores that the process may use.
fn usable_cores() -> u16 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}

fn memory(config: &Config) -> Finding {
    let bytes = config.worker_memory_bytes();
    let found = format!("{} for loaded variants", gibibytes(bytes));
    match bytes < LITTLE_MEMORY {
        true => {
            let advice = "raise `worker.memory_bytes`, or give the process more";
            Finding::warn("memory", found, advice)
        }
        false => Finding::ok("memory", found),
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{examine::State, folder::FolderLock};

    #[test]
    fn a_folder_is_free_used_or_open_to_others() {
        let outer = tempfile::tempdir().expect("a folder");
        let data = outer.path().join("below/data");
        let absent = folder(&data);
        assert_eq!(
            (absent.state, data.exists()),
            (State::Ok, false),
            "{absent:?}"
        );
        let lock = FolderLock::take(&data).expect("free");
        let used = folder(&data);
        assert!(
            used.state == State::Warn && used.found.contains("in use"),
            "{used:?}"
        );
        drop(lock);
        assert_eq!(folder(&data).state, State::Ok);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("ours");
        let open = folder(&data);
        assert!(open.found.contains("mode 755"), "{open:?}");
    }

    #[test]
    fn a_process_of_any_role_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let config = Config {
            listen: listener.local_addr().expect("it is bound"),
            roles: sextant_config::Roles([Role::Worker].into()),
            ..Config::default()
        };
        let found = look(&config);
        let port = found.iter().find(|it| it.check == "port listen");
        assert_eq!(port.map(|it| it.state), Some(State::Warn), "{found:?}");
    }

    #[test]
    fn a_port_is_free_or_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        assert_eq!(port("listen", at).state, State::Warn);
        drop(listener);
        assert_eq!(port("listen", at).state, State::Ok);
        let elsewhere = "192.0.2.1:80".parse().expect("an address");
        assert_eq!(port("listen", elsewhere).state, State::Fail);
    }
}
