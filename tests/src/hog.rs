//! Other users of the machine: threads that occupy a core, and the moving of threads to one core.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Threads of this process that keep a core busy until this is dropped.
#[derive(Debug)]
pub struct Hog {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hog {
    /// Starts this number of threads on a core. Another thread on it gets one part in `threads` and one.
    pub fn on(core: usize, threads: usize) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let spin = |stop: Arc<AtomicBool>| {
            move || {
                sched_setaffinity(None, &only(core)).expect("the core is there");
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..threads).map(|_| thread::spawn(spin(Arc::clone(&stop))));
        Self {
            threads: threads.collect(),
            stop,
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread panics if it cannot have its core.
            thread.join().ok();
        }
    }
}

/// The cores that this process may use.
pub fn cores() -> Vec<usize> {
    let own = sched_getaffinity(None).expect("the cores of this process");
    cores_in(&own)
}

/// Moves the threads of a process whose names have this prefix to a core. Returns their number.
pub fn move_threads(process: u32, name: &str, core: usize) -> usize {
    let threads = threads(process, name);
    for thread in &threads {
        // A thread that has ended meanwhile cannot be moved.
        sched_setaffinity(Some(*thread), &only(core)).ok();
    }
    threads.len()
}

/// The cores that each of the threads of a process with this name's prefix may use.
pub fn cores_of_threads(process: u32, name: &str) -> Vec<Vec<usize>> {
    let threads = threads(process, name).into_iter();
    let cores = threads.filter_map(|thread| sched_getaffinity(Some(thread)).ok());
    cores.map(|cores| cores_in(&cores)).collect()
}

fn threads(process: u32, name: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let named = tasks.filter_map(|task| {
        let task = task.ok()?;
        let own = fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        own.starts_with(name).then_some(Pid::from_raw(number))?
    });
    named.collect()
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

fn cores_in(set: &CpuSet) -> Vec<usize> {
    let all = 0..CpuSet::MAX_CPU;
    all.filter(|core| set.is_set(*core)).collect()
}
