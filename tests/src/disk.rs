//! A small separate disk that can be filled: memory that is mounted so that only processes started with [`Disk::wrap`]
//! see it. Needs root or user namespaces.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use rustix::process::geteuid;

/// The file that takes all room of a full disk.
const FILLER: &str = "filler";
/// Size of the pieces in which it is written, bytes.
const PIECE_BYTES: usize = 64 << 10;

/// A mounted disk. It is removed with its content when it is dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct Disk {
    /// Holds the mount while its standard input is open.
    keeper: Child,
    folder: PathBuf,
    /// Lets one thread at a time write the filler.
    filling: Mutex<()>,
}

impl Disk {
    /// Mounts an empty disk of this size at a folder, which is created.
    ///
    /// # Errors
    /// The reason why this machine does not permit it.
    pub fn mount(folder: &Path, bytes: u64) -> Result<Self, String> {
        const SCRIPT: &str = r#"
            mount -t tmpfs -o "size=$2,mode=700" sextant "$1" || exit
            echo mounted
            read -r line
        "#;
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut keeper = command
            .args(["--mount", "sh", "-c", SCRIPT, "sh"])
            .arg(folder)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`unshare` of util-linux: {error}"))?;
        let mut told = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output).read_line(&mut told).ok();
        }
        if told.trim() == "mounted" {
            return Ok(Self {
                keeper,
                folder: folder.to_owned(),
                filling: Mutex::default(),
            });
        }
        let output = keeper.wait_with_output();
        let cause = output.map(|it| String::from_utf8_lossy(&it.stderr).trim().to_owned());
        Err(cause.unwrap_or_else(|error| error.to_string()))
    }

    /// [`mount`](Self::mount) if a size is given.
    pub(crate) fn wanted(folder: &Path, bytes: Option<u64>) -> Result<Self, String> {
        let bytes = bytes.ok_or("nobody asked for a disk")?;
        Self::mount(folder, bytes)
    }

    /// The words before a command that let it see the disk.
    pub fn wrap(&self) -> Vec<String> {
        let mut words = vec![
            "nsenter".to_owned(),
            format!("--target={}", self.keeper.id()),
        ];
        if !geteuid().is_root() {
            words.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        words.extend(["--mount", "--"].map(str::to_owned));
        words
    }

    /// The path of a file of the disk for this process.
    pub fn seen(&self, file: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// Takes all room that is left. The next call takes the room that is freed meanwhile.
    ///
    /// # Errors
    /// If the filler cannot be written for another reason than a full disk.
    pub fn fill(&self) -> io::Result<()> {
        let _alone = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = File::options();
        let mut filler = options.create(true).append(true).open(self.filler())?;
        let mut bytes = vec![0; PIECE_BYTES];
        while !bytes.is_empty() {
            match filler.write_all(&bytes) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    bytes.truncate(bytes.len() / 2);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees the room.
    pub fn empty(&self) {
        let _alone = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        // There is no filler if the disk was not filled.
        fs::remove_file(self.filler()).ok();
    }

    fn filler(&self) -> PathBuf {
        self.seen(&self.folder).join(FILLER)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_for_whoever_is_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("disk");
        let disk = match Disk::mount(&place, 1 << 20) {
            Ok(disk) => disk,
            Err(reason) => {
                eprintln!("skipped: this machine lets nobody mount a disk: {reason}");
                return;
            }
        };
        let write = || {
            let wrap = disk.wrap();
            let mut command = Command::new(&wrap[0]);
            let script = r#"head -c 200000 /dev/zero > "$1/file""#;
            command.args(&wrap[1..]).args(["sh", "-c", script, "sh"]);
            command.arg(&place).stderr(Stdio::null()).status().unwrap()
        };
        assert!(write().success());
        let file = place.join("file");
        assert!(!file.exists(), "this process does not see it");
        assert_eq!(disk.seen(&file).metadata().unwrap().len(), 200_000);
        disk.fill().unwrap();
        fs::remove_file(disk.seen(&file)).unwrap();
        disk.fill().unwrap();
        assert!(!write().success());
        disk.empty();
        assert!(write().success());
    }
}
