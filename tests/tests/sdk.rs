//! SDKs against a running service: those that generators make from the OpenAPI document, and our own for Python.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use sextant_test_servers::cache;
use sextant_tests::{Process, Settings, TestCluster, digits, sextant};
use tempfile::TempDir;

/// Records that the TypeScript client asks about.
const IMAGES: usize = 30;

/// `tests/sdk`.
fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sdk")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A program of the Python environment that has the generators.
fn tool(name: &str) -> Command {
    let bin = cache()
        .expect("a home folder")
        .join("python-sdk")
        .join("bin");
    assert!(
        bin.is_dir(),
        "the generators are missing: run `cargo xtask provision`"
    );
    let mut command = Command::new(bin.join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin].into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).expect("a path"));
    command
}

fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The output of a generator.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn document() -> PathBuf {
    root().join("openapi/sextant.json")
}

/// The folder of the example, with some of its images as text for clients that cannot read archives.
fn example(folder: &TempDir) -> io::Result<PathBuf> {
    let example = folder.path().join("digits");
    fs::create_dir(&example)?;
    for name in ["mlp.onnx", "validation.npz"] {
        fs::copy(digits::file(name), example.join(name))?;
    }
    let images = digits::Images::load("test");
    let pixels: Vec<_> = (0..IMAGES).map(|index| images.pixels(index)).collect();
    let labels: Vec<_> = (0..IMAGES).map(|index| images.labels[index]).collect();
    fs::write(
        example.join("images.json"),
        serde_json::to_vec(&pixels).expect("JSON"),
    )?;
    fs::write(
        example.join("labels.json"),
        serde_json::to_vec(&labels).expect("JSON"),
    )?;
    Ok(example)
}

fn python(script: &str, path: &Path, arguments: &[&OsStr]) {
    run(tool("python3")
        .arg(sources().join(script))
        .args(arguments)
        .env("PYTHONPATH", path));
}

#[test]
fn the_python_sdk_of_a_generator_does_all_that_a_user_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = said(
        tool("openapi-python-client")
            .arg("generate")
            .args(["--meta", "none", "--path"])
            .arg(document())
            .arg("--output-path")
            .arg(folder.path().join("generated")),
    );
    assert!(!said.to_lowercase().contains("warning"), "{said}");
    let cluster = TestCluster::start(Settings::default());
    let example = digits::file("");
    python(
        "with_generated.py",
        folder.path(),
        &[cluster.address().as_ref(), example.as_os_str()],
    );
}

#[test]
fn the_typescript_sdk_of_a_generator_is_sound_and_does_all_that_a_user_does() {
    let folder = tempfile::tempdir().expect("a folder");
    run(tool("openapi-generator-cli")
        .args(["generate", "-g", "typescript-fetch", "-i"])
        .arg(document())
        .arg("-o")
        .arg(folder.path().join("generated")));
    for name in ["with_generated.ts", "tsconfig.json"] {
        fs::copy(sources().join(name), folder.path().join(name)).expect("it is copied");
    }
    run(Command::new("tsc").arg("-p").arg(folder.path()));
    let cluster = TestCluster::start(Settings::default());
    let example = example(&folder).expect("it is written");
    run(Command::new("node")
        .arg(folder.path().join("out/with_generated.js"))
        .arg(cluster.address())
        .arg(example));
}

/// `sextant serve` of a Python environment, and nothing else that the machine has of ours.
fn serve_from(environment: &Path, data: &Path) -> Process {
    let mut command = Command::new(environment.join("bin/sextant"));
    let nowhere = data.join("cache");
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data)
        .env("SEXTANT_CACHE", nowhere)
        .env_remove("ORT_DYLIB_PATH");
    Process::start(command, &data.join("log"))
}

#[test]
fn the_wheel_installs_into_an_empty_environment_and_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    run(Command::new("strip")
        .arg("-o")
        .arg(at("sextant"))
        .arg(sextant()));
    let written = said(
        tool("python3")
            .arg(root().join("xtask/wheel.py"))
            .arg("--binary")
            .arg(at("sextant"))
            .arg("--to")
            .arg(at("dist")),
    );
    run(tool("python3").args(["-m", "venv"]).arg(at("empty")));
    let wheels = cache().expect("a home folder").join("wheelhouse");
    run(Command::new(at("empty/bin/python3"))
        .args([
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--no-index",
        ])
        .arg("--find-links")
        .arg(wheels)
        .arg(written.trim()));
    fs::create_dir(at("data")).expect("a folder");
    let service = serve_from(&at("empty"), &at("data"));
    let mut script = Command::new(at("empty/bin/python3"));
    script.arg(sources().join("with_package.py"));
    run(script.arg(service.address()).arg(digits::file("")));
    assert!(service.stop().success());
}

#[test]
fn our_own_python_package_takes_arrays_and_gives_arrays() {
    let folder = tempfile::tempdir().expect("a folder");
    let pip = |arguments: &[&str]| {
        let mut command = tool("python3");
        command
            .args(["-m", "pip", "--disable-pip-version-check", "--quiet"])
            .args(arguments);
        command
    };
    // The wheel is what people install; it is built from a copy, in which the build may leave what it likes.
    let package = folder.path().join("package");
    run(Command::new("cp")
        .arg("-r")
        .arg(root().join("sdk/python"))
        .arg(&package));
    run(pip(&["wheel", "--no-deps", "--no-build-isolation", "-w"])
        .arg(folder.path().join("wheels"))
        .arg(&package));
    let wheels = fs::read_dir(folder.path().join("wheels")).expect("a folder");
    let wheel = wheels.flatten().next().expect("a wheel").path();
    let site = folder.path().join("site");
    run(pip(&["install", "--no-deps", "--no-index", "--target"])
        .arg(&site)
        .arg(wheel));
    let cluster = TestCluster::start(Settings::default());
    let example = digits::file("");
    python(
        "with_package.py",
        &site,
        &[cluster.address().as_ref(), example.as_os_str()],
    );
}
