use tempfile::TempDir;

use super::*;

/// A machine's files, by path; `proc/meminfo` says 16 GiB.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let meminfo = ("proc/meminfo", "MemTotal:       16777216 kB\n");
    for (path, text) in files.iter().chain([&meminfo]) {
        let file = root.path().join(path);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }
    root
}

const UNIFIED: &str = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const MIXED: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

fn memory(files: &[(&str, &str)]) -> u64 {
    memory_bytes_below(machine(files).path())
}

#[test]
fn meminfo_is_in_kibibytes() {
    let text = "MemTotal:       16384 kB\nMemFree:        1 kB\n";
    assert_eq!(total_of(text), Some(16 << 20));
    assert_eq!(total_of("nothing"), None);
}

#[test]
fn the_machine_has_something() {
    assert!(cores() >= 1);
    assert!(memory_bytes() > 1 << 20);
}

#[test]
fn a_container_has_what_its_group_may_take() {
    let limited = |max: &str| {
        memory(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/memory.max", max),
        ])
    };
    assert_eq!(limited("4294967296\n"), 4 << 30);
    assert_eq!(limited("max\n"), 16 << 30);
    assert_eq!(limited("137438953472\n"), 16 << 30, "more than there is");
}

#[test]
fn the_least_of_the_groups_around_a_process_counts() {
    let nested = |own: &str, around: &str| {
        memory(&[
            ("proc/self/cgroup", "0::/system.slice/sextant.service\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/system.slice/sextant.service/memory.max", own),
            ("sys/fs/cgroup/system.slice/memory.max", around),
            // Of others.
            ("sys/fs/cgroup/user.slice/memory.max", "1048576\n"),
        ])
    };
    assert_eq!(nested("max\n", "3221225472\n"), 3 << 30);
    assert_eq!(nested("2147483648\n", "3221225472\n"), 2 << 30);
    assert_eq!(nested("max\n", "max\n"), 16 << 30);
}

#[test]
fn a_group_that_is_held_up_beyond_less_has_less() {
    let memory = memory(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("sys/fs/cgroup/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/memory.high", "3221225472\n"),
    ]);
    assert_eq!(memory, 3 << 30);
}

#[test]
fn hierarchies_of_the_first_kind_are_read_beside_the_second() {
    let memory = memory(&[
        ("proc/self/cgroup", "5:cpu:/\n4:memory:/pods/one\n0::/\n"),
        ("proc/self/mountinfo", MIXED),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        (
            "sys/fs/cgroup/memory/pods/memory.limit_in_bytes",
            "6442450944\n",
        ),
        (
            "sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        ("sys/fs/cgroup/unified/memory.max", "max\n"),
    ]);
    assert_eq!(memory, 6 << 30);
}

/// Docker shows a container the files of its own group alone, and the path that it has on the machine.
#[test]
fn a_group_is_found_where_the_container_sees_it() {
    let seen = |root: &str| {
        let mounts =
            format!("35 31 0:32 {root} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
        memory(&[
            ("proc/self/cgroup", "4:cpu,memory:/docker/0a1b\n"),
            ("proc/self/mountinfo", &mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5368709120\n"),
        ])
    };
    assert_eq!(seen("/docker/0a1b"), 5 << 30);
    assert_eq!(seen("/docker/elsewhere"), 5 << 30);
    assert_eq!(seen("/../.."), 5 << 30);
}

#[test]
fn without_groups_the_machine_counts() {
    assert_eq!(memory(&[]), 16 << 30);
    let nowhere = tempfile::tempdir().expect("a folder");
    assert_eq!(memory_bytes_below(nowhere.path()), ASSUMED_MEMORY_BYTES);
}
