//! The progress of a simulation: a bar on a terminal, lines elsewhere.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    /// `quiet`: no lines if there is no terminal.
    pub fn new(quiet: bool) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{spinner} {msg:50!} [{bar:24}] {pos}/{len} {elapsed_precise} (left {eta})",
            );
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(1).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, quiet }
    }

    /// Shows that `done` of `total` are finished, the last of them being `what`.
    pub fn show(&self, done: usize, total: usize, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
            }
            // A failure to write is ignored, because progress is not essential.
            None if !self.quiet => {
                writeln!(std::io::stderr(), "{done}/{total} {what}").ok();
            }
            None => {}
        }
    }

    /// Prints something while the bar is hidden.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
