//! Where the processes of a fleet run.

use std::{fs, net::Ipv4Addr, path::PathBuf};

/// What is special about where a process runs.
#[derive(Debug)]
pub(super) enum Place {
    /// Nothing.
    Here,
    /// On this machine, reached at this address.
    Beside(Ipv4Addr),
    /// Another machine.
    Machine {
        /// `ip netns exec ..`, before the command.
        wrap: Vec<String>,
        /// Its address.
        address: Ipv4Addr,
        /// Where it reaches the stores: Redis, PostgreSQL, S3.
        stores: [String; 3],
    },
    /// With a wrong clock: what libfaketime is told.
    Clock(String),
    /// In a container of its own, as far as the environment tells: its name and the port for the others are in there.
    Container(Vec<(String, String)>),
}

/// An address of the loopback interface in `url`, as `127.0.0.1:PORT`, and its port.
pub(super) fn port_of(url: &str) -> (String, u16) {
    let (before, rest) = url.split_once("127.0.0.1:").expect("it is on this machine");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let after = &rest[digits.len()..];
    let port = digits.parse().expect("a port");
    (format!("{before}127.0.0.1:PORT{after}"), port)
}

/// The library that shifts what a process takes for the time, from Debian's libfaketime.
pub(super) fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    let mut found = folders.map(|folder| library(folder.path()));
    let found = found.find(|file| file.exists());
    found.expect("libfaketime is installed: `cargo xtask provision` does so")
}
