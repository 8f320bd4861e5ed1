//! `sextant completions`: a shell's script to complete command lines.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, Error, Output};

/// Print the script with which a shell completes commands, flags and their values.
///
/// For bash: `sextant completions bash > ~/.local/share/bash-completion/completions/sextant`; for zsh a file
/// `_sextant` in a folder of `fpath`; for fish `~/.config/fish/completions/sextant.fish`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints it.
    pub fn run(self, output: Output) -> Result<(), Error> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut Arguments::command(),
            "sextant",
            &mut script,
        );
        output.bytes(&script)
    }
}
