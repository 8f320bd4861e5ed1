//! Steps of pipelines that are code.

use std::path::PathBuf;

use super::section::section;

section! {
    /// Applications that several steps answer.
    Pipelines in "pipelines" {
        sections {
            /// Steps that are functions of Python files.
            python: Python;
        }
    }
}

section! {
    /// Steps of pipelines that are functions of Python files. They are code of whoever registers them (the scope `python`
    /// of a key), and run in confined processes of the front end: docs/security.md says what that protects from.
    Python in "pipelines.python" {
        /// Whether there are such steps. Set the same in every process with the role `api`.
        enabled: bool = false;
        /// The interpreter, Python 3.10 or newer with NumPy: a program, or a name that is looked for in `PATH`.
        interpreter: PathBuf = PathBuf::from("python3");
        /// A folder in which the interpreter looks for packages first. Steps can read all of it.
        packages: Option<PathBuf> = None, unset "the interpreter's own packages alone";
        /// Most processes at once. One runs one file of one pipeline, a call at a time, and stays until another needs its
        /// place: with fewer than there are files in use, calls wait for interpreters to start.
        processes: usize = 4, within 1.0..=1024.0;
        /// Address space that such a process may take, bytes. What it needs beyond is refused, and ends it.
        memory_bytes: u64 = 2 << 30, within 268_435_456.0..=f64::INFINITY;
        /// Longest time of one call, milliseconds; the process of one that takes longer is ended.
        time_limit_ms: u64 = 10_000, within 1.0..=86_400_000.0;
    }
}
