//! The system calls that a child may not make.
//!
//! Engines compute: they map memory, start threads and read files. Calls are refused that reach another process, make
//! one, change a file's rights, take memory that no limit counts, or make a socket. Landlock restricts files and covers
//! hardly any of these. The list names what is refused and not what is allowed, so that an engine's library of another
//! version goes on working.
//!
//! - **Processes**: a child's own process would outlive it, because the signal of its parent's death reaches nobody
//!   else. `clone3` hides its flags from a filter, so it is reported as missing, and the C library calls `clone`
//!   instead.
//! - **Signals, limits, scheduling**: only of the child itself. No limit is raised or lowered, also by a privileged
//!   child.
//! - **Credentials**: changing them would cancel the signal of the parent's death.

use std::{collections::BTreeMap, io};

use libc::c_long;
use rustix::io::Errno;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Refused with any arguments, on every processor.
const REFUSED: &[c_long] = &[
    // Sockets. A child gets its sockets from its parent, connected.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Its operations bypass the filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other programs, and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Limits and priorities.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    // Rights, owners and times of files.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // Memory that is not counted as the child's, or outlives it.
    libc::SYS_memfd_create,
    SYS_MEMFD_SECRET,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_userfaultfd,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    SYS_MOUNT_SETATTR,
    // Credentials.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    // The machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

/// The older calls of one processor.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_setrlimit,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
];
/// `setrlimit` alone, which the library does not name.
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[164];

// Numbers that are the same on all processors, and that the library lacks for some of them.
const SYS_MOUNT_SETATTR: c_long = 442;
const SYS_MEMFD_SECRET: c_long = 447;
const SYS_FCHMODAT2: c_long = 452;

/// Flags of `clone` that ask for a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// What `prctl` may not do: outlive the parent, and adopt orphans.
const PROCESS: [i32; 2] = [libc::PR_SET_PDEATHSIG, libc::PR_SET_CHILD_SUBREAPER];

/// What `fcntl` may not do: send signals to others about a file, and enlarge pipes.
const DESCRIPTOR: [i32; 4] = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX, libc::F_SETPIPE_SZ];
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// What `ioctl` may not do: the same, and typing into a terminal.
const DEVICE: [i32; 4] = [0x8901, 0x8902, 0x5412, 0x541C];

/// Which programs the process may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Programs {
    /// None.
    None,
    /// Those that Landlock allows.
    Checked,
}

/// Refuses the calls from now on, for this thread and those that it starts. If the filter does not know the processor,
/// or the kernel has no filter, nothing is refused.
pub(super) fn refuse(programs: Programs) -> Result<(), seccompiler::Error> {
    let Ok(target) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(());
    };
    let refused = SeccompAction::Errno(libc::EACCES as u32);
    let mut rules = rules(std::process::id())?;
    if programs == Programs::Checked {
        rules.remove(&libc::SYS_execve);
    }
    apply(SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refused,
        target,
    )?)?;
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(SeccompFilter::new(
        hidden,
        SeccompAction::Allow,
        absent,
        target,
    )?)?;
    #[cfg(target_arch = "x86_64")]
    apply_program(&other_numbers())?;
    Ok(())
}

/// The calls with their arguments, for the process `own`.
fn rules(own: u32) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let own = u64::from(own);
    let whole = REFUSED.iter().chain(OLDER);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        whole.map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_kill, vec![rule(&[is_not(0, own)?])?]);
    rules.insert(libc::SYS_tgkill, vec![rule(&[is_not(0, own)?])?]);
    rules.insert(
        libc::SYS_sched_setaffinity,
        vec![rule(&[is_not(0, 0)?, is_not(0, own)?])?],
    );
    let limits = vec![
        rule(&[is_not(0, 0)?, is_not(0, own)?])?,
        // The third argument is the new limit.
        rule(&[pointer_is_there(2)?])?,
    ];
    rules.insert(libc::SYS_prlimit64, limits);
    let mut clone = vec![rule(&[masked(0, libc::CLONE_THREAD, 0)?])?];
    for flag in NAMESPACES {
        clone.push(rule(&[masked(0, flag, flag)?])?);
    }
    rules.insert(libc::SYS_clone, clone);
    rules.insert(libc::SYS_prctl, any_of(0, &PROCESS)?);
    rules.insert(libc::SYS_fcntl, any_of(1, &DESCRIPTOR)?);
    rules.insert(libc::SYS_ioctl, any_of(1, &DEVICE)?);
    Ok(rules)
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.to_vec())
}

fn any_of(argument: u8, values: &[i32]) -> Result<Vec<SeccompRule>, BackendError> {
    let of = |value: &i32| {
        let value = u64::from(value.cast_unsigned());
        rule(&[SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            value,
        )?])
    };
    values.iter().map(of).collect()
}

fn is_not(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn pointer_is_there(argument: u8) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
}

fn masked(argument: u8, mask: i32, value: i32) -> Result<SeccompCondition, BackendError> {
    let [mask, value] = [mask, value].map(|it| u64::from(it.cast_unsigned()));
    let compared = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compared, value)
}

/// The same calls have other numbers for programs with short pointers (x32): those are reported as missing.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> BpfProgram {
    use seccompiler::sock_filter;
    const FIRST: u32 = 0x4000_0000;
    let step = |code: u16, jt: u8, jf: u8, k: u32| sock_filter { code, jt, jf, k };
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    vec![
        step(load, 0, 0, 0),
        step(at_least, 0, 1, FIRST),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn apply(filter: SeccompFilter) -> Result<(), seccompiler::Error> {
    apply_program(&BpfProgram::try_from(filter)?)
}

fn apply_program(program: &BpfProgram) -> Result<(), seccompiler::Error> {
    match apply_filter(program) {
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
            if is_unknown(&error) =>
        {
            Ok(())
        }
        applied => applied,
    }
}

/// Whether the kernel does not know the request.
fn is_unknown(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::INVAL)
    )
}
