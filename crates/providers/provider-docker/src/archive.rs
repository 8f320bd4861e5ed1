//! Writes files as the archive (ustar) that an engine accepts.

/// Size of the blocks of an archive, bytes.
const BLOCK: usize = 512;

/// Offsets of the fields of a header.
const MODE: usize = 100;
const OWNER: usize = 108;
const GROUP: usize = 116;
const SIZE: usize = 124;
const CHANGED: usize = 136;
const SUM: usize = 148;
const KIND: usize = 156;
const MAGIC: usize = 257;

/// Longest name of a file, bytes.
const LONGEST_NAME: usize = 100;

/// An archive that grows file by file. Its files have no particular owner, and all may read them.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
}

// === impl Archive ===

impl Archive {
    /// Adds a file; its folders are created when it is unpacked. `path` is relative to the root, without a leading `/`.
    /// Returns false if a header has no room for its name.
    #[must_use]
    pub(crate) fn add(&mut self, path: &str, content: &[u8]) -> bool {
        let starts = path.match_indices('/').map(|(at, _)| &path[..=at]);
        for folder in starts.collect::<Vec<_>>() {
            if !self.begin(folder, 0o755, b'5', 0) {
                return false;
            }
        }
        // The user of the image's program must be able to read it, and no other program runs in the container.
        if !self.begin(path, 0o444, b'0', content.len()) {
            return false;
        }
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        true
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn begin(&mut self, name: &str, mode: usize, kind: u8, size: usize) -> bool {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return false;
        }
        let mut header = [0; BLOCK];
        put(&mut header, 0, name.as_bytes());
        put(&mut header, MODE, format!("{mode:07o}\0").as_bytes());
        put(&mut header, OWNER, b"0000000\0");
        put(&mut header, GROUP, b"0000000\0");
        put(&mut header, SIZE, format!("{size:011o}\0").as_bytes());
        put(&mut header, CHANGED, b"00000000000\0");
        put(&mut header, SUM, b"        ");
        put(&mut header, KIND, &[kind]);
        put(&mut header, MAGIC, b"ustar\x0000");
        let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
        put(&mut header, SUM, format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        true
    }
}

fn put(header: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;

    /// The files that the system's `tar` unpacks.
    fn unpacked(archive: Archive, options: &[&str]) -> String {
        let mut tar = Command::new("tar");
        let tar = tar
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut tar = tar.spawn().expect("tar");
        let mut input = tar.stdin.take().expect("its input");
        input.write_all(&archive.finish()).expect("written");
        drop(input);
        let output = tar.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn archive() -> Archive {
        let mut archive = Archive::default();
        assert!(archive.add("etc/sextant/worker.toml", &[b'x'; 513]));
        assert!(archive.add("etc/sextant/empty", b""));
        archive
    }

    #[test]
    fn files_come_with_their_folders() {
        let listed = unpacked(archive(), &["--list"]);
        let files: Vec<_> = listed.lines().filter(|it| !it.ends_with('/')).collect();
        assert_eq!(files, ["etc/sextant/worker.toml", "etc/sextant/empty"]);
        assert!(listed.contains("etc/\n") && listed.contains("etc/sextant/\n"));
    }

    #[test]
    fn content_comes_as_it_is() {
        let options = ["--extract", "--to-stdout", "etc/sextant/worker.toml"];
        assert_eq!(unpacked(archive(), &options), "x".repeat(513));
    }

    #[test]
    fn name_that_no_header_has_room_for_is_refused() {
        assert!(!Archive::default().add(&"x".repeat(101), b""));
        assert!(!Archive::default().add("", b""));
    }
}
