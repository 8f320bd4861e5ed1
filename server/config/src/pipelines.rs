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
    /// Steps of pipelines that are functions of Python files. The client that registers the pipeline brings this code
    /// (its key needs the scope `python`), and the front end runs it in confined processes: docs/security.md says
    /// against what that protects.
    Python in "pipelines.python" {
        /// Whether pipelines may have such steps. Set the same in every process with the role `api`.
        enabled: bool = false;
        /// The interpreter, Python 3.10 or newer with NumPy: a path, or a name that is searched for in `PATH`.
        interpreter: PathBuf = PathBuf::from("python3");
        /// A folder in which the interpreter looks for packages first. Steps can read everything in it.
        packages: Option<PathBuf> = None, unset "the interpreter's own packages alone";
        /// Most processes at once. A process runs one file of one pipeline, one call at a time, and stays until
        /// another file needs its place. With fewer processes than files in use, calls wait for interpreters to
        /// start.
        processes: usize = 4, within 1.0..=1024.0;
        /// Address space that such a process may take, bytes. A process that asks for more gets no memory and ends.
        memory_bytes: u64 = 2 << 30, within 268_435_456.0..=f64::INFINITY;
        /// Longest time of one call, milliseconds; if a call takes longer, its process is ended.
        time_limit_ms: u64 = 10_000, within 1.0..=86_400_000.0;
    }
}
