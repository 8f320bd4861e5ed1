//! What ends a process costs the run that has ended it alone.

use std::{
    fs,
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use landlock::{Compatible, RulesetAttr};
use rustix::process::{Pid, Signal, kill_process};
use sextant_engine::{Engine, Error, Interrupt, LoadRequest, LoadedModel};
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor};

use super::{
    HARMFUL,
    harmful::{ABORTS, CONNECTS, DESCENDS, EXITS, FILLS, HANGS, HarmfulEngine, LOOKS, SENDS},
    isolated,
};

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn engine(mark: &str) -> impl Engine {
    isolated(Arc::new(HarmfulEngine), HARMFUL, mark)
}

fn request(artefact: u8, file: &str) -> LoadRequest {
    LoadRequest {
        artefact: Digest::from_bytes([artefact; 32]),
        model: Bytes::copy_from_slice(file.as_bytes()).into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

fn inputs(value: f32) -> Vec<NamedTensor> {
    let tensor = Tensor::from_elements(vec![1, 1], &[value]).unwrap();
    vec![NamedTensor::new("x", tensor)]
}

fn run(model: &dyn LoadedModel, value: f32) -> Result<f32, Error> {
    let outputs = model.run(&inputs(value))?;
    Ok(outputs[0].to_vec::<f32>().unwrap()[0])
}

/// Runs until the pause is over in which the process is not started.
fn eventually(model: &dyn LoadedModel, value: f32) -> Result<f32, Error> {
    let begun = Instant::now();
    loop {
        match run(model, value) {
            Err(Error::Restarted(_)) if begun.elapsed() < PATIENCE => thread::yield_now(),
            other => return other,
        }
    }
}

/// Processes that serve the engine of this mark.
fn processes(mark: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap();
    let served = processes.filter_map(|process| {
        let process = process.ok()?;
        let pid = process.file_name().to_str()?.parse().ok()?;
        // One that has ended has no arguments.
        let arguments = fs::read(process.path().join("cmdline")).ok()?;
        let mut arguments = arguments.split(|byte| *byte == 0);
        arguments.any(|it| it == mark.as_bytes()).then_some(pid)
    });
    served.filter_map(Pid::from_raw).collect()
}

#[test]
fn what_ends_a_process_is_answered_and_the_next_run_is_too() {
    let engine = engine("mark=ends");
    let model = engine.load(&request(1, "a")).unwrap();
    assert_eq!(run(&*model, 3.0), Ok(6.0));
    assert_ne!(model.overhead(), Duration::ZERO, "the way there takes time");
    for (value, code) in [
        (ABORTS, "signal 6"),
        (FILLS, "more than the"),
        (DESCENDS, "stack overflow"),
        (EXITS, "an exit"),
    ] {
        let error = eventually(&*model, value).unwrap_err();
        let is_right = match value == FILLS {
            true => matches!(error, Error::MemoryExceeded(_)),
            false => matches!(error, Error::Crashed(_)),
        };
        assert!(is_right, "{value}: {error:?}");
        assert!(error.to_string().contains(code), "{value}: {error}");
        assert_eq!(eventually(&*model, 4.0), Ok(8.0), "after {value}");
    }
}

#[test]
fn a_run_that_hangs_is_ended() {
    let engine = engine("mark=hangs");
    let model = engine.load(&request(2, "a")).unwrap();
    let interrupt = Interrupt::default();
    let ended = thread::scope(|scope| {
        let hanging = scope.spawn(|| model.run_interruptible(&inputs(HANGS), &interrupt));
        raise(&interrupt, || hanging.is_finished());
        hanging.join().unwrap()
    });
    assert_eq!(ended.unwrap_err(), Error::Interrupted);
    assert_eq!(eventually(&*model, 4.0), Ok(8.0));
}

#[test]
fn loads_that_crash_or_hang_fail_alone() {
    let engine = engine("mark=loads");
    let good = engine.load(&request(3, "a")).unwrap();
    let crashed = engine.load(&request(4, "aborts"));
    assert!(matches!(crashed.err(), Some(Error::Crashed(_))));
    let interrupt = Interrupt::default();
    let hanging = thread::scope(|scope| {
        let hanging = scope.spawn(|| engine.load_interruptible(&request(5, "hangs"), &interrupt));
        raise(&interrupt, || hanging.is_finished());
        hanging.join().unwrap()
    });
    assert_eq!(hanging.err(), Some(Error::Interrupted));
    assert_eq!(run(&*good, 4.0), Ok(8.0));
}

#[test]
fn artefacts_have_a_process_each_that_ends_with_their_last_model() {
    let mark = "mark=artefacts";
    let engine = engine(mark);
    let [one, again] = [1, 1].map(|artefact| engine.load(&request(artefact, "a")).unwrap());
    assert_eq!(
        processes(mark).len(),
        1,
        "variants of an artefact share one"
    );
    let other = engine.load(&request(2, "a")).unwrap();
    assert_eq!(processes(mark).len(), 2);
    // A fault of one artefact is none of the other, and all of its models come back.
    assert!(matches!(run(&*one, ABORTS), Err(Error::Crashed(_))));
    assert_eq!(processes(mark).len(), 1);
    for model in [&other, &again, &one] {
        assert_eq!(run(&**model, 4.0), Ok(8.0));
    }
    assert_eq!(processes(mark).len(), 2);
    drop((one, other));
    assert_eq!(processes(mark).len(), 1);
    assert_eq!(run(&*again, 5.0), Ok(10.0));
    drop(again);
    assert_eq!(processes(mark), []);
}

#[test]
fn a_process_that_is_killed_from_outside_is_nobodys_fault() {
    let mark = "mark=killed";
    let engine = engine(mark);
    let model = engine.load(&request(1, "a")).unwrap();
    assert_eq!(run(&*model, 4.0), Ok(8.0));
    // While nothing runs, and while something does.
    for value in [None, Some(HANGS)] {
        let [process] = processes(mark)[..] else {
            panic!("not one process");
        };
        let kill = || kill_process(process, Signal::KILL).unwrap();
        let hanging = || model.run(&inputs(HANGS));
        let killed = thread::scope(|scope| match value {
            None => {
                kill();
                model.run(&inputs(4.0)).map(drop)
            }
            Some(_) => {
                let run = scope.spawn(hanging);
                wait_until_it_computes(process);
                kill();
                run.join().unwrap().map(drop)
            }
        });
        assert!(matches!(killed, Err(Error::Restarted(_))), "{killed:?}");
        assert_eq!(eventually(&*model, 5.0), Ok(10.0));
    }
}

#[test]
fn a_load_into_a_process_that_is_gone_starts_another() {
    let mark = "mark=gone";
    let engine = engine(mark);
    let first = engine.load(&request(1, "a")).unwrap();
    let [process] = processes(mark)[..] else {
        panic!("not one process");
    };
    kill_process(process, Signal::KILL).unwrap();
    let second = engine.load(&request(1, "a")).unwrap();
    for model in [&first, &second] {
        assert_eq!(eventually(&**model, 4.0), Ok(8.0));
    }
}

/// Where the machine has no time, a process that is started again is not ready before the run is to end.
#[test]
fn a_process_that_is_slow_to_start_is_no_fault_and_is_left_to_the_next_run() {
    let mark = "mark=slow";
    let engine = engine(mark);
    let model = engine.load(&request(1, "slow")).unwrap();
    let [first] = processes(mark)[..] else {
        panic!("not one process");
    };
    kill_process(first, Signal::KILL).unwrap();
    assert!(matches!(run(&*model, 4.0), Err(Error::Restarted(_))));
    // Several wait for it, all past their time.
    let interrupts: Vec<Interrupt> = (0..3).map(|_| Interrupt::default()).collect();
    thread::scope(|scope| {
        let runs = interrupts.iter().map(|interrupt| {
            let waits = || model.run_interruptible(&inputs(4.0), interrupt);
            (interrupt, scope.spawn(waits))
        });
        let runs: Vec<_> = runs.collect();
        for (interrupt, run) in &runs {
            raise(interrupt, || run.is_finished());
        }
        for (_, run) in runs {
            let ended = run.join().unwrap();
            assert!(matches!(ended, Err(Error::Restarted(_))), "{ended:?}");
        }
    });
    let started = processes(mark);
    assert_eq!(run(&*model, 5.0), Ok(10.0));
    assert_eq!(processes(mark), started, "the same one");
    assert_ne!(started, [first]);
}

/// Raises it until something has heard it, or has ended for it as soon as it began.
fn raise(interrupt: &Interrupt, has_ended: impl Fn() -> bool) {
    let begun = Instant::now();
    while !interrupt.raise() && !has_ended() {
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        thread::yield_now();
    }
}

/// Waits until a thread of the process runs.
fn wait_until_it_computes(process: Pid) {
    let begun = Instant::now();
    let tasks = format!("/proc/{}/task", process.as_raw_pid());
    let computes = || {
        let tasks = fs::read_dir(&tasks).unwrap();
        let mut stats =
            tasks.filter_map(|it| fs::read_to_string(it.ok()?.path().join("stat")).ok());
        stats.any(|stat| stat.contains("(sextant-serve) R"))
    };
    while !computes() {
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        thread::yield_now();
    }
}

/// Whether the kernel lets a process close files and network to itself.
pub fn has_landlock() -> bool {
    let modules = fs::read_to_string("/sys/kernel/security/lsm");
    match modules {
        Ok(modules) => modules.contains("landlock"),
        // Not shown, so found out.
        Err(_) => landlock::Ruleset::default()
            .set_compatibility(landlock::CompatLevel::HardRequirement)
            .handle_access(landlock::AccessNet::ConnectTcp)
            .is_ok(),
    }
}

/// Whether the kernel lets a process refuse calls to itself.
fn has_seccomp() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Seccomp:"))
}

#[test]
fn a_process_has_neither_the_files_of_the_service_nor_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.key");
    fs::write(&secret, "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let engine = engine("mark=sealed");
    let model = engine
        .load(&request(1, &secret.display().to_string()))
        .unwrap();
    let looked = run(&*model, LOOKS).unwrap();
    let connected = run(&*model, CONNECTS - f32::from(port)).unwrap();
    let sent = run(&*model, SENDS).unwrap();
    // What the kernel has no Landlock for is left to a container.
    assert_eq!(looked, if has_landlock() { 0.0 } else { 3.0 });
    if has_seccomp() {
        assert_eq!((connected, sent), (0.0, 0.0));
    }
    assert_eq!(run(&*model, 3.0), Ok(6.0));
}
