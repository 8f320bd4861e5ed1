//! Encloses the tests: they find only the programs and the folders of the cache that provisioning names, the Rust
//! toolchain, the compiler that it needs, and what every Debian has.
//!
//! A developer's machine has more than that. A test that calls something else passes there and fails on a bare machine.
//! So the tests get a path of their own, a folder of links, and a cache of their own, also a folder of links. Neither
//! contains anything that provisioning does not name. Builds use the machine's own path; only the built programs run in
//! the enclosure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    paths,
    provision::{Provisions, needs::Need},
    shell,
};

/// Programs of the Rust toolchain.
const TOOLCHAIN: [&str; 7] = [
    "cargo",
    "cargo-clippy",
    "cargo-fmt",
    "clippy-driver",
    "rustc",
    "rustdoc",
    "rustfmt",
];
/// Programs of `gcc` and `libc6-dev`, without which no Rust program is linked.
const COMPILER: [&str; 7] = ["ar", "as", "cc", "gcc", "ld", "nm", "ranlib"];
/// Variables that name compilers which tests may call.
const COMPILERS_NAMED: [&str; 2] = ["CC", "CXX"];
/// The folder in which Debian records which of several programs has a name.
const ALTERNATIVES: &str = "/etc/alternatives";

/// The two folders of links.
pub struct Enclosure {
    programs: PathBuf,
    cache: PathBuf,
}

impl Enclosure {
    /// Makes the folders below the build outputs; `None` if the system is not Debian's and does not say which programs
    /// belong to it.
    pub fn make(needs: &[&Need], provisioned: &Provisions) -> Result<Option<Self>> {
        let Some(system) = system() else {
            return Ok(None);
        };
        let folder = paths::empty_target("enclosure")?;
        let enclosure = Self {
            programs: folder.join("programs"),
            cache: folder.join("cache"),
        };
        let mut found = programs(system, needs, on_path);
        found.extend(toolchain()?);
        link(&enclosure.programs, &found)?;
        let folders = provisioned.folders.iter();
        let named = folders.filter_map(|folder| Some((name(folder)?, folder.clone())));
        link(&enclosure.cache, &named.collect())?;
        Ok(Some(enclosure))
    }

    /// Options for cargo, or for what calls it, with which built programs run in the enclosure.
    pub fn options(&self) -> Result<[OsString; 2]> {
        let version = shell::output(shell::command("rustc").arg("-vV"))?;
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("`rustc -vV` names no host")?;
        let set = |name: &str, folder: &Path| format!("{name}={}", folder.display());
        let runner = serde_json::json!([
            "/usr/bin/env",
            set("PATH", &self.programs),
            set("SEXTANT_CACHE", &self.cache),
        ]);
        let runner = format!("target.{host}.runner={runner}");
        Ok(["--config".into(), runner.into()])
    }
}

/// Paths of programs by name.
type Programs = BTreeMap<String, PathBuf>;

/// The programs of a machine that tests may call besides the toolchain: those of every system, the compiler, and those
/// that provisioning names.
fn programs(system: Programs, needs: &[&Need], find: impl Fn(&str) -> Option<PathBuf>) -> Programs {
    let compilers = COMPILERS_NAMED.map(std::env::var).into_iter().flatten();
    let needed = needs.iter().flat_map(|need| need.programs);
    let names = COMPILER.iter().chain(needed).map(|name| (*name).to_owned());
    let mut programs = system;
    for name in names.chain(compilers) {
        programs.extend(find(&name).map(|path| (name, path)));
    }
    programs
}

/// The Rust toolchain and Python. Version managers put programs of their own in front; the tests get the real ones.
fn toolchain() -> Result<Programs> {
    let root = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    let root = Path::new(root.trim()).join("bin");
    let mut programs: Programs = TOOLCHAIN
        .into_iter()
        .map(|name| (name.to_owned(), root.join(name)))
        .collect();
    let which = "import sys; print(sys.executable)";
    let python = shell::output(shell::command("python3").args(["-c", which]))?;
    programs.insert("python3".to_owned(), python.trim().into());
    Ok(programs)
}

/// The programs of the packages that every Debian has; `None` on other systems.
fn system() -> Option<Programs> {
    let format = "${db:Status-Status} ${Essential} ${Priority} ${binary:Package}\n";
    let packages = shell::output(shell::command("dpkg-query").args(["-W", "-f", format])).ok()?;
    let packages = packages.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [status, essential, priority, package] = words.try_into().ok()?;
        let is_everywhere = essential == "yes" || priority == "required";
        (status == "installed" && is_everywhere).then_some(package)
    });
    let files = shell::output(shell::command("dpkg").arg("-L").args(packages)).ok()?;
    let files = files.lines().map(PathBuf::from);
    let mut programs: Programs = files
        .filter(|file| is_program(file))
        .filter_map(|file| Some((name(&file)?, file)))
        .collect();
    let real: BTreeSet<PathBuf> = programs
        .values()
        .filter_map(|file| file.canonicalize().ok())
        .collect();
    for entry in fs::read_dir(ALTERNATIVES).into_iter().flatten().flatten() {
        let file = entry.path();
        let target = file.canonicalize().ok();
        if target.is_some_and(|target| real.contains(&target)) {
            programs.extend(name(&file).map(|name| (name, file)));
        }
    }
    Some(programs)
}

/// Whether a file is a program in a folder for programs.
fn is_program(file: &Path) -> bool {
    let folder = file.parent().and_then(Path::file_name);
    folder.is_some_and(|folder| folder == "bin" || folder == "sbin") && can_be_run(file)
}

fn can_be_run(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The path at which the machine finds a program.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.into_iter().find(|file| can_be_run(file))
}

fn name(file: &Path) -> Option<String> {
    Some(file.file_name()?.to_str()?.to_owned())
}

/// Makes a folder with a link to each program.
fn link(folder: &Path, links: &BTreeMap<String, PathBuf>) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, target) in links {
        symlink(target, folder.join(name))
            .with_context(|| format!("cannot link `{name}` in `{}`", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::needs;

    #[test]
    fn what_no_row_names_is_not_there() {
        // A machine that has every program.
        let find = |name: &str| Some(Path::new("/usr/bin").join(name));
        let names = |needs: &[&Need]| {
            let found = programs(Programs::new(), needs, find);
            found.into_keys().collect::<BTreeSet<_>>()
        };
        let with = names(&needs::all());
        let others: Vec<&Need> = needs::SERVERS
            .iter()
            .chain(needs::BROWSER)
            .chain(needs::TOOLS)
            .collect();
        let without = names(&others);
        // These belong to `SDK`.
        let gone: BTreeSet<_> = with.difference(&without).map(String::as_str).collect();
        assert_eq!(gone, BTreeSet::from(["java", "node", "tsc"]));
    }

    #[test]
    fn a_program_that_only_this_machine_has_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        link(&bin, &system().expect("this is a Debian")).unwrap();
        let run = |script: &str| {
            let mut command = std::process::Command::new("sh");
            let command = command.args(["-c", script]).env("PATH", &bin);
            command.output().unwrap().status.code()
        };
        assert_eq!(run("ls / | awk '{ print }' | head -n 1"), Some(0));
        assert_eq!(run("rustc --version"), Some(127));
    }
}
