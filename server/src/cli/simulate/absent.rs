//! A binary that was built without the feature `simulator`.

use super::{Client, Error, output::Output};

/// Play a workload against emulated devices in virtual time; not in this binary.
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// As the whole binary takes them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

impl Simulate {
    /// Whether a running service is asked.
    pub fn asks_service(&self) -> bool {
        false
    }

    /// Says how to get it.
    pub fn run(self, _: Output) -> Result<(), Error> {
        let given = self.words.join(" ");
        Err(Error::Usage(format!(
            "`simulate {given}`: this binary was built without the feature `simulator`, as the demo is: build \
             the whole one with `cargo build --release --package sextant`"
        )))
    }

    /// The same.
    pub async fn run_registered(self, _: &Client, output: Output) -> Result<(), Error> {
        self.run(output)
    }
}
