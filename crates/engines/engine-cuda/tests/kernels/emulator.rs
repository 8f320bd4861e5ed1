//! Builds the program that emulates a device, and sends requests to it.

use std::{
    collections::hash_map::DefaultHasher,
    fs::File,
    hash::{Hash, Hasher},
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use sextant_engine_cuda::kernels::{Launch, SOURCES};

/// A running emulator.
pub struct Emulator {
    child: Child,
    requests: Option<ChildStdin>,
    answers: ChildStdout,
}

// === impl Emulator ===

impl Emulator {
    pub fn start() -> Self {
        let program = program();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{}`: {error}", program.display()));
        let requests = child.stdin.take();
        let answers = child.stdout.take().expect("a pipe");
        Self {
            child,
            requests,
            answers,
        }
    }

    /// The arena after the launches, or a text if the emulator gave up.
    pub fn run(&mut self, arena: &[u8], launches: &[Launch]) -> Result<Vec<u8>, String> {
        let mut request = Vec::new();
        block(&mut request, arena);
        number(&mut request, launches.len());
        for launch in launches {
            block(&mut request, launch.kernel.as_bytes());
            number(&mut request, launch.grid as usize);
            number(&mut request, launch.block as usize);
            block(&mut request, launch.parameters.bytes());
            number(&mut request, launch.parameters.pointers().len());
            for pointer in launch.parameters.pointers() {
                number(&mut request, *pointer);
            }
        }
        let mut answer = vec![0; arena.len()];
        let pipe = self.requests.as_mut().expect("open until it is dropped");
        let exchange = pipe
            .write_all(&request)
            .and_then(|()| pipe.flush())
            .and_then(|()| self.answers.read_exact(&mut answer));
        match exchange {
            Ok(()) => Ok(answer),
            Err(error) => Err(format!("{error}, {:?}", self.child.wait())),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The emulator ends when its input ends.
        self.requests = None;
        let _ended = self.child.wait();
    }
}

fn number(request: &mut Vec<u8>, value: usize) {
    request.extend_from_slice(&(value as u64).to_le_bytes());
}

fn block(request: &mut Vec<u8>, bytes: &[u8]) {
    number(request, bytes.len());
    request.extend_from_slice(bytes);
}

/// The program that answers requests.
fn program() -> PathBuf {
    compiled("main.cpp", "emulator", &["-O0"])
}

/// A library that stands in for NVIDIA's.
pub fn stand_in() -> PathBuf {
    compiled("driver.cpp", "stand-in", &["-O1", "-fPIC", "-shared"])
}

/// Compiles a file of the emulation unless what was made of the same sources is there.
fn compiled(file: &str, name: &str, options: &[&str]) -> PathBuf {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let host = |name: &str| {
        let path = kernels.join("host").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    };
    let entries = entries();
    let mut hasher = DefaultHasher::new();
    let headers = ["emulation.h", "mapping.h"].map(host);
    (&entries, host(file), headers).hash(&mut hasher);
    SOURCES
        .iter()
        .for_each(|source| source.text.hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("kernels")
        .join(name);
    std::fs::create_dir_all(&folder).expect("a folder for what tests build");
    let made = folder.join(format!("{name}-{:016x}", hasher.finish()));
    // Tests may be processes of their own: one builds, the others wait.
    let lock = File::create(folder.join("lock")).expect("a file to lock");
    lock.lock().expect("a lock");
    if !made.exists() {
        remove_old(&folder, name);
        std::fs::write(folder.join("entries.inc"), entries).expect("a file");
        compile(&kernels.join("host").join(file), options, &folder, &made);
    }
    made
}

/// What was made of other sources.
fn remove_old(folder: &Path, name: &str) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-"))
        {
            // One that is left behind only takes room.
            let _removed = std::fs::remove_file(entry.path());
        }
    }
}

/// `ENTRY(namespace, kernel)` for every kernel that the engine knows.
fn entries() -> String {
    let lines = SOURCES.iter().flat_map(|source| {
        let kernels = source.kernels().into_iter();
        kernels.map(|kernel| format!("ENTRY({}, {kernel})\n", source.name))
    });
    lines.collect()
}

fn compile(file: &Path, options: &[&str], folder: &Path, made: &Path) {
    let part = made.with_extension("part");
    build(|compiler| {
        compiler
            .args(["-std=c++17", "-Wall", "-Werror", "-fno-strict-aliasing"])
            .args(options)
            .arg("-I")
            .arg(folder)
            .arg("-o")
            .arg(&part)
            .arg(file)
    });
    std::fs::rename(&part, made).expect("moving what was compiled");
}

/// Runs the C++ compiler with the given arguments.
pub fn build(prepare: impl FnOnce(&mut Command) -> &mut Command) {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    match prepare(&mut Command::new(&compiler)).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "`{compiler}` fails: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => {
            panic!("cannot start the C++ compiler `{compiler}`: {error}; install the package `g++`")
        }
    }
}
