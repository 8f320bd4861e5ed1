//! Triton's own QA, as its authors run it, by a script that fetches it at a pinned revision.

use std::env;
use std::ffi::OsString;

use anyhow::{Context, Result};

use super::{Bed, Check};
use crate::provision::python;
use crate::{paths, shell};

const REQUIREMENTS: &str = include_str!("../../compatibility/triton_qa/requirements.txt");

// === impl Bed ===

impl Bed {
    /// Its tests against a service with models that its generators make. They come from GitHub, or from the copy of
    /// the repository that `TRITON` names.
    pub(super) fn triton_qa(&self) -> Result<Vec<Check>> {
        let cache = &self.provisioned.cache;
        let interpreter = python::environment(&cache.join("python-triton-qa"), REQUIREMENTS)?;
        let said = shell::output(
            shell::command("sh")
                .arg(paths::root().join("xtask/compatibility/triton_qa/run.sh"))
                .arg(paths::empty_target("compatibility-triton-qa")?)
                .env("PATH", self.path()?)
                .env("PYTHON", interpreter)
                .env("ORT_DYLIB_PATH", &self.provisioned.onnxruntime),
        )?;
        Ok(said.lines().map(check).collect())
    }

    /// Where programs are looked for: the service's first.
    fn path(&self) -> Result<OsString> {
        let own = self.binary.parent().context("the binary lies nowhere")?;
        let others = env::var_os("PATH").unwrap_or_default();
        let all = [own.to_owned()].into_iter();
        Ok(env::join_paths(all.chain(env::split_paths(&others)))?)
    }
}

/// A line of the script: `infer: Ran 41 tests in 13.1s OK`, or what has gone wrong before.
fn check(line: &str) -> Check {
    Check {
        suite: "triton_qa",
        name: line.trim().to_owned(),
        failure: (!line.trim().ends_with(" OK")).then(|| line.to_owned()),
    }
}
