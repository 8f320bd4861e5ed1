//! A separate machine on a network that can be cut: a network namespace with one cable to this one.
//! Needs the right to create it (root) and Debian's iproute2.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// A network namespace and the cable to it. It is removed when it is dropped.
#[derive(Debug)]
pub struct Machine {
    name: String,
    cable: String,
    here: Ipv4Addr,
    there: Ipv4Addr,
}

impl Machine {
    /// Creates a namespace and its cable.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let [high, low] = [(process >> 6) % 256, (process % 64) * 4].map(|part| part as u8);
        let third = high.wrapping_add(number as u8);
        let machine = Self {
            name: format!("sextant-{process}-{number}"),
            cable: format!("sx{process}-{number}"),
            here: Ipv4Addr::new(10, 213, third, low + 1),
            there: Ipv4Addr::new(10, 213, third, low + 2),
        };
        let Self {
            name,
            cable,
            here,
            there,
        } = &machine;
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {cable} type veth peer name eth0 netns {name}"
        ));
        ip(&format!("address add {here}/30 dev {cable}"));
        ip(&format!("link set {cable} up"));
        ip(&format!("-n {name} address add {there}/30 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} link set lo up"));
        machine
    }

    /// Its address on the cable.
    pub fn address(&self) -> Ipv4Addr {
        self.there
    }

    /// This machine's address on the cable. It stays while the cable is cut.
    pub fn address_here(&self) -> Ipv4Addr {
        self.here
    }

    /// The words before a command that run it there.
    pub fn wrap(&self) -> Vec<String> {
        let wrap = ["ip", "netns", "exec", &self.name];
        wrap.map(str::to_owned).to_vec()
    }

    /// Makes a port of this machine's loopback interface reachable from there, and returns the
    /// address to use.
    pub fn offer(&self, port: u16) -> SocketAddrV4 {
        let listener = TcpListener::bind((self.here, 0)).expect("the cable has an address");
        let offered = listener.local_addr().expect("it listens").port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    relay(&client, &server);
                }
            }
        });
        SocketAddrV4::new(self.here, offered)
    }

    /// Cuts the cable: nothing passes, and neither end is told.
    pub fn cut(&self) {
        // The far end is cut, so that this machine keeps its address.
        ip(&format!("-n {} link set eth0 down", self.name));
    }

    /// Restores the cable.
    pub fn mend(&self) {
        ip(&format!("-n {} link set eth0 up", self.name));
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The cable is removed with the namespace.
        let arguments = ["netns", "delete", &self.name];
        Command::new("ip").args(arguments).status().ok();
    }
}

/// Copies both ways until one side ends.
fn relay(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let pair = from
            .try_clone()
            .and_then(|from| Ok((from, to.try_clone()?)));
        let Ok((mut from, mut to)) = pair else {
            return;
        };
        to.set_nodelay(true).ok();
        thread::spawn(move || {
            io::copy(&mut from, &mut to).ok();
            to.shutdown(std::net::Shutdown::Both).ok();
        });
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.expect("`ip` can be started: `cargo xtask provision` installs it");
    assert!(
        output.status.success(),
        "`ip {arguments}`: {} (a network namespace needs root)",
        String::from_utf8_lossy(&output.stderr)
    );
}
