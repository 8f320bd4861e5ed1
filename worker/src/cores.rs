//! Measures how much other processes use the cores that this process may run on, and keeps engines' threads to some of
//! the cores.
//!
//! The kernel counts the time of each core in hundredths of a second (`/proc/stat`). It counts the time of each thread
//! of this process, and of the processes in which its engines run models, with the core that the thread ran on last
//! (`/proc/N/task/*/stat`). The rest of a core's busy time belongs to other processes. If the kernel shows neither,
//! nothing is known.

use std::{collections::BTreeMap, fs, io, time::Duration};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use sextant_health::interference::CoreUse;

use crate::loader::turns;

/// Time over which use is measured; a count has steps of 10 ms.
const WINDOW: Duration = Duration::from_millis(500);

/// The counts at one moment, in hundredths of a second.
#[derive(Debug, Default)]
struct Counts {
    /// By core: busy time, and all time.
    cores: BTreeMap<usize, (u64, u64)>,
    /// By thread of these processes: the core that it ran on last, and its time.
    threads: BTreeMap<u64, (usize, u64)>,
}

/// How much processes other than this one and `own` use `cores`.
///
/// # Errors
/// If the kernel does not show the counts.
pub(crate) async fn others_use(cores: &[usize], own: &[u32]) -> io::Result<Vec<CoreUse>> {
    let before = Counts::read(own)?;
    tokio::time::sleep(WINDOW).await;
    let after = Counts::read(own)?;
    Ok(after.since(&before, cores))
}

/// Makes the threads that engines started keep to these cores: the threads of `processes`, and the threads of this
/// process that a load started and that have its name.
pub(crate) fn keep(cores: &[usize], processes: &[u32]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let of_processes = processes
        .iter()
        .flat_map(|process| threads(&format!("/proc/{process}/task")));
    let of_loads = threads("/proc/self/task").into_iter().filter(|thread| {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        name.is_ok_and(|name| name.trim_end() == turns::NAME)
    });
    for thread in of_processes.chain(of_loads) {
        let number = i32::try_from(thread).ok().and_then(Pid::from_raw);
        // The call fails harmlessly for a thread that has ended meanwhile.
        if let Some(Err(error)) = number.map(|number| sched_setaffinity(Some(number), &set)) {
            tracing::debug!(thread, %error, "a thread cannot be kept to cores");
        }
    }
}

/// Ids of the threads of a process.
fn threads(folder: &str) -> Vec<u64> {
    let tasks = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.collect()
}

// === impl Counts ===

impl Counts {
    fn read(processes: &[u32]) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let mut used_by = BTreeMap::new();
        let others = processes.iter().map(|it| format!("/proc/{it}/task"));
        for folder in std::iter::once("/proc/self/task".to_owned()).chain(others) {
            for id in threads(&folder) {
                // A thread that has ended meanwhile has no file.
                let text = fs::read_to_string(format!("{folder}/{id}/stat")).ok();
                used_by.extend(text.and_then(|text| Some((id, used(&text)?))));
            }
        }
        Ok(Self {
            cores: stat.lines().filter_map(core).collect(),
            threads: used_by,
        })
    }

    fn since(&self, before: &Self, cores: &[usize]) -> Vec<CoreUse> {
        let mut own: BTreeMap<usize, u64> = BTreeMap::new();
        for (id, (core, time)) in &self.threads {
            let known = before.threads.get(id).map_or(0, |(_, time)| *time);
            *own.entry(*core).or_default() += time.saturating_sub(known);
        }
        let shares = cores.iter().filter_map(|core| {
            let (busy, all) = self.cores.get(core)?;
            let (busy_before, all_before) = before.cores.get(core)?;
            let busy = busy.saturating_sub(*busy_before);
            let all = all.saturating_sub(*all_before).max(1);
            let others = busy.saturating_sub(own.get(core).copied().unwrap_or(0));
            Some(CoreUse {
                core: *core,
                others: (others as f64 / all as f64).clamp(0.0, 1.0),
            })
        });
        shares.collect()
    }
}

/// A line of `/proc/stat`: `cpu3 user nice system idle iowait irq softirq steal ..`.
fn core(line: &str) -> Option<(usize, (u64, u64))> {
    let (name, counts) = line.split_once(' ')?;
    let core = name.strip_prefix("cpu")?.parse().ok()?;
    let counts: Vec<u64> = counts
        .split_ascii_whitespace()
        .take(8)
        .map_while(|count| count.parse().ok())
        .collect();
    let idle = counts.get(3)? + counts.get(4).copied().unwrap_or(0);
    let all: u64 = counts.iter().sum();
    Some((core, (all.saturating_sub(idle), all)))
}

/// `/proc/N/stat` and that of a thread. After the name in brackets, user and system time are the 12th and 13th field,
/// and the core that it ran on last is the 37th.
pub(crate) fn used(stat: &str) -> Option<(usize, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let core = usize::try_from(number(36)?).ok()?;
    Some((core, number(11)? + number(12)?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::thread::{CpuSet, Pid, sched_getaffinity};

    use super::{Counts, core, keep, used};

    #[test]
    fn lines_of_the_kernel_are_read() {
        assert_eq!(core("cpu3 10 1 5 100 4 2 3 1 0 0"), Some((3, (22, 126))));
        assert_eq!(core("cpu  10 1 5 100 4 2 3 1 0 0"), None);
        assert_eq!(core("intr 12 3"), None);
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let line = format!("7 (a) b) {}", fields.join(" "));
        assert_eq!(used(&line), Some((39, 14 + 15)));
        assert_eq!(used("7 (a) S 1 2"), None);
    }

    #[test]
    fn what_this_process_used_is_not_that_of_others() {
        let before = Counts::default();
        let counts = |busy, own| Counts {
            cores: [(0, (busy, 100)), (1, (30, 100))].into(),
            threads: [(9, (0, own))].into(),
        };
        assert!(counts(90, 60).since(&before, &[0, 1]).is_empty());
        let uses = counts(90, 60).since(&counts(0, 0).at_zero(), &[0, 1, 2]);
        let shares: Vec<_> = uses.iter().map(|of| (of.core, of.others)).collect();
        assert_eq!(shares, [(0, 0.3), (1, 0.3)]);
    }

    #[test]
    fn the_threads_of_an_engines_process_keep_to_cores() {
        let own = sched_getaffinity(None).expect("the cores of this process");
        let mut all = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core));
        let core = all.next_back().expect("a core");
        let mut child = Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process starts");
        keep(&[core], &[child.id()]);
        let held = sched_getaffinity(Some(Pid::from_child(&child))).expect("it lives");
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| held.is_set(*core))
            .collect();
        assert_eq!(cores, [core]);
    }

    impl Counts {
        fn at_zero(mut self) -> Self {
            self.cores.values_mut().for_each(|of| *of = (0, 0));
            self
        }
    }
}
