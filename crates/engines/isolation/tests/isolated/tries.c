// A library in the place of an engine's that has been taken over: as soon as it is loaded it tries what it could do to
// others, and prints a line for each: its name, and `allowed` or what it was refused with.
//
// The environment names the others: VICTIM (a process), SOCKET (a path that somebody listens at), PORT (a port of this
// machine that somebody listens at), FILE (a file of the user), PARENT (who has started this process).

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static pid_t victim;
static pid_t parent;
static const char *file;

static void told(const char *name, long done) {
    // What has no answer would not be told from what was refused.
    if (done >= 0)
        printf("%s allowed\n", name);
    else
        printf("%s refused %s\n", name, strerrorname_np(errno));
    fflush(stdout);
}

#define TRY(name, call) do { errno = 0; told(name, (long)(call)); } while (0)

static long connect_path(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    return made < 0 ? -1 : connect(made, (struct sockaddr *)&to, sizeof to);
}

static long connect_port(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_STREAM, 0);
    return made < 0 ? -1 : connect(made, (struct sockaddr *)&to, sizeof to);
}

// A socket that is there already, to somebody else.
static long connect_again(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int ends[2];
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0)
        return -1;
    return connect(ends[0], (struct sockaddr *)&to, sizeof to);
}

static long limit(pid_t of, int resource, rlim_t bytes) {
    struct rlimit wanted = {bytes, bytes};
    return prlimit(of, resource, &wanted, NULL);
}

static long fork_away(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        pause();
        _exit(0);
    }
    if (child > 0)
        kill(child, SIGKILL);
    return child;
}

static long clone_raw(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}

static long clone_three(void) {
    uint64_t arguments[8] = {0};
    arguments[4] = SIGCHLD;
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return child;
}

static long run_program(void) {
    char *const arguments[] = {"/bin/true", NULL};
    return execve("/bin/true", arguments, NULL);
}

static long affinity(pid_t of) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(0, &cores);
    return sched_setaffinity(of, sizeof cores, &cores);
}

static long schedule(pid_t of) {
    struct sched_param how = {0};
    return sched_setscheduler(of, SCHED_BATCH, &how);
}

static long peek(pid_t of) {
    char bytes[8];
    struct iovec here = {bytes, sizeof bytes}, there = {(void *)0x400000, sizeof bytes};
    return process_vm_readv(of, &here, 1, &there, 1, 0);
}

static long signal_by_file(pid_t to) {
    int ends[2];
    if (pipe(ends) < 0)
        return -1;
    return fcntl(ends[0], F_SETOWN, to);
}

static long perf(void) {
    struct perf_event_attr what = {.type = PERF_TYPE_SOFTWARE, .size = sizeof what};
    return syscall(SYS_perf_event_open, &what, parent, -1, -1, 0);
}

static long ring(void) {
    struct io_uring_params how = {0};
    return syscall(SYS_io_uring_setup, 4, &how);
}

static long queue_signal(pid_t to) {
    union sigval nothing = {0};
    return sigqueue(to, 0, nothing);
}

static long names(void) {
    struct stat found;
    return stat("/etc/shadow", &found);
}

static void sockets(void) {
    int port = atoi(getenv("PORT"));
    TRY("socket-unix", socket(AF_UNIX, SOCK_STREAM, 0));
    TRY("socket-datagram", socket(AF_UNIX, SOCK_DGRAM, 0));
    TRY("socket-tcp", socket(AF_INET, SOCK_STREAM, 0));
    TRY("socket-udp6", socket(AF_INET6, SOCK_DGRAM, 0));
    TRY("socket-netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    TRY("socket-vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
    TRY("connect-path", connect_path(getenv("SOCKET")));
    TRY("connect-docker", connect_path("/var/run/docker.sock"));
    TRY("connect-port", connect_port(port));
    TRY("connect-again", connect_again(getenv("SOCKET")));
    TRY("io-uring", ring());
}

static void others(void) {
    TRY("kill-victim", kill(victim, 0));
    TRY("kill-parent", kill(parent, 0));
    TRY("kill-group", kill(0, 0));
    TRY("kill-all", kill(-1, 0));
    TRY("tgkill", syscall(SYS_tgkill, victim, victim, 0));
    TRY("tkill", syscall(SYS_tkill, victim, 0));
    TRY("sigqueue", queue_signal(victim));
    TRY("pidfd", syscall(SYS_pidfd_open, victim, 0));
    TRY("signal-by-file", signal_by_file(victim));
    TRY("ptrace", ptrace(PTRACE_SEIZE, victim, NULL, NULL));
    TRY("read-memory", peek(victim));
    TRY("open-memory", open("/proc/1/mem", O_RDONLY));
    TRY("perf", perf());
    TRY("limit-victim", limit(victim, RLIMIT_CPU, 1000));
    TRY("limit-parent", limit(parent, RLIMIT_CPU, 1000));
    TRY("affinity-victim", affinity(victim));
    TRY("affinity-parent", affinity(parent));
    TRY("schedule-victim", schedule(victim));
    TRY("priority-victim", setpriority(PRIO_PROCESS, victim, 19));
}

static void processes(void) {
    TRY("fork", fork_away());
    TRY("clone", clone_raw(0));
    TRY("clone3", clone_three());
    TRY("clone-user", clone_raw(CLONE_NEWUSER));
    TRY("exec", run_program());
    TRY("outlive", prctl(PR_SET_PDEATHSIG, 0));
    TRY("adopt", prctl(PR_SET_CHILD_SUBREAPER, 1));
    TRY("other-user", syscall(SYS_setresuid, -1, 65534, -1));
    TRY("unshare-user", unshare(CLONE_NEWUSER));
    TRY("unshare-net", unshare(CLONE_NEWNET));
    TRY("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    TRY("chroot", chroot("/"));
}

static void files(void) {
    struct timespec times[2] = {{0}};
    TRY("chmod", chmod(file, 0777));
    TRY("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, file, 0777));
    TRY("fchmodat2", syscall(452, AT_FDCWD, file, 0777, 0));
    TRY("chown", chown(file, getuid(), getgid()));
    TRY("fchownat", fchownat(AT_FDCWD, file, getuid(), getgid(), 0));
    TRY("times", utimensat(AT_FDCWD, file, times, 0));
    TRY("xattr", setxattr(file, "user.mine", "x", 1, 0));
    TRY("read", open(file, O_RDONLY));
    TRY("write", open(file, O_WRONLY));
    TRY("truncate", truncate(file, 0));
    TRY("unlink", unlink(file));
    TRY("shadow", open("/etc/shadow", O_RDONLY));
    TRY("parent-environment", open("/proc/1/environ", O_RDONLY));
    TRY("connections", open("/proc/self/net/tcp", O_RDONLY));
    TRY("stat", names());
}

static void memory(void) {
    TRY("memfd", memfd_create("mine", 0));
    TRY("shared-memory", shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600));
    TRY("message-queue", msgget(IPC_PRIVATE, IPC_CREAT | 0600));
    TRY("semaphore", semget(IPC_PRIVATE, 1, IPC_CREAT | 0600));
    TRY("posix-shared-memory", open("/dev/shm/mine", O_CREAT | O_RDWR, 0600));
    TRY("raise-limit", limit(0, RLIMIT_AS, RLIM_INFINITY));
    TRY("raise-descriptors", limit(0, RLIMIT_NOFILE, 1 << 20));
    void *all = mmap(NULL, (size_t)1 << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TRY("map-beyond-limit", all == MAP_FAILED ? -1 : 0);
    TRY("keys", syscall(SYS_add_key, "user", "mine", "x", 1, -3));
}

__attribute__((constructor)) static void try_all(void) {
    victim = atoi(getenv("VICTIM"));
    parent = atoi(getenv("PARENT"));
    file = getenv("FILE");
    sockets();
    others();
    processes();
    files();
    memory();
    puts("done");
    fflush(stdout);
    _exit(0);
}
