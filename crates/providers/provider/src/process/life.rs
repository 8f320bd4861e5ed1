//! Finds living processes in `/proc`, and sends signals to them.

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

/// The variable by which a child is found if its process id was not stored.
pub(super) const MARK: &str = "PROVIDED_MACHINE";

/// The variable with the name of its pool.
pub(super) const MARK_POOL: &str = "PROVIDED_MACHINE_POOL";

/// A process, distinguished from every other process that has the same id at another time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Its id.
    pub(super) pid: i32,
    /// When it was started: clock ticks since the system's start.
    pub(super) started: u64,
    /// Id of that start of the system.
    pub(super) boot: String,
}

/// What the system reports about a process.
struct Stat {
    /// Whether it has not ended.
    lives: bool,
    group: i32,
    started: u64,
}

/// The id of the present start of the system.
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// The process that now has this id, if there is one.
pub(super) fn process(pid: i32, boot: &str) -> io::Result<Option<Process>> {
    Ok(stat(pid)?.map(|stat| Process {
        pid,
        started: stat.started,
        boot: boot.to_owned(),
    }))
}

/// The oldest living process that has the machine's id, and its pool. Its children have the id too,
/// and are younger.
pub(super) fn marked(machine: &str, boot: &str) -> io::Result<Option<(Process, Option<String>)>> {
    let mut oldest: Option<(Process, Option<String>)> = None;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Environments of other users' processes cannot be read. Such processes are not children.
        let Ok(environment) = fs::read(Path::new("/proc").join(&name).join("environ")) else {
            continue;
        };
        if variable(&environment, MARK).as_deref() != Some(machine) {
            continue;
        }
        let Some(stat) = stat(pid)?.filter(|stat| stat.lives) else {
            continue;
        };
        if oldest
            .as_ref()
            .is_none_or(|(known, _)| stat.started < known.started)
        {
            let process = Process {
                pid,
                started: stat.started,
                boot: boot.to_owned(),
            };
            oldest = Some((process, variable(&environment, MARK_POOL)));
        }
    }
    Ok(oldest)
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    let found = environment.split(|byte| *byte == 0).find_map(|entry| {
        let rest = entry.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    String::from_utf8(found.to_vec()).ok()
}

fn stat(pid: i32) -> io::Result<Option<Stat>> {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = parse(&text).ok_or_else(|| io::Error::other("its `stat` has another form"))?;
    Ok(Some(stat))
}

/// The fields follow the program's name, which is in parentheses and may contain anything.
fn parse(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Some(Stat {
        lives: !matches!(*fields.first()?, "Z" | "X" | "x"),
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

// === impl Process ===

impl Process {
    /// Whether it has not ended. A process that has ended but was not reaped does not live.
    pub(super) fn lives(&self, boot: &str) -> io::Result<bool> {
        Ok(self.stat(boot)?.is_some())
    }

    fn stat(&self, boot: &str) -> io::Result<Option<Stat>> {
        if self.boot != boot {
            return Ok(None);
        }
        Ok(stat(self.pid)?.filter(|stat| stat.lives && stat.started == self.started))
    }

    /// Asks it to end, but not its children: it knows how they must end.
    pub(super) fn ask(&self, boot: &str) -> io::Result<()> {
        self.signal(boot, Signal::TERM, |_| Ok(()))
    }

    /// Ends it and its group at once.
    pub(super) fn kill(&self, boot: &str) -> io::Result<()> {
        self.signal(boot, Signal::KILL, |leader| {
            // Until the leader is reaped, no other group has its id.
            kill_process_group(leader, Signal::KILL)
        })
    }

    /// Opens a handle of the process that has the id, and then checks with the system whether it is
    /// this process.
    fn signal(
        &self,
        boot: &str,
        signal: Signal,
        group: impl FnOnce(Pid) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.pid > 1) else {
            return Ok(());
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(()),
            handle => handle?,
        };
        let Some(stat) = self.stat(boot)? else {
            return Ok(());
        };
        if stat.group == self.pid {
            ignore_gone(group(pid))?;
        }
        ignore_gone(pidfd_send_signal(&handle, signal))
    }
}

fn ignore_gone(sent: Result<(), Errno>) -> io::Result<()> {
    match sent {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}
