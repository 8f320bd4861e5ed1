//! A control group with a limit on memory, in the file system of version 2, or of version 1 if that one controls
//! memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell;

/// The folder of the groups and the names of their files.
struct Version {
    root: &'static str,
    /// The largest memory, and the largest swap with or without memory.
    limit: &'static str,
    swap: &'static str,
    peak: &'static str,
    /// A file with a line `oom_kill COUNT`.
    events: &'static str,
}

const SECOND: Version = Version {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    swap: "memory.swap.max",
    peak: "memory.peak",
    events: "memory.events",
};

const FIRST: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};

/// A group of our own, which is removed when dropped.
pub struct Group {
    path: PathBuf,
    version: &'static Version,
}

// === impl Group ===

impl Group {
    /// A group that may use `bytes` of memory and no swap; `None` if this process may not make one.
    pub fn new(bytes: u64) -> Option<Self> {
        Self::of_the_second(bytes).or_else(|| {
            let with_swap = bytes.to_string();
            Self::make(&FIRST, bytes, &with_swap)
        })
    }

    fn of_the_second(bytes: u64) -> Option<Self> {
        let root = Path::new(SECOND.root);
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        controllers.split_whitespace().find(|it| *it == "memory")?;
        // The controller may be on already.
        fs::write(root.join("cgroup.subtree_control"), "+memory").ok();
        Self::make(&SECOND, bytes, "0")
    }

    fn make(version: &'static Version, bytes: u64, swap: &str) -> Option<Self> {
        let name = format!("sextant-bench-{}", std::process::id());
        let path = Path::new(version.root).join(name);
        fs::create_dir(&path).ok()?;
        let group = Self { path, version };
        fs::write(group.path.join(version.limit), bytes.to_string()).ok()?;
        // Machines without swap have no such file.
        fs::write(group.path.join(version.swap), swap).ok();
        Some(group)
    }

    /// The same command inside the group.
    pub fn around(&self, command: &Command) -> Command {
        let mut around = shell::command("sh");
        around
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
            .arg(&self.path)
            .arg(command.get_program())
            .args(command.get_args());
        around
    }

    /// The most memory that it has used, if the kernel reports it.
    pub fn peak_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(self.version.peak)).ok()?;
        text.trim().parse().ok()
    }

    /// How many of its processes were ended for lack of memory.
    pub fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.path.join(self.version.events)).unwrap_or_default();
        let mut lines = events.lines();
        let count = lines.find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group's processes have ended.
        fs::remove_dir(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this process may make a group, a process that takes more than the limit is ended and counted.
    #[test]
    fn what_takes_more_than_its_group_may_is_ended() {
        const BYTES: u64 = 64 << 20;
        let Some(group) = Group::new(BYTES) else {
            return;
        };
        let mut takes = Command::new("python3");
        takes.args(["-c", "print(len(bytearray(200 << 20)))"]);
        let status = group.around(&takes).status().expect("it starts");
        assert!(!status.success(), "{status}");
        assert_eq!(group.kills(), 1);
        let peak = group.peak_bytes().expect("the kernel tells");
        assert!(peak > BYTES / 2 && peak <= BYTES, "{peak}");
    }
}
