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

/// What a child may read: libraries, and the files from which libraries learn about the machine.
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

/// What a child may read about itself: the whole folder of a process would also show what the machine is connected to.
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

/// What a child may write in addition: the file that resets its own peak memory.
const WRITABLE: [&str; 1] = ["/proc/self/clear_refs"];

/// What the kernel opens beside a program to start it, on the known systems.
const LOADERS: [&str; 6] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib/ld-musl-riscv64.so.1",
];

/// Most descriptors of a child: pipes and sockets hold memory that no other limit counts.
const MOST_DESCRIPTORS: u64 = 1024;

/// The newest kernel interface whose restrictions are requested; an older kernel applies those that it has.
const NEWEST: ABI = ABI::V6;

/// A child calls this first, while it has one thread. From then on the child dies with its parent, leaves no core dump,
/// takes no more than `memory_bytes` of address space, and is killed first if the machine runs out of memory. If the
/// kernel has Landlock (Linux 5.13; 6.7 for TCP), the child reads no files but those of the system, the folders of
/// `libraries` and `folder`, writes none but the counter of its own peak memory, and sends no signal to other
/// processes. If the kernel has seccomp, the child makes no socket and no process, reaches none, and changes neither
/// its limits nor the rights of a file (`confine/calls.rs`).
///
/// # Errors
/// If the system refuses a limit.
pub fn confine(memory_bytes: u64, libraries: &[&Path], folder: Option<&Path>) -> io::Result<()> {
    limit(memory_bytes)?;
    // No limit counts what engines keep in files in memory; so these files may hold at most as much again.
    reserve_memory_files()?;
    rustix::process::setrlimit(Resource::Fsize, most(memory_bytes / RESERVED_FILES))?;
    let libraries = libraries.iter();
    let libraries = libraries.filter_map(|library| library.canonicalize().ok());
    let folders = libraries.filter_map(|library| Some(library.parent()?.to_owned()));
    let readable = folders.chain(folder.map(Path::to_owned)).collect();
    seal(readable, None).map_err(io::Error::other)?;
    calls::refuse(calls::Programs::None).map_err(io::Error::other)
}

/// A child that becomes another program calls this in place of [`confine`]: the limits are the same, and remain when it
/// does. It reads the folders `readable` in addition to those of the system, makes no file in memory either, and may
/// become no other program than `program`, as often as it likes.
///
/// # Errors
/// If the system refuses a limit.
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
    // Without this file, the kernel chooses which process to kill.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    Ok(())
}

fn most(bytes: u64) -> Rlimit {
    Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    }
}

/// Restricts files, TCP and signals. A process that becomes another program may become `program` alone.
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
        // Paths that the system does not have are left out.
        .add_rules(path_beneath_rules(readable, reading))?
        .add_rules(path_beneath_rules(executable, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(WRITABLE, AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(())
}

/// Keeps files of `/proc` open for as long as the process lives: otherwise the kernel may make a new file at the next
/// opening, which no rule covers.
fn hold(files: impl Iterator<Item = &'static str>) {
    let mut open = File::options();
    open.read(true).custom_flags(libc::O_PATH);
    for file in files.filter_map(|file| open.open(file).ok()) {
        // It is never closed.
        let _: RawFd = file.into_raw_fd();
    }
}
