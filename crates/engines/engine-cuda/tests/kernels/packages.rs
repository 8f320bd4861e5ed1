//! A Python with NVIDIA's packages in the layout of `pip`, over the library that stands in for theirs.

use std::{
    ffi::OsString,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::emulator;

/// Folders with a `python3` and its packages, and a folder with the graphics driver for the loader.
pub struct Packages {
    root: TempDir,
}

// === impl Packages ===

impl Packages {
    /// Packages with the libraries of these versions of CUDA.
    pub fn new(toolkits: &[u32]) -> Self {
        let packages = Self {
            root: tempfile::tempdir().expect("a folder"),
        };
        let stand_in = emulator::stand_in();
        let driver = packages.folder("driver");
        symlink(&stand_in, driver.join("libcuda.so.1")).expect("a link");
        let bin = packages.folder("python/bin");
        symlink(interpreter(), bin.join("python3")).expect("a link");
        packages.folder("python/lib/python3.12/site-packages");
        for toolkit in toolkits {
            // CUDA 12 has a package for each library, CUDA 13 one folder for all.
            let folders = match toolkit {
                12 => ["nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib"],
                _ => ["nvidia/cu13/lib", "nvidia/cu13/lib"],
            };
            for (folder, name) in folders.into_iter().zip(["libnvrtc", "libcublasLt"]) {
                packages.library(folder, &format!("{name}.so.{toolkit}"), &stand_in);
            }
            packages.library("nvidia/cudnn/lib", "libcudnn.so.9", &stand_in);
        }
        packages
    }

    /// Adds a library of another package.
    pub fn link(&self, package: &str, library: &Path) {
        let name = library.file_name().expect("a file");
        let place = self.site().join(package);
        std::fs::create_dir_all(&place).expect("a folder");
        symlink(library, place.join(name)).expect("a link");
    }

    /// Lets a command use these packages.
    pub fn put<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let bin = self.root.path().join("python/bin");
        let mut path = vec![bin];
        path.extend(std::env::split_paths(&path_of_this_process()));
        command
            .env("PATH", std::env::join_paths(path).expect("a path"))
            .env("LD_LIBRARY_PATH", self.root.path().join("driver"))
            .env_remove("PYTHONPATH")
    }

    fn site(&self) -> PathBuf {
        self.root.path().join("python/lib/python3.12/site-packages")
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.root.path().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A library that the loader finds by its name once it is loaded. All its contents are the stand-in's.
    fn library(&self, folder: &str, name: &str, stand_in: &Path) {
        let folder = self.site().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let options = ["-shared", "-fPIC", "-x", "c++", "/dev/null", "-x", "none"];
        emulator::build(|compiler| {
            compiler
                .args(options)
                .arg(format!("-Wl,-soname,{name},--no-as-needed"))
                .arg(stand_in)
                .arg("-o")
                .arg(folder.join(name))
        });
    }
}

fn path_of_this_process() -> OsString {
    std::env::var_os("PATH").expect("there is a path")
}

/// The `python3` of this machine.
fn interpreter() -> PathBuf {
    let path = path_of_this_process();
    let mut folders = std::env::split_paths(&path);
    let found = folders.find_map(|folder| {
        let file = folder.join("python3");
        file.is_file().then_some(file)
    });
    found.expect("there is no `python3` on the path: install Python 3")
}
