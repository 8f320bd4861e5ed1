//! Files in memory. They have no name, and nothing remains of them.
//!
//! The bytes that are written into one count as no process's memory: no memory limit covers them. So a process that may
//! be taken over makes no such file itself. It has a few that were made before, and the size of each is limited.

use std::{
    fs::File,
    io::{self, Seek},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{MemfdFlags, memfd_create};

/// How many files are reserved, in pairs.
pub const RESERVED_FILES: u64 = 2 * PAIRS as u64;

/// Most users of two files at the same time; others wait.
const PAIRS: usize = 2;

/// `None` if as many are made as are needed.
static RESERVED: Mutex<Option<Vec<Pair>>> = Mutex::new(None);
static GIVEN_BACK: Condvar = Condvar::new();

type Pair = (File, File);

/// Two empty files in memory, for as long as this value lives.
#[derive(Debug)]
pub struct MemoryFiles(Option<Pair>);

/// From now on this process uses the same few files and makes no more.
///
/// # Errors
/// If the system cannot make them.
pub fn reserve_memory_files() -> io::Result<()> {
    let made: io::Result<Vec<Pair>> = (0..PAIRS).map(|_| make()).collect();
    *reserved() = Some(made?);
    Ok(())
}

fn make() -> io::Result<Pair> {
    let file = || memfd_create("sextant", MemfdFlags::CLOEXEC).map(File::from);
    Ok((file()?, file()?))
}

fn reserved() -> MutexGuard<'static, Option<Vec<Pair>>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Empties them.
fn empty((one, other): &mut Pair) -> io::Result<()> {
    for file in [one, other] {
        file.set_len(0)?;
        file.rewind()?;
    }
    Ok(())
}

// === impl MemoryFiles ===

impl MemoryFiles {
    /// Two files; if they are reserved, waits until somebody returns two.
    ///
    /// # Errors
    /// If the system cannot make them.
    pub fn take() -> io::Result<Self> {
        let mut reserved = reserved();
        loop {
            let Some(free) = reserved.as_mut() else {
                return Ok(Self(Some(make()?)));
            };
            if let Some(pair) = free.pop() {
                return Ok(Self(Some(pair)));
            }
            let waited = GIVEN_BACK.wait(reserved);
            reserved = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The two files.
    pub fn files(&self) -> (&File, &File) {
        let (one, other) = self.0.as_ref().expect("they are here until the end");
        (one, other)
    }
}

impl Drop for MemoryFiles {
    fn drop(&mut self) {
        let Some(mut pair) = self.0.take() else {
            return;
        };
        if let Some(free) = reserved().as_mut() {
            // A file that cannot be emptied is overwritten by the next user.
            empty(&mut pair).ok();
            free.push(pair);
            GIVEN_BACK.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        thread,
    };

    use super::*;

    #[test]
    fn reserved_files_are_waited_for_and_come_back_empty() {
        let before = MemoryFiles::take().expect("files");
        reserve_memory_files().expect("files");
        // A file that was made before is not part of the reserve, and joins it.
        drop(before);
        let users: Vec<_> = (0..8)
            .map(|number: u8| {
                thread::spawn(move || {
                    let taken = MemoryFiles::take().expect("files");
                    let (mut one, mut other) = taken.files();
                    let mut found = Vec::new();
                    one.read_to_end(&mut found).expect("read");
                    other.read_to_end(&mut found).expect("read");
                    assert_eq!(found, []);
                    one.write_all(&[number; 100]).expect("written");
                    other.write_all(&[number; 10]).expect("written");
                })
            })
            .collect();
        for user in users {
            user.join().expect("it wrote");
        }
    }
}
