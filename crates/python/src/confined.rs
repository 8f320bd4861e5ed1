//! The child: it confines itself and becomes the interpreter.

use std::{
    convert::Infallible,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{HARNESS, PythonInterpreter};

/// The interpreter's environment: libraries compute with one thread, because calls run side by side.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("LC_ALL", "C.UTF-8"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
];

/// The child's settings, from its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Most address space, bytes.
    pub memory_bytes: u64,
    /// The interpreter's program.
    pub executable: PathBuf,
    /// Folders that it may read in addition to those of the system.
    pub readable: Vec<PathBuf>,
    /// Folders that are searched for packages first.
    pub packages: Vec<PathBuf>,
}

// === impl Confinement ===

impl Confinement {
    /// The confinement for an interpreter that was found.
    pub fn of(found: &PythonInterpreter, packages: Option<&Path>, memory_bytes: u64) -> Self {
        let folders = found.folders.iter().filter(|folder| is_narrow(folder));
        Self {
            memory_bytes,
            executable: found.executable.clone(),
            readable: folders.cloned().collect(),
            packages: packages.into_iter().map(Path::to_owned).collect(),
        }
    }

    /// Confines this process and becomes the interpreter; returns only if that fails.
    ///
    /// # Errors
    /// If the system refuses a limit or cannot start the interpreter.
    pub fn run(&self) -> io::Result<Infallible> {
        let program = self.executable.canonicalize()?;
        let readable: Vec<PathBuf> = self
            .readable
            .iter()
            .chain(&self.packages)
            .cloned()
            .collect();
        sextant_isolation::confine_program(self.memory_bytes, &program, &readable)?;
        let error = Command::new(&self.executable)
            .args(["-I", "-B", "-X", "utf8", "-c", &self.text()])
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(Stdio::inherit())
            .exec();
        Err(error)
    }

    /// The harness, preceded by the folders of packages.
    fn text(&self) -> String {
        let folders = self.packages.iter().map(|it| it.to_string_lossy());
        let folders: Vec<_> = folders.collect();
        let list = serde_json::to_string(&folders).unwrap_or_else(|_| "[]".to_owned());
        match folders.is_empty() {
            true => HARNESS.to_owned(),
            false => format!("import sys\nsys.path[:0] = {list}\n{HARNESS}"),
        }
    }

    /// The same as arguments of a command line.
    pub fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec![
            "--memory-bytes".into(),
            self.memory_bytes.to_string().into(),
            "--executable".into(),
            self.executable.clone().into(),
        ];
        let mut each = |flag: &str, folders: &[PathBuf]| {
            for folder in folders {
                flags.extend([flag.into(), folder.clone().into()]);
            }
        };
        each("--readable", &self.readable);
        each("--package", &self.packages);
        flags
    }
}

/// Whether a child may read a folder: never the root, which contains everything.
fn is_narrow(folder: &Path) -> bool {
    folder.canonicalize().is_ok_and(|it| it.parent().is_some())
}
