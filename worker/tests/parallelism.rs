//! Parallelism live: what the profiler counts, what the runner promises while it is switched.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use sextant_engine::{
    Engine, Error, LoadRequest, LoadedModel,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_engine_ort::OrtEngine;
use sextant_policies::parallelism::{Backlog, Configuration, Random, StopRule, configurations};
use sextant_types::{
    DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor, TensorSpec,
};
use sextant_worker::parallelism::{
    Completed, GOALS, Handles, Quality, Request, RunError, Runner, RunnerOptions, Verdict,
    caller_cores, cores, drive, measure, sample_inputs,
};

const PATIENCE: Duration = Duration::from_secs(20);
const SEED: u64 = 23;

fn request() -> LoadRequest {
    LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: sextant_onnx::builder::mlp(&[16, 32, 8], SEED),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(4)],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}

fn engine(sleep: impl Fn() + Send + Sync + 'static) -> EmulatedEngine {
    let describe = |_: &LoadRequest| {
        Ok(EmulatedModel {
            signature: signature(),
            alpha_ms: 0.0,
            beta_ms: 0.0,
            load_ms: 0.0,
            weights_bytes: 0,
        })
    };
    EmulatedEngine::new(describe).with_sleep(move |_| sleep())
}

/// The emulated model on 1 up to `most` threads.
fn handles(engine: &dyn Engine, most: u16) -> Handles {
    let load = |intra| (intra, engine.load(&request()).unwrap());
    Handles::new((1..=most).map(load).collect::<BTreeMap<_, _>>())
}

/// As many as asked for, of those there are: threads of a test may share a core.
fn some_cores(count: usize) -> Vec<usize> {
    cores().unwrap().into_iter().cycle().take(count).collect()
}

fn runner(handles: Handles, cores: usize, configuration: Configuration) -> Runner {
    let options = RunnerOptions {
        cores: some_cores(cores),
        configuration,
        spin: Duration::ZERO,
    };
    Runner::start(handles, options).unwrap()
}

fn input(value: f32) -> Arc<Vec<NamedTensor>> {
    let tensor = Tensor::from_elements(vec![1, 4], &[value; 4]).unwrap();
    Arc::new(vec![NamedTensor::new("x", tensor)])
}

/// Submits now; results come by the channel with their number.
fn submit(
    runner: &Runner,
    number: usize,
    inputs: Arc<Vec<NamedTensor>>,
    sender: &mpsc::Sender<(usize, Completed)>,
) {
    let sender = sender.clone();
    runner.submit(Request {
        inputs,
        arrival: Instant::now(),
        done: Box::new(move |completed| drop(sender.send((number, completed)))),
    });
}

/// Time stands still for the emulated engine while this is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self {
            closed: Mutex::new(true),
            ..Self::default()
        })
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        let closed = self.closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_inside(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.inside.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < until, "{count} never ran");
            std::thread::yield_now();
        }
    }
}

#[test]
fn at_most_the_service_degree_runs_and_starts_in_order() {
    let gate = Gate::closed();
    let passage = Arc::clone(&gate);
    // Loads pass no time of this engine's.
    let handles = {
        gate.open();
        let handles = handles(&engine(move || passage.pass()), 2);
        *gate.closed.lock().unwrap() = true;
        gate.most_inside.store(0, Ordering::SeqCst);
        handles
    };
    let runner = runner(handles, 4, Configuration::local(2, 2));
    let (sender, receiver) = mpsc::channel();
    (0..20).for_each(|number| submit(&runner, number, input(number as f32), &sender));
    gate.wait_inside(2);
    let backlog = Backlog {
        running: 2,
        queued: 18,
    };
    assert_eq!(runner.backlog(), backlog);
    gate.open();
    let mut all: Vec<_> = (0..20)
        .map(|_| receiver.recv_timeout(PATIENCE).unwrap())
        .collect();
    all.sort_by_key(|(number, _)| *number);
    assert!(
        all.windows(2)
            .all(|pair| pair[0].1.started <= pair[1].1.started)
    );
    assert_eq!(gate.most_inside.load(Ordering::SeqCst), 2);
    let counters = runner.counters();
    assert_eq!((counters.most_running, counters.most_threads), (2, 4));
}

#[test]
fn a_switch_leaves_what_runs_alone_and_holds_for_what_waits() {
    let gate = Gate::closed();
    gate.open();
    let passage = Arc::clone(&gate);
    let handles = handles(&engine(move || passage.pass()), 2);
    *gate.closed.lock().unwrap() = true;
    let runner = runner(handles, 2, Configuration::local(1, 2));
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|number| submit(&runner, number, input(0.0), &sender));
    gate.wait_inside(1);
    assert_eq!(runner.configure(Configuration::local(2, 1)).unwrap(), 1);
    // Both cores are granted to the wide request: nothing starts beside it.
    assert_eq!(runner.backlog().running, 1);
    gate.open();
    let mut all: Vec<_> = (0..3)
        .map(|_| receiver.recv_timeout(PATIENCE).unwrap())
        .collect();
    all.sort_by_key(|(number, _)| *number);
    let versions: Vec<u64> = all.iter().map(|(_, completed)| completed.version).collect();
    assert_eq!(versions, [0, 1, 1]);
    assert!(all[1].1.started >= all[0].1.started);
    assert_eq!(runner.counters().most_threads, 2);
    // The same again is no switch.
    assert_eq!(runner.configure(Configuration::local(2, 1)).unwrap(), 1);
    assert_eq!(runner.counters().switches, 1);
}

/// A hundred switches under load: each request is answered once, as `expected` says.
fn switched(
    handles: Handles,
    cores: usize,
    inputs: &[Arc<Vec<NamedTensor>>],
    expected: &dyn Fn(usize, &[Tensor]) -> bool,
) {
    const SWITCHES: usize = 100;
    const EACH: usize = 8;
    let runner = runner(handles, cores, Configuration::local(1, 1));
    let all = configurations(cores as u16, 1);
    let mut random = Random::new(SEED);
    let (sender, receiver) = mpsc::channel();
    let mut answers = vec![0; SWITCHES * EACH];
    let mut last = 0;
    for switch in 0..SWITCHES {
        for number in switch * EACH..(switch + 1) * EACH {
            submit(
                &runner,
                number,
                Arc::clone(&inputs[number % inputs.len()]),
                &sender,
            );
        }
        let others: Vec<_> = all
            .iter()
            .filter(|other| **other != runner.configuration())
            .collect();
        let next = *others[random.below(others.len())];
        last = runner.configure(next).unwrap();
        // Load goes on: only what exceeds a few rounds is waited for.
        for _ in 0..if switch < 3 { 0 } else { EACH } {
            let (number, completed) = receiver.recv_timeout(PATIENCE).unwrap();
            let outputs = completed.outputs.unwrap();
            assert!(
                expected(number % inputs.len(), &outputs),
                "{number}, seed {SEED}"
            );
            answers[number] += 1;
        }
    }
    drop(sender);
    assert_eq!(last, SWITCHES as u64);
    for _ in 0..3 * EACH {
        let (number, completed) = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(expected(number % inputs.len(), &completed.outputs.unwrap()));
        answers[number] += 1;
    }
    assert!(answers.iter().all(|count| *count == 1), "{answers:?}");
    let counters = runner.counters();
    assert_eq!(counters.switches, SWITCHES as u64);
    assert_eq!((counters.submitted, counters.answered), (800, 800));
    assert!(counters.most_threads <= cores, "{counters:?}");
}

#[test]
fn a_hundred_switches_lose_nothing_emulated() {
    let engine = engine(|| ());
    let handles = handles(&engine, 4);
    let inputs: Vec<_> = (0..50).map(|number| input(number as f32)).collect();
    let model = engine.load(&request()).unwrap();
    let answers: Vec<_> = inputs
        .iter()
        .map(|inputs| model.run(inputs).unwrap())
        .collect();
    switched(handles, 4, &inputs, &|number, outputs| {
        answers[number] == outputs
    });
}

fn onnx_runtime() -> OrtEngine {
    let library = OrtEngine::find_library(None).expect("run `cargo xtask provision` first");
    OrtEngine::new(&library).unwrap()
}

#[test]
fn a_hundred_switches_lose_nothing_with_onnx_runtime() {
    let engine = onnx_runtime();
    let signature = sextant_onnx::inspect(&request().model).unwrap().signature;
    let inputs: Vec<_> = (0..20)
        .map(|seed| Arc::new(sample_inputs(&signature, 2, seed).unwrap()))
        .collect();
    let handles = Handles::load(&engine, &request(), &some_cores(2), &inputs[0]).unwrap();
    let model = engine.load(&request()).unwrap();
    let values = |outputs: &[Tensor]| outputs[0].to_vec::<f32>().unwrap();
    let answers: Vec<_> = inputs
        .iter()
        .map(|inputs| values(&model.run(inputs).unwrap()))
        .collect();
    switched(handles, 2, &inputs, &|number, outputs| {
        let found = values(outputs);
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
        found.len() == answers[number].len() && found.iter().zip(&answers[number]).all(close)
    });
}

#[test]
fn degrees_share_weights_and_agree() {
    let engine = onnx_runtime();
    // Large enough for weights to be shared.
    let request = LoadRequest {
        artefact: Digest::from_bytes([2; 32]),
        model: sextant_onnx::builder::mlp(&[512, 1024, 512], SEED),
        ..request()
    };
    let info = sextant_onnx::inspect(&request.model).unwrap();
    let inputs = sample_inputs(&info.signature, 3, SEED).unwrap();
    let handles = Handles::load(&engine, &request, &some_cores(3), &inputs).unwrap();
    assert!(engine.resident_weights_bytes() <= info.weights_bytes + (1 << 16));
    let run = |intra: u16| {
        let outputs = handles.get(intra).unwrap().run(&inputs).unwrap();
        outputs[0].to_vec::<f32>().unwrap()
    };
    for intra in [2, 3] {
        let pairs = run(1).into_iter().zip(run(intra));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-3));
    }
    assert!(handles.get(4).is_none());
}

#[test]
fn every_tuple_is_profiled_with_few_requests() {
    let handles = handles(&engine(|| ()), 3);
    let rule = StopRule {
        minimum: 10,
        maximum: 20,
        half_width: 0.01,
    };
    let mut seen = Vec::new();
    let inputs = input(1.0);
    let profiled = measure(&handles, &inputs, &some_cores(3), rule, &mut |tuple, _| {
        seen.push(tuple);
    })
    .unwrap();
    assert_eq!(seen.len(), configurations(3, 1).len());
    assert_eq!(profiled.profile.configurations(), configurations(3, 1));
    assert!(profiled.requests > 0);
}

#[test]
fn a_failing_model_ends_the_profile_and_not_the_runner() {
    struct Broken(Signature);
    impl LoadedModel for Broken {
        fn signature(&self) -> &Signature {
            &self.0
        }
        fn run(&self, _: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
            Err(Error::Failed("broken".to_owned()))
        }
        fn weights_bytes(&self) -> u64 {
            0
        }
    }
    let broken: Arc<dyn LoadedModel> = Arc::new(Broken(signature()));
    let handles = Handles::new((1..=2).map(|intra| (intra, Arc::clone(&broken))).collect());
    let inputs = input(1.0);
    let rule = StopRule::default();
    let error = measure(&handles, &inputs, &some_cores(2), rule, &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("broken"), "{error}");
    let runner = runner(handles, 2, Configuration::local(2, 1));
    for _ in 0..3 {
        assert!(drive(&runner, &inputs, &[0.0; 4]).is_err());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let handles = handles(&engine(|| ()), 1);
    let runner = runner(handles.clone(), 2, Configuration::local(2, 1));
    for wrong in [
        Configuration::local(3, 1),
        Configuration::local(0, 1),
        Configuration::local(1, 0),
        Configuration::local(1, 2),
        Configuration {
            service: 1,
            inter: 2,
            intra: 1,
        },
    ] {
        assert!(runner.configure(wrong).is_err(), "{wrong}");
    }
    assert_eq!(runner.configuration(), Configuration::local(2, 1));
    let options = RunnerOptions {
        cores: Vec::new(),
        configuration: Configuration::local(1, 1),
        spin: Duration::ZERO,
    };
    assert!(Runner::start(handles, options).is_err());
}

#[test]
fn closing_answers_what_waits() {
    let gate = Gate::closed();
    gate.open();
    let passage = Arc::clone(&gate);
    let handles = handles(&engine(move || passage.pass()), 1);
    *gate.closed.lock().unwrap() = true;
    let runner = runner(handles, 1, Configuration::local(1, 1));
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|number| submit(&runner, number, input(0.0), &sender));
    gate.wait_inside(1);
    runner.close();
    submit(&runner, 3, input(0.0), &sender);
    for _ in 0..3 {
        let (_, completed) = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!(completed.outputs.unwrap_err(), RunError::Closed);
    }
    gate.open();
    let (number, completed) = receiver.recv_timeout(PATIENCE).unwrap();
    assert!(number == 0 && completed.outputs.is_ok());
    drop(runner);
}

#[test]
fn a_load_is_served_at_its_times() {
    let handles = handles(&engine(|| ()), 2);
    let runner = runner(handles, 2, Configuration::local(2, 1));
    let gaps_s = Random::new(SEED).gaps(200, 0.0005, 1.0);
    let served = drive(&runner, &input(0.0), &gaps_s).unwrap();
    assert_eq!(served.latencies_s.len(), 200);
    let both = served.latencies_s.iter().zip(&served.services_s);
    assert!(
        both.into_iter()
            .all(|(latency, service)| latency >= service)
    );
    assert!(drive(&runner, &input(0.0), &[-1.0]).is_err());
}

#[test]
fn callers_are_as_far_apart_as_requests_are_wide() {
    let cores: Vec<usize> = (0..8).collect();
    assert_eq!(caller_cores(&cores, 1), cores);
    assert_eq!(caller_cores(&cores, 3), [0, 3]);
    assert_eq!(caller_cores(&cores, 8), [0]);
    assert!(caller_cores(&cores, 9).is_empty());
}

#[test]
fn errors_below_the_noise_of_the_machine_prove_nothing() {
    let off = |mean, p90| Quality { mean, p90 };
    let (small, large) = (off(0.01, 0.02), off(0.20, 0.40));
    assert_eq!(Verdict::of(small, Some(small)), Verdict::Met);
    assert_eq!(Verdict::of(large, Some(small)), Verdict::Missed);
    for errors in [small, large] {
        assert_eq!(Verdict::of(errors, Some(large)), Verdict::Inconclusive);
        assert_eq!(Verdict::of(errors, None), Verdict::Inconclusive);
        let wild = off(GOALS.mean, 2.0 * GOALS.p90);
        assert_eq!(Verdict::of(errors, Some(wild)), Verdict::Inconclusive);
    }
    let shares: Vec<f64> = (1..=10).map(f64::from).collect();
    assert_eq!(Quality::of(&shares), off(5.5, 9.0));
}
