//! A control group with a limit on memory, by the file system of version 2.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell;

/// Where the groups are.
const ROOT: &str = "/sys/fs/cgroup";

/// A group of our own; removed when dropped.
pub struct Group(PathBuf);

// === impl Group ===

impl Group {
    /// A group that may use so much memory and no swap; `None` where this process may make none.
    pub fn new(bytes: u64) -> Option<Self> {
        let root = Path::new(ROOT);
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        controllers.split_whitespace().find(|it| *it == "memory")?;
        // It may be on already.
        fs::write(root.join("cgroup.subtree_control"), "+memory").ok();
        let path = root.join(format!("sextant-bench-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join("memory.max"), bytes.to_string()).ok()?;
        // Machines without swap have no such file.
        fs::write(group.0.join("memory.swap.max"), "0").ok();
        Some(group)
    }

    /// The same command inside of the group.
    pub fn around(&self, command: &Command) -> Command {
        let mut around = shell::command("sh");
        around
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
            .arg(&self.0)
            .arg(command.get_program())
            .args(command.get_args());
        around
    }

    /// The most that it has used, where the kernel tells.
    pub fn peak_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.0.join("memory.peak")).ok()?;
        text.trim().parse().ok()
    }

    /// How many of its processes were ended for want of memory.
    pub fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let mut lines = events.lines();
        let count = lines.find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended.
        fs::remove_dir(&self.0).ok();
    }
}
