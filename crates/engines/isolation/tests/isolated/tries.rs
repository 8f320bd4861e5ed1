//! What an engine can do that has been taken over: a library in its place tries to reach others (`tries.c`).

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Read},
    net::TcpListener,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::ORT;

/// What it may do, as docs/security.md says.
const ALLOWED: [&str; 1] = ["stat"];

/// What the box of the kernel has, and the program does not refuse by itself: Landlock alone closes it.
const BY_LANDLOCK: [&str; 9] = [
    "connections",
    "open-memory",
    "parent-environment",
    "posix-shared-memory",
    "read",
    "shadow",
    "truncate",
    "unlink",
    "write",
];

/// Started by the test, it lives until that lets go of its standard input.
#[test]
fn victim() {
    if env::args().any(|it| it == "is=victim") {
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(0);
    }
}

/// Compiles the library, as people who have a C compiler would.
fn library(folder: &Path) -> PathBuf {
    let library = folder.join("libonnxruntime.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolated/tries.c");
    let compiled = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(compiled.expect("gcc can be started").success());
    library
}

fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments).env_clear();
    command
}

fn start_victim() -> Child {
    let mut command = this_program(&["--exact", "tries::victim", "--nocapture", "is=victim"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Each try, and whether it was allowed.
fn tries(said: &str) -> BTreeMap<String, String> {
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let told = lines.filter(|(_, how)| *how == "allowed" || how.starts_with("refused"));
    told.map(|(name, how)| (name.to_owned(), how.to_owned()))
        .collect()
}

#[test]
fn an_engine_that_was_taken_over_reaches_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let engine = format!("{ORT}{}", library(folder.path()).display());
    let socket = outside.path().join("socket");
    let _listens = UnixListener::bind(&socket).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = outside.path().join("a-file");
    fs::write(&file, "a user's").unwrap();
    let mut victim = start_victim();
    let output = this_program(&["--exact", "child", "--nocapture", &engine])
        .env("VICTIM", victim.id().to_string())
        .env("PARENT", std::process::id().to_string())
        .env("SOCKET", &socket)
        .env("PORT", port.local_addr().unwrap().port().to_string())
        .env("FILE", &file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    drop(victim.stdin.take());
    victim.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("done\n"), "{said}\n{errors}");
    let tries = tries(&said);
    assert!(tries.len() >= 60, "{tries:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "a user's");
    let expected = |name: &&String| {
        let by_landlock = BY_LANDLOCK.contains(&name.as_str());
        ALLOWED.contains(&name.as_str()) || (by_landlock && !super::faults::has_landlock())
    };
    let allowed = tries.iter().filter(|(_, how)| *how == "allowed");
    let beyond: Vec<&String> = allowed.map(|it| it.0).filter(|it| !expected(it)).collect();
    // Read by `cargo xtask bench trust`.
    for (metric, value) in [("box_tries", tries.len()), ("box_escapes", beyond.len())] {
        println!("\n{{\"metric\": \"{metric}\", \"value\": {value}}}");
    }
    assert!(beyond.is_empty(), "{beyond:?} of {tries:#?}");
}
