//! Makes images from packages, under the names of images whose registry cannot be reached.
//!
//! Each is a Dockerfile of `stand_ins/` that starts from Debian as debootstrap makes it. A label records the recipe of
//! an image, so that it is not mistaken for the real image and is made again when its recipe changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::engine::{self, docker};
use crate::paths;
use crate::provision::{system, tools};
use crate::shell::{self, say};

/// The label of a stand-in: the digest of its recipe.
pub const LABEL: &str = "sextant.stand-in";

/// The image that is made from debootstrap's folder.
const DEBOOTSTRAP: &str = "sextant-stand-in:debootstrap";
const MIRROR: &str = "http://deb.debian.org/debian";
/// The file of the certificates that this machine trusts.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The images for which a recipe stands in, by the beginning of their names.
const RECIPES: [(&str, Recipe); 7] = [
    ("debian:bookworm", Recipe("base", Extra::Certificates)),
    ("rust:", Recipe("rust", Extra::Toolchain)),
    ("python:", Recipe("python", Extra::Nothing)),
    ("redis:", Recipe("redis", Extra::Nothing)),
    ("postgres:", Recipe("postgres", Extra::Nothing)),
    ("versity/versitygw:", Recipe("s3", Extra::S3)),
    ("prom/prometheus:", Recipe("prometheus", Extra::Nothing)),
];

/// A machine that has next to nothing.
pub const BARE: Recipe = Recipe("bare", Extra::Nothing);

/// The recipe of a stand-in: the name of its Dockerfile, and the files that it gets from this machine.
#[derive(Debug, Clone, Copy)]
pub struct Recipe(&'static str, Extra);

/// Files that a stand-in gets from this machine.
#[derive(Debug, Clone, Copy)]
enum Extra {
    Nothing,
    /// Debian itself, and the certificates.
    Certificates,
    /// The Rust toolchain.
    Toolchain,
    /// The S3 server of the tests.
    S3,
}

impl Recipe {
    /// The recipe of an image, if there is one.
    pub fn of(image: &str) -> Option<Self> {
        let recipe = RECIPES.iter().find(|(prefix, _)| image.starts_with(prefix));
        recipe.map(|(_, recipe)| *recipe)
    }

    /// SHA-256 of the Dockerfile and of the scripts that it copies, in hexadecimal.
    pub fn digest(self) -> Result<String> {
        let mut hasher = Sha256::new();
        for file in self.files()? {
            let path = folder().join(file);
            let text = std::fs::read(&path);
            hasher.update(text.with_context(|| format!("cannot read `{}`", path.display()))?);
        }
        Ok(hex::encode(hasher.finalize()))
    }

    /// Builds the stand-in under the name `image`.
    pub fn make(self, image: &str) -> Result<()> {
        say(format!("{image}: making a stand-in from packages"));
        if matches!(self.1, Extra::Certificates) {
            debootstrap()?;
        }
        let label = format!("{LABEL}={}", self.digest()?);
        let file = self.dockerfile();
        let build = [
            "build", "--quiet", "--tag", image, "--label", &label, "--file", &file, "-",
        ];
        // This uses the engine's own builder, because BuildKit's command line may be missing where there is no
        // registry.
        engine::pipe(
            &mut self.context()?,
            docker(&build).env("DOCKER_BUILDKIT", "0"),
        )
    }

    fn dockerfile(self) -> String {
        format!("{}.Dockerfile", self.0)
    }

    /// The Dockerfile and the scripts that it names.
    fn files(self) -> Result<Vec<String>> {
        let dockerfile = self.dockerfile();
        let text = std::fs::read_to_string(folder().join(&dockerfile))
            .with_context(|| format!("cannot read `{dockerfile}`"))?;
        let words = text.lines().filter_map(|line| line.strip_prefix("COPY "));
        let words = words.filter_map(|rest| rest.split_whitespace().next());
        let scripts = words.filter(|name| folder().join(name).is_file());
        Ok(scripts.map(str::to_owned).chain([dockerfile]).collect())
    }

    /// A command that writes the build's context as an archive.
    fn context(self) -> Result<Command> {
        let mut tar = shell::command("tar");
        tar.args(["--create", "--dereference", "--directory"])
            .arg(folder());
        tar.args(self.files()?);
        match self.1 {
            Extra::Nothing => {}
            Extra::Certificates => {
                let file = Path::new(CERTIFICATES);
                tar.arg("--directory")
                    .args(file.parent())
                    .args(file.file_name());
            }
            Extra::Toolchain => {
                let root = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
                tar.args(["--directory", root.trim(), "bin", "lib"]);
            }
            Extra::S3 => {
                let program = tools::s3_server(&paths::cache()?)?;
                tar.arg("--directory")
                    .args(program.parent())
                    .args(program.file_name());
            }
        }
        Ok(tar)
    }
}

fn folder() -> PathBuf {
    paths::root().join("xtask/src/containers/stand_ins")
}

/// Makes an image of Debian without anything else.
fn debootstrap() -> Result<()> {
    if engine::label(DEBOOTSTRAP, LABEL).is_some() {
        return Ok(());
    }
    if !shell::succeeds(shell::command("debootstrap").arg("--version")) {
        system::install(&["debootstrap"], "images of Debian")?;
    }
    let folder = paths::empty_target("debootstrap")?;
    shell::run(
        shell::command("debootstrap")
            .args(["--variant=minbase", "bookworm"])
            .arg(&folder)
            .arg(MIRROR),
    )?;
    let mut tar = shell::command("tar");
    tar.arg("--directory").arg(&folder).args(["--create", "."]);
    engine::pipe(&mut tar, &mut docker(&["import", "-", DEBOOTSTRAP]))?;
    std::fs::remove_dir_all(&folder).context("cannot remove what debootstrap made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_has_its_files() {
        for (image, recipe) in RECIPES {
            assert!(recipe.digest().is_ok(), "{image}");
        }
        assert!(BARE.digest().is_ok());
        let files = Recipe::of("postgres:16-bookworm").unwrap().files().unwrap();
        assert_eq!(files, ["postgres.sh", "postgres.Dockerfile"]);
        assert!(Recipe::of("grafana/grafana:11").is_none());
    }
}
