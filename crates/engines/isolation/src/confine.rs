//! The limits of a child.

use std::{
    fs::File,
    io,
    os::{
        fd::{IntoRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal};

use sextant_engine::{RESERVED_FILES, reserve_memory_files};

mod calls;

/// What a child may read: libraries, and what they look at to find out about the machine.
const READABLE: [&str; 13] = [
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/null",
    "/dev/urandom",
];

/// What it may read of itself: the folder of a process also has what the whole machine is connected to.
const OF_ITSELF: [&str; 9] = [
    "/proc/self/auxv",
    "/proc/self/cgroup",
    "/proc/self/maps",
    "/proc/self/mountinfo",
    "/proc/self/smaps",
    "/proc/self/smaps_rollup",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
];

/// What a child may write beside: how its own peak memory is counted again.
const WRITABLE: [&str; 1] = ["/proc/self/clear_refs"];

/// What the kernel opens beside a program to start it, on the systems that there are.
const LOADERS: [&str; 6] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib/ld-musl-riscv64.so.1",
];

/// Most descriptors that a child may have: pipes and sockets hold memory that no other limit counts.
const MOST_DESCRIPTORS: u64 = 1024;

/// The newest interface of the kernel whose restrictions are asked for; older ones give what they have.
const NEWEST: ABI = ABI::V6;

/// Called by the child first, while it has one thread: from now on it dies with whoever has started it,
/// leaves no image of its memory behind, takes no more address space than so many bytes, and is the first
/// to go where the machine runs out of memory. Where the kernel has Landlock (Linux 5.13; 6.7 for TCP) it
/// reads no files but those of the system, the folders of `libraries` and `folder`, writes none but the counter of its own
/// peak memory, and sends signals to nobody outside; where it has seccomp, the child makes no socket and no process, reaches
/// none, and changes neither its limits nor what a file may be used for (`confine/calls.rs`).
///
/// # Errors
/// When the system refuses a limit.
pub fn confine(memory_bytes: u64, libraries: &[&Path], folder: Option<&Path>) -> io::Result<()> {
    limit(memory_bytes)?;
    // What the engines keep in files in memory no limit counts, so it is as much again at most.
    reserve_memory_files()?;
    rustix::process::setrlimit(Resource::Fsize, most(memory_bytes / RESERVED_FILES))?;
    let libraries = libraries.iter();
    let libraries = libraries.filter_map(|library| library.canonicalize().ok());
    let folders = libraries.filter_map(|library| Some(library.parent()?.to_owned()));
    let readable = folders.chain(folder.map(Path::to_owned)).collect();
    seal(readable, None).map_err(io::Error::other)?;
    calls::refuse(calls::Programs::None).map_err(io::Error::other)
}

/// Called by a child that becomes another program, in place of [`confine`]: the limits are the same, and stay when it does.
/// It reads the folders `readable` beside those of the system, makes no file in memory either, and becomes no other program
/// than `program`, again and again if it likes.
///
/// # Errors
/// When the system refuses a limit.
pub fn confine_program(memory_bytes: u64, program: &Path, readable: &[PathBuf]) -> io::Result<()> {
    limit(memory_bytes)?;
    rustix::process::setrlimit(Resource::Fsize, most(0))?;
    seal(readable.to_vec(), Some(program)).map_err(io::Error::other)?;
    calls::refuse(calls::Programs::Checked).map_err(io::Error::other)
}

/// The limits that every child has.
fn limit(memory_bytes: u64) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::setrlimit(Resource::Core, most(0))?;
    rustix::process::setrlimit(Resource::As, most(memory_bytes))?;
    let descriptors = rustix::process::getrlimit(Resource::Nofile).maximum;
    let descriptors = descriptors.map_or(MOST_DESCRIPTORS, |it| it.min(MOST_DESCRIPTORS));
    rustix::process::setrlimit(Resource::Nofile, most(descriptors))?;
    // A system without it kills whom it likes.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    Ok(())
}

fn most(bytes: u64) -> Rlimit {
    Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    }
}

/// Closes files, TCP and signals. Where the process becomes another program, it may become `program` alone.
fn seal(readable: Vec<PathBuf>, program: Option<&Path>) -> Result<(), RulesetError> {
    hold(OF_ITSELF.into_iter().chain(WRITABLE));
    let system = READABLE.iter().chain(&OF_ITSELF).map(PathBuf::from);
    let readable = system.chain(readable);
    let reading = match program {
        None => AccessFs::from_read(NEWEST),
        Some(_) => AccessFs::from_read(NEWEST) & !AccessFs::Execute,
    };
    let loaders = LOADERS.iter().map(Path::new).chain(program);
    let executable = loaders.filter(|_| program.is_some());
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        // Those that a system does not have are left out.
        .add_rules(path_beneath_rules(readable, reading))?
        .add_rules(path_beneath_rules(executable, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(WRITABLE, AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(())
}

/// Keeps files of `/proc` open for as long as the process lives: one that nobody has open may be another one the next
/// time, of which no rule knows.
fn hold(files: impl Iterator<Item = &'static str>) {
    let mut open = File::options();
    open.read(true).custom_flags(libc::O_PATH);
    for file in files.filter_map(|file| open.open(file).ok()) {
        // Never closed.
        let _: RawFd = file.into_raw_fd();
    }
}
