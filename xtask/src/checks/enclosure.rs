//! What the tests find of this machine: the programs and the folders of the cache that provisioning names, the Rust
//! toolchain, the compiler that it needs, and what every Debian has.
//!
//! A machine that people work on has more than that, and a test that calls something of it passes there and fails on
//! a bare one. So the tests get a path of their own, a folder of links, and a cache of their own, which is another;
//! what provisioning does not name is in neither. Builds go by the machine's own path: only what is built runs so.

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

/// Of the Rust toolchain.
const TOOLCHAIN: [&str; 7] = [
    "cargo",
    "cargo-clippy",
    "cargo-fmt",
    "clippy-driver",
    "rustc",
    "rustdoc",
    "rustfmt",
];
/// What `gcc` and `libc6-dev` have, without which no Rust program is linked.
const COMPILER: [&str; 7] = ["ar", "as", "cc", "gcc", "ld", "nm", "ranlib"];
/// Programs that tests may call as compilers, where they are set.
const COMPILERS_NAMED: [&str; 2] = ["CC", "CXX"];
/// Where Debian keeps which of several programs has a name.
const ALTERNATIVES: &str = "/etc/alternatives";

/// Two folders of links.
pub struct Enclosure {
    programs: PathBuf,
    cache: PathBuf,
}

impl Enclosure {
    /// Makes them below the build outputs; `None` where the system is not Debian's and does not say what is a part
    /// of it.
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

    /// Options for cargo, or what calls it, by which what it has built runs in here.
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

/// Where programs lie, by their names.
type Programs = BTreeMap<String, PathBuf>;

/// What a machine has of what the tests may call, beside the toolchain: what every system has, what compiles, and what
/// provisioning names.
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

/// The Rust toolchain and Python. What manages several versions puts programs of its own in front: the tests get the
/// real ones.
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

/// The programs of the packages that every Debian has; `None` on another system.
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

/// Whether a file lies where programs do, and is one.
fn is_program(file: &Path) -> bool {
    let folder = file.parent().and_then(Path::file_name);
    folder.is_some_and(|folder| folder == "bin" || folder == "sbin") && can_be_run(file)
}

fn can_be_run(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Where the machine finds a program.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.into_iter().find(|file| can_be_run(file))
}

fn name(file: &Path) -> Option<String> {
    Some(file.file_name()?.to_str()?.to_owned())
}

/// A folder with a link to each.
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
        // A machine that has everything.
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
        // These are of `SDK`.
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
