//! A runtime that is a child process: started, given up, started again, never left behind.

use std::{
    fs,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use sextant_engine::{Error, LoadedModel};
use sextant_engine_remote::{Program, RemoteConfig, RemoteEngine, Source};
use sextant_types::{Data, NamedTensor, Tensor};

#[path = "support/load.rs"]
mod load;
#[path = "support/runtime.rs"]
mod runtime;

use load::{load, refusal, row};

fn faulty(arguments: &[&str]) -> RemoteConfig {
    let script = runtime::root().join("crates/engines/engine-remote/tests/support/faulty.py");
    runtime::script(&script.to_string_lossy(), arguments)
}

fn engine(config: RemoteConfig) -> RemoteEngine {
    RemoteEngine::new(config).expect("the configuration is good")
}

/// A runtime whose command is these words.
fn command(words: &[&str]) -> RemoteEngine {
    let program = Program {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Program::default()
    };
    let mut config = RemoteConfig::new(runtime::NAME, Source::Command(program));
    config.ready_timeout = Duration::from_secs(2);
    engine(config)
}

fn model(engine: &RemoteEngine, name: &str) -> Arc<dyn LoadedModel> {
    match load(engine, runtime::manifest(name, 0)) {
        Ok(model) => model,
        Err(error) => panic!("`{name}` cannot be loaded: {error}"),
    }
}

/// The row that the faulty models do harm on.
fn harm() -> Vec<NamedTensor> {
    let tensor = Tensor::from_elements(vec![1, 2], &[-1f32, 2.0]).expect("two numbers");
    vec![NamedTensor::new("input", tensor)]
}

fn answers(model: &dyn LoadedModel) {
    let outputs = model.run(&row()).expect("a good batch");
    assert_eq!(outputs[0].to_vec::<f32>(), Some(vec![2.0, 4.0]));
}

/// Whether a process is there and has not ended.
fn runs(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state != Some('Z')
}

/// Whether the system still lists the process: a zombie counts.
fn is_listed(process: u32) -> bool {
    fs::exists(format!("/proc/{process}")).unwrap_or(false)
}

#[test]
fn a_program_that_is_missing_is_unavailable() {
    let error = refusal(load(
        &command(&["/no/such/program"]),
        runtime::manifest("m", 0),
    ));
    let Error::Unavailable { engine, reason } = error else {
        panic!("refused as `{error}`");
    };
    assert_eq!(engine, runtime::NAME);
    assert!(reason.contains("/no/such/program"), "{reason}");
}

#[test]
fn a_program_that_ends_at_once_is_unavailable_and_its_words_are_told() {
    let engine = command(&["sh", "-c", "echo no licence >&2; exit 3"]);
    let error = refusal(load(&engine, runtime::manifest("m", 0)));
    let Error::Unavailable { reason, .. } = error else {
        panic!("refused as `{error}`");
    };
    for part in ["exit status: 3", "no licence"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(engine.child_id(), None);
}

#[test]
fn a_program_that_is_never_ready_is_unavailable_and_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let note = folder.path().join("id").to_string_lossy().into_owned();
    let script = format!("echo $$ > {note}; exec cat");
    let error = refusal(load(
        &command(&["sh", "-c", &script]),
        runtime::manifest("m", 0),
    ));
    let Error::Unavailable { reason, .. } = error else {
        panic!("refused as `{error}`");
    };
    assert!(reason.contains("not ready within 2s"), "{reason}");
    let id = fs::read_to_string(note).expect("the program ran");
    let id = id.trim().parse().expect("an id");
    assert!(!is_listed(id), "the process is left");
}

#[test]
fn a_crash_loses_the_batch_and_the_next_load_starts_again() {
    let engine = engine(faulty(&[]));
    let (crash, other) = (model(&engine, "crash"), model(&engine, "double"));
    let first = engine.child_id().expect("it runs");
    answers(&*other);
    let error = crash.run(&harm()).expect_err("it crashes");
    let Error::Lost(reason) = &error else {
        panic!("`{error}`");
    };
    for part in ["signal: 11", "about to crash"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(!is_listed(first), "a zombie is left");
    for lost in [&crash, &other] {
        let again = lost.run(&row()).expect_err("its process is gone");
        assert!(again.is_loss(), "{again}");
    }
    let fresh = model(&engine, "crash");
    answers(&*fresh);
    assert_ne!(engine.child_id().expect("it runs"), first);
    let still = other.run(&row()).expect_err("a handle does not come back");
    assert!(still.is_loss(), "{still}");
}

#[test]
fn a_hang_is_killed_at_its_limit_with_all_batches_under_way() {
    let mut config = faulty(&[]);
    // A good batch takes less on a busy machine, too.
    config.request_timeout = Duration::from_secs(5);
    let engine = engine(config);
    let hang = model(&engine, "hang");
    answers(&*hang);
    let first = engine.child_id().expect("it runs");
    let together = Barrier::new(2);
    let errors: Vec<Error> = thread::scope(|scope| {
        let run = || {
            together.wait();
            hang.run(&harm()).expect_err("it hangs")
        };
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into()
    });
    for error in &errors {
        assert!(error.is_loss(), "{error}");
    }
    let told = errors
        .iter()
        .any(|error| error.to_string().contains("within 5s"));
    assert!(told, "{errors:?}");
    assert!(!is_listed(first), "the process is left");
    answers(&*model(&engine, "hang"));
}

#[test]
fn a_failure_of_a_model_is_no_loss() {
    let engine = engine(faulty(&[]));
    let fail = model(&engine, "fail");
    let error = fail.run(&harm()).expect_err("it fails");
    let Error::Failed(reason) = &error else {
        panic!("`{error}`");
    };
    assert!(reason.contains("out of luck"), "{reason}");
    answers(&*fail);
}

#[test]
fn a_child_that_others_kill_is_reaped_and_replaced() {
    let engine = engine(faulty(&[]));
    let double = model(&engine, "double");
    let first = engine.child_id().expect("it runs");
    let id = rustix::process::Pid::from_raw(i32::try_from(first).expect("an id"));
    rustix::process::kill_process(id.expect("an id"), rustix::process::Signal::KILL)
        .expect("it can be killed");
    let error = double.run(&row()).expect_err("its process is gone");
    assert!(error.is_loss(), "{error}");
    assert!(!is_listed(first), "a zombie is left");
    answers(&*model(&engine, "double"));
}

#[test]
fn the_process_ends_with_the_engine() {
    for arguments in [&[][..], &["--deaf"]] {
        let engine = engine(faulty(arguments));
        let double = model(&engine, "double");
        let id = engine.child_id().expect("it runs");
        let clone = engine.clone();
        drop(engine);
        answers(&*double);
        drop(clone);
        assert!(!is_listed(id), "{arguments:?}: the process is left");
        let error = double.run(&row()).expect_err("its engine is gone");
        assert!(error.is_loss(), "{error}");
    }
}

#[test]
fn what_the_process_started_ends_with_it() {
    let engine = engine(faulty(&[]));
    let outputs = model(&engine, "forks").run(&row()).expect("it answers");
    let id = outputs[0].to_vec::<f32>().expect("numbers")[0] as u32;
    assert!(runs(id));
    drop(engine);
    // It is killed by now, and the system takes its time to end it.
    let since = Instant::now();
    while runs(id) {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "process {id} is left"
        );
        thread::yield_now();
    }
}

#[test]
fn environment_and_folder_are_the_configured_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = faulty(&[]);
    let Source::Command(program) = &mut config.source else {
        panic!("it is a command");
    };
    let variable = ("GREETING".to_owned(), "port {port}".to_owned());
    program.environment.extend([variable]);
    program.folder = Some(folder.path().to_owned());
    let engine = engine(config);
    let told = model(&engine, "told");
    let names = Tensor::from_strings(vec![2], ["GREETING", "SEXTANT_NOT_SET"]);
    let names = names.expect("two strings");
    let outputs = told
        .run(&[NamedTensor::new("input", names)])
        .expect("it answers");
    let Data::Strings(told) = outputs[0].data() else {
        panic!("strings");
    };
    let told: Vec<_> = told.iter().map(String::from_utf8_lossy).collect();
    let port = told[0].strip_prefix("port ").expect("the greeting");
    assert!(port.parse::<u16>().is_ok(), "{port}");
    let folder = folder.path().file_name().expect("a name").to_string_lossy();
    assert!(told[1].ends_with(&*folder), "{told:?}");
}

#[test]
fn loads_of_one_model_are_counted() {
    let engine = engine(faulty(&[]));
    let (first, second) = (model(&engine, "double"), model(&engine, "double"));
    drop(first);
    answers(&*second);
    drop(second);
    answers(&*model(&engine, "double"));
    let error = refusal(load(&engine, runtime::manifest("nothing", 0)));
    let Error::Unsupported(reason) = &error else {
        panic!("refused as `{error}`");
    };
    assert!(reason.contains("there is no model `nothing`"), "{reason}");
}
