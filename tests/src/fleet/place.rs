//! Where the processes of a fleet run.

use std::{fs, net::Ipv4Addr, path::PathBuf};

/// The kind of place in which a process runs.
#[derive(Debug)]
pub(super) enum Place {
    /// This machine, without anything special.
    Here,
    /// This machine, reached at this address.
    Beside(Ipv4Addr),
    /// Another machine.
    Machine {
        /// The words before the command: `ip netns exec ..`.
        wrap: Vec<String>,
        /// Its address.
        address: Ipv4Addr,
        /// The addresses of the stores for it: Redis, PostgreSQL, S3.
        stores: [String; 3],
    },
    /// This machine, with a wrong clock: the offset in the format of libfaketime.
    Clock(String),
    /// A container, as far as the environment shows: it has the name and the port for the others.
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

/// The library that shifts the time of a process, from Debian's libfaketime.
pub(super) fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    let mut found = folders.map(|folder| library(folder.path()));
    let found = found.find(|file| file.exists());
    found.expect("libfaketime is installed: `cargo xtask provision` does so")
}
