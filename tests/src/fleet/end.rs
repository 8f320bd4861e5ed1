//! The end of a fleet: every process ends by itself, without a panic.

use std::thread;

use rustix::process::Signal;

use super::Fleet;

impl Drop for Fleet {
    fn drop(&mut self) {
        // Front ends end first: their queries are answered while the other processes still run.
        let mut ended = Vec::new();
        let mut members: Vec<_> = std::mem::take(&mut self.members).into_iter().collect();
        members.sort_by_key(|(_, member)| !member.roles.contains("api"));
        let names: Vec<String> = members.iter().map(|(name, _)| name.clone()).collect();
        for (name, member) in members {
            if let Some(process) = member.process {
                process.signal(Signal::CONT);
                ended.push((name, process.stop()));
            }
        }
        if thread::panicking() {
            for name in names {
                let log = self.log(&name);
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("--- the end of the log of `{name}`, newest first");
                eprintln!("{}", tail.join("\n"));
            }
            return;
        }
        for (name, status) in ended {
            assert!(status.success(), "`{name}` ended with {status}");
        }
        for name in names {
            let log = self.log(&name);
            let panics: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("panicked at"))
                .collect();
            assert!(panics.is_empty(), "`{name}` logged:\n{}", panics.join("\n"));
        }
    }
}
