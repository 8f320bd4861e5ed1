//! A child process that ends with its owner.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Longest time that a server may take to accept connections.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a server, whose log goes where `command` says, and waits until `port` of the loopback interface accepts
    /// connections.
    ///
    /// # Panics
    /// If the program cannot be started or does not listen in time.
    pub fn start(mut command: Command, port: u16) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("`{name}` cannot be started ({error}): `cargo xtask provision` installs it")
        });
        let mut process = Self { child, name };
        process.await_port(port);
        process
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "another process tells nobody when it is ready"
    )]
    fn await_port(&mut self, port: u16) {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("`{}` ended with {status} before it listened", self.name);
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "`{}` does not listen on port {port}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal: `STOP`, `CONT`, `TERM`, ..
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(id, signal)?)
    }

    /// Ends the process like a power cut, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on which nothing listened a moment ago, and which the system does not give to outgoing connections. So a
/// restarted server finds its port free.
///
/// # Panics
/// If the loopback interface has none left.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    /// Distance between the first ports of two processes with consecutive ids.
    const APART: u32 = 101;
    let ports = connection_ports().saturating_sub(FIRST).max(1);
    for _ in 0..ports {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(APART).wrapping_add(number);
        let port = u16::try_from(FIRST + number % ports).expect("ports are below 65,536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port below {} is free", FIRST + ports)
}

/// The first of the ports that the system gives to outgoing connections.
fn connection_ports() -> u32 {
    const USUAL: u32 = 32_768;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range
        .ok()
        .and_then(|it| it.split_whitespace().next()?.parse().ok());
    first.unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_are_none_of_connections() {
        let ports: Vec<_> = (0..20).map(|_| free_port()).collect();
        for (at, port) in ports.iter().enumerate() {
            assert!(u32::from(*port) < connection_ports(), "{port}");
            assert!(!ports[..at].contains(port), "{port} twice");
        }
    }
}
