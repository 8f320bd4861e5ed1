//! An image that needs no registry: a static busybox and names for the programs of the machines.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use bollard::{Docker, body_full, query_parameters::CreateImageOptionsBuilder};
use futures::TryStreamExt;
use tempfile::TempDir;

/// The name of the image. A changed content needs another number.
pub const IMAGE: &str = "sextant-test-machine:2";

/// From the Debian package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// The programs of the machines.
const APPLETS: [&str; 5] = ["sh", "sleep", "env", "ls", "cat"];

/// Gives the engine the image unless the engine has it.
pub async fn ensure(client: &Docker) {
    if client.inspect_image(IMAGE).await.is_ok() {
        return;
    }
    let (repository, tag) = IMAGE.split_once(':').expect("a tag");
    let options = CreateImageOptionsBuilder::new()
        .from_src("-")
        .repo(repository)
        .tag(tag);
    let content = body_full(tar().into());
    let import = client.create_image(Some(options.build()), Some(content), None);
    let said: Vec<_> = import.try_collect().await.expect("the import");
    let refused = said.iter().any(|it| it.error_detail.is_some());
    assert!(!refused, "{said:?}");
}

fn tar() -> Vec<u8> {
    assert!(
        Path::new(BUSYBOX).exists(),
        "`{BUSYBOX}` is missing: install the package `busybox-static`"
    );
    let folder = TempDir::new().expect("a folder");
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).expect("a folder");
    std::fs::copy(BUSYBOX, programs.join("busybox")).expect("a copy");
    for applet in APPLETS {
        symlink("busybox", programs.join(applet)).expect("a link");
    }
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "-c", "-C"]);
    let output = tar.arg(folder.path()).arg("bin").output().expect("tar");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
