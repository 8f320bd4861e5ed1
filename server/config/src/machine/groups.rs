//! Limits of the control groups in which this process is.
//!
//! A group's limit holds for all groups in it, so the least of the process's own group and of those around it counts:
//! systemd limits a slice, Kubernetes a pod, Docker a container. `/proc/self/cgroup` says which group the process is
//! in, `/proc/self/mountinfo` where the files of groups lie; in a container that is often the group itself, under a
//! path that the container does not see. The kernel has two kinds of hierarchies, and a process may be in both.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Files of a group with a bound of its memory, bytes, by the kind of hierarchy: beyond the first the kernel ends
/// processes, beyond `memory.high` it holds them up.
const FILES: [(&str, &[&str]); 2] = [
    ("cgroup2", &["memory.max", "memory.high"]),
    ("cgroup", &["memory.limit_in_bytes"]),
];

/// The least bound, bytes, of the memory of the groups in which the process is; `None` where nothing bounds it.
/// `root` is where the machine's files lie, `/`.
pub fn memory_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mounts = mounts.lines().filter_map(Mount::read);
    let bounds = mounts.filter_map(|mount| {
        let group = groups.lines().find_map(|line| mount.group(line))?;
        mount.least(root, group)
    });
    bounds.min()
}

/// Where a hierarchy that bounds memory can be seen.
struct Mount<'a> {
    /// The group that is seen at `point`.
    top: &'a Path,
    point: &'a str,
    is_unified: bool,
    files: &'static [&'static str],
}

impl<'a> Mount<'a> {
    /// From a line of `mountinfo`, where it is one of a hierarchy that bounds memory.
    fn read(line: &'a str) -> Option<Self> {
        let (place, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let kind = rest.next()?;
        let (_, files) = FILES.iter().find(|(name, _)| *name == kind)?;
        let is_unified = kind == "cgroup2";
        let mut options = rest.nth(1)?.split(',');
        if !is_unified && !options.any(|option| option == "memory") {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        Some(Self {
            top: Path::new(place.next()?),
            point: place.next()?,
            is_unified,
            files,
        })
    }

    /// The process's group of this hierarchy, where that is what a line of `cgroup` says.
    fn group<'b>(&self, line: &'b str) -> Option<&'b Path> {
        let mut parts = line.splitn(3, ':').skip(1);
        let mut controllers = parts.next()?.split(',');
        let is_this = match self.is_unified {
            true => controllers.all(str::is_empty),
            false => controllers.any(|name| name == "memory"),
        };
        is_this.then(|| parts.next().map(Path::new)).flatten()
    }

    /// The least bound from `group` up to what is seen at the top.
    fn least(&self, root: &Path, group: &Path) -> Option<u64> {
        let point = root.join(self.point.trim_start_matches('/'));
        let below = group.strip_prefix(self.top).unwrap_or(Path::new(""));
        let is_below = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let own = match is_below {
            true => point.join(below),
            false => point.clone(),
        };
        let around = own
            .ancestors()
            .take_while(|folder| folder.starts_with(&point));
        let files = around.flat_map(|folder| self.files.iter().map(|file| folder.join(file)));
        files.filter_map(bound).min()
    }
}

/// The number that a file holds; `max` is none.
fn bound(file: PathBuf) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
