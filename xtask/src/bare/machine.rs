//! A container in place of a machine: it is started, gets the sources, runs commands, and is removed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::containers::engine::{self, docker};
use crate::paths;
use crate::shell::{self, say};

/// The folder of the sources in the machine.
const SOURCES: &str = "/sextant";
/// The folder of the Rust toolchain in the machine.
const TOOLCHAIN: &str = "/usr/local/rust";
/// Download folders of its package managers, by the name of our folder for each.
const DOWNLOADS: [(&str, &str); 3] = [
    ("cargo", "/root/.cargo/registry"),
    ("pip", "/root/.cache/pip"),
    ("apt", "/var/cache/apt/archives"),
];
/// Folders with many writes. They are on a volume, because the layers of containers are slow on some engines.
const WRITTEN: [&str; 3] = [SOURCES, "/root", "/tmp"];
/// Capabilities: the tests make networks and mounts, look into other processes, and set priorities.
const ALLOWED: [&str; 4] = ["NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "SYS_NICE"];
/// Confinements of the container that are switched off, so that the tests can confine processes themselves.
const UNCONFINED: [&str; 3] = ["seccomp", "apparmor", "systempaths"];
/// The log of apt; the image has none.
const HISTORY: &str = "/var/log/apt/history.log";

/// A running container; it is removed with all that it wrote on drop.
pub struct Machine {
    name: String,
    is_kept: bool,
}

impl Machine {
    /// Starts a machine with the toolchain and the sources.
    pub fn start(name: &str, image: &str, cpu_shares: u32) -> Result<Self> {
        remove_when_interrupted(name)?;
        // The container may be left from an earlier run that kept it or could not remove it.
        remove(name);
        let toolchain = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
        let mut run = docker(&["run", "--detach", "--init", "--name", name]);
        run.args(["--shm-size", "1g", "--workdir", SOURCES]);
        let allowed = ALLOWED.iter().flat_map(|right| ["--cap-add", right]);
        let unconfined = UNCONFINED.map(|by| format!("--security-opt={by}=unconfined"));
        run.args(allowed).args(unconfined);
        run.args(["--cpu-shares", &cpu_shares.to_string()]);
        run.args(["--volume", &format!("{}:{TOOLCHAIN}:ro", toolchain.trim())]);
        for (folder, place) in DOWNLOADS {
            let folder = downloads(folder)?;
            run.args(["--volume", &format!("{}:{place}", folder.display())]);
        }
        for place in WRITTEN {
            run.args(["--volume", place]);
        }
        shell::run(run.args([image, "sleep", "infinity"]))?;
        let machine = Self {
            name: name.to_owned(),
            is_kept: false,
        };
        machine.give_sources()?;
        Ok(machine)
    }

    /// Runs a command in the folder of the sources, shows its output and passes each line on; returns whether it
    /// succeeded.
    pub fn run(&self, words: &[&str], mut line: impl FnMut(&str)) -> Result<bool> {
        let mut exec = docker(&["exec", &self.name, "sh", "-c", "exec \"$@\" 2>&1", "sh"]);
        exec.args(words);
        let shown = shell::show(&exec);
        eprintln!("$ {shown}");
        let mut child = exec
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        if let Some(output) = child.stdout.take() {
            for text in BufReader::new(output).split(b'\n') {
                let text = text?;
                let text = String::from_utf8_lossy(&text);
                eprintln!("{text}");
                line(&text);
            }
        }
        Ok(child.wait()?.success())
    }

    /// The packages that apt was asked to install.
    pub fn installed(&self) -> Result<Vec<String>> {
        let read = format!("cat {HISTORY} || true");
        let history = shell::output(&mut docker(&["exec", &self.name, "sh", "-c", &read]))?;
        Ok(asked_for(&history))
    }

    /// Keeps the container, and prints how to look into it.
    pub fn keep(mut self) {
        self.is_kept = true;
        let name = &self.name;
        say(format!(
            "kept: `docker exec -it {name} bash`; `docker rm --force --volumes {name}` removes it"
        ));
    }

    /// The files that git knows, as they are now.
    fn give_sources(&self) -> Result<()> {
        let files = shell::output(shell::command("git").args(["ls-files", "-z"]))?;
        let list = paths::target("bare-files");
        std::fs::write(&list, files)
            .with_context(|| format!("cannot write `{}`", list.display()))?;
        let mut tar = shell::command("tar");
        tar.args(["--create", "--owner=0", "--group=0", "--null"]);
        tar.arg("--files-from").arg(&list);
        let mut extract = docker(&["exec", "--interactive", &self.name]);
        extract.args(["tar", "--extract", "--directory", SOURCES]);
        engine::pipe(&mut tar, &mut extract)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.name);
        }
    }
}

/// Fails where there is none, which is as well.
fn remove(name: &str) {
    shell::succeeds(&mut docker(&["rm", "--force", "--volumes", name]));
}

/// What runs in a container does not end with the command that was told to run it.
fn remove_when_interrupted(name: &str) -> Result<()> {
    use std::sync::{Mutex, Once, PoisonError};
    static NAME: Mutex<String> = Mutex::new(String::new());
    static ONCE: Once = Once::new();
    let current = || NAME.lock().unwrap_or_else(PoisonError::into_inner);
    name.clone_into(&mut current());
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = ctrlc::set_handler(move || {
            remove(&NAME.lock().unwrap_or_else(PoisonError::into_inner));
            std::process::exit(130);
        });
    });
    outcome.context("cannot handle Ctrl-C")
}

/// A folder for what a package manager downloads. Cargo's begins with what this machine has.
fn downloads(name: &str) -> Result<PathBuf> {
    let folder = paths::cache()?.join("bare").join(name);
    let is_new = !folder.exists();
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create `{}`", folder.display()))?;
    let registry = cargo_home().map(|home| home.join("registry"));
    if let (true, "cargo", Some(registry)) = (is_new, name, registry) {
        let parts = ["cache", "index"].map(|part| registry.join(part));
        let there = parts.iter().filter(|part| part.exists());
        for part in there {
            let mut copy = shell::command("cp");
            shell::run(
                copy.args(["--archive", "--reflink=auto"])
                    .arg(part)
                    .arg(&folder),
            )?;
        }
    }
    Ok(folder)
}

fn cargo_home() -> Option<PathBuf> {
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home)
}

/// The packages in the calls that apt has noted, in order.
fn asked_for(history: &str) -> Vec<String> {
    let calls = history
        .lines()
        .filter_map(|line| line.strip_prefix("Commandline: apt-get install "));
    let words = calls.flat_map(str::split_whitespace);
    let packages = words.filter(|word| !word.starts_with('-'));
    packages.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_apts_history() {
        let history = "\nStart-Date: 2026-01-01  10:00:00\n\
            Commandline: apt-get install -y -qq --no-install-recommends git curl\n\
            Install: git:amd64 (1:2.39), curl:amd64 (7.88), libx:amd64 (1, automatic)\n\
            Commandline: apt-get install -y g++\n";
        assert_eq!(asked_for(history), ["git", "curl", "g++"]);
    }
}
