//! The limits of a child.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope, path_beneath_rules,
};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, Signal},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// What a child may read: libraries, and what they look at to find out about the machine.
const READABLE: [&str; 14] = [
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/null",
    "/dev/urandom",
];

/// What a child may write beside: how its own peak memory is counted again.
const WRITABLE: [&str; 1] = ["/proc/self/clear_refs"];

/// The newest interface of the kernel whose restrictions are asked for; older ones give what they have.
const NEWEST: ABI = ABI::V6;

/// Called by the child first, while it has one thread: from now on it dies with whoever has started it,
/// leaves no image of its memory behind, takes no more address space than so many bytes, and is the first
/// to go where the machine runs out of memory. Where the kernel has Landlock (Linux 5.13; 6.7 for TCP) it
/// reads no files but those of the system, the folders of `libraries` and `folder`, writes none but the counter of its own
/// peak memory, and sends signals to nobody outside; where it has seccomp, the child makes no socket that leads out
/// of the machine.
///
/// # Errors
/// When the system refuses a limit.
pub fn confine(memory_bytes: u64, libraries: &[&Path], folder: Option<&Path>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let most = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    rustix::process::setrlimit(Resource::Core, most(0))?;
    rustix::process::setrlimit(Resource::As, most(memory_bytes))?;
    // A system without it kills whom it likes.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    seal(libraries, folder).map_err(io::Error::other)?;
    close_network().map_err(io::Error::other)
}

/// Refuses to make sockets other than those within the machine, whichever protocol they speak: Landlock watches TCP
/// alone. On processors that the filter does not know, and without it in the kernel, nothing is refused.
fn close_network() -> Result<(), seccompiler::Error> {
    let Ok(target) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(());
    };
    let elsewhere = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        libc::AF_UNIX as u64,
    )?;
    let rules = BTreeMap::from([
        (libc::SYS_socket, vec![SeccompRule::new(vec![elsewhere])?]),
        // Through it sockets are made as well.
        (libc::SYS_io_uring_setup, Vec::new()),
    ]);
    let refused = SeccompAction::Errno(libc::EACCES as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target)?;
    match apply_filter(&BpfProgram::try_from(filter)?) {
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
            if is_unknown(&error) =>
        {
            Ok(())
        }
        applied => applied,
    }
}

/// Whether the kernel does not know what it was asked for.
fn is_unknown(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::INVAL)
    )
}

/// Closes files, TCP and signals.
fn seal(libraries: &[&Path], folder: Option<&Path>) -> Result<(), RulesetError> {
    let libraries = libraries.iter();
    let libraries = libraries.filter_map(|library| library.canonicalize().ok());
    let folders = libraries.filter_map(|library| Some(library.parent()?.to_owned()));
    let readable = READABLE.iter().map(PathBuf::from);
    let readable = readable.chain(folders).chain(folder.map(Path::to_owned));
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        // Those that a system does not have are left out.
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(WRITABLE, AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(())
}
