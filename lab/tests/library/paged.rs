//! Devices whose memory holds only some of the models, with every placement.

use sextant_baselines::{Options, Policy};
use sextant_lab::Setting;
use sextant_lab::paged::{ActionKind, Class, PagedWorld, Paging, Report, Residence, Step};
use sextant_placement as placement;
use sextant_profile::Estimation;
use sextant_schedule::{Delay, NEVER};
use sextant_simulator::{
    Device, Histogram, Jitter, Model, Network, Shape, Source, Span, profiles,
    trace::Trace,
    workload::{Gaps, MixedSource, Rate, Spread, Spreading, Stream, open_loop, zipf},
};
use sextant_types::index::DeviceIx;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LOAD: u64 = 8_330_000;

/// Schedulers, each with its own placement.
const PAIRS: [(Policy, placement::Policy); 3] = [
    (Policy::Sextant, placement::Policy::Sextant),
    (Policy::Clockwork, placement::Policy::Clockwork),
    (Policy::Eager, placement::Policy::Lru),
];

struct Case {
    setting: Setting,
    paging: Paging,
}

/// ResNet50 models of 7 pages on devices with room for `room` of them.
fn case(
    (policy, placed): (Policy, placement::Policy),
    models: u32,
    devices: u32,
    room: u32,
) -> Case {
    let profiles = profiles::load("clockwork-v100").unwrap();
    let profile = profiles.iter().find(|known| known.model == "resnet50");
    let latency = profile.unwrap().latency(16).unwrap();
    let model = |at| Model {
        name: format!("resnet50-{at}"),
        target: 100 * MS,
        latency: vec![Some(latency.clone())],
        priority: 0,
        weight: 1.0,
    };
    let setting = Setting {
        models: (0..models).map(model).collect(),
        devices: vec![Device { kind: 0 }; devices as usize],
        options: Options::of(policy),
        network: Network::default(),
        jitter: Jitter::None,
        shape: Shape::default(),
        failures: Vec::new(),
        seed: 1,
        prices: Vec::new(),
        histograms: false,
    };
    let residence = Residence {
        pages: 7,
        load: LOAD,
    };
    let paging = Paging {
        pages: 7 * room,
        residences: vec![residence; models as usize],
        placement: placement::Options::of(placed),
        estimation: Estimation::Profile,
        infer_jitter: Jitter::None,
        load_jitter: Jitter::None,
        precision: 0,
        classes: vec![0; models as usize],
        interval: SECOND,
        log: true,
    };
    Case { setting, paging }
}

impl Case {
    fn run(&self, source: &mut dyn Source, seconds: u64) -> Report {
        let span = Span {
            from: 0,
            until: seconds * SECOND,
            most_missed: Vec::new(),
        };
        let world = PagedWorld::new(&self.setting, &self.paging).unwrap();
        world.run(source, span)
    }

    /// Messages take time and run times scatter, as on real machines.
    fn roughened(mut self) -> Self {
        let delay = Delay {
            control: 100_000,
            data_per_row: 10_000,
            response: 100_000,
        };
        self.setting.network = Network {
            base: delay,
            spread: delay,
        };
        self.setting.options.delay = Delay {
            control: 200_000,
            data_per_row: 20_000,
            response: 200_000,
        };
        self.paging.precision = MS;
        self.paging.estimation = Estimation::Sextant;
        self.paging.infer_jitter = Jitter::CLOCKWORK_INFER;
        self.paging.load_jitter = Jitter::CLOCKWORK_LOAD;
        self
    }
}

/// Requests for models of which few are popular.
fn skewed(models: u32, rps: f64, seed: u64) -> Box<dyn Source> {
    let shares = zipf(models as usize, 0.9);
    let stream = |(model, share): (u32, f64)| Stream {
        model,
        gaps: Gaps::Exponential,
        rate: Rate::Constant(rps * share),
    };
    let streams: Vec<Stream> = (0..models).zip(shares).map(stream).collect();
    open_loop(&streams, seed).unwrap()
}

fn all(report: &Report) -> Class {
    report.total().class_total()
}

fn steps(report: &Report, device: DeviceIx, what: ActionKind) -> Vec<Step> {
    let of = |step: &&Step| step.device == device && step.what == what;
    report.log.iter().filter(of).copied().collect()
}

fn assert_one_at_a_time(steps: &[Step], about: &str) {
    for pair in steps.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{about}: {pair:?}");
    }
}

/// The most pages that were occupied on a device at any time. A LOAD occupies its pages from its start.
fn most_pages(report: &Report, device: DeviceIx) -> i64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    changes.extend(
        steps(report, device, ActionKind::Load)
            .iter()
            .map(|step| (step.start, 7)),
    );
    changes.extend(
        steps(report, device, ActionKind::Unload)
            .iter()
            .map(|step| (step.end, -7)),
    );
    // Pages that are freed at a moment may be used at the same moment.
    changes.sort_unstable();
    let mut held = 0;
    let held = changes.iter().map(|(_, change)| {
        held += change;
        held
    });
    held.max().unwrap_or(0)
}

#[test]
fn devices_do_one_batch_and_one_load_at_a_time_and_both_side_by_side() {
    for pair in PAIRS {
        for rough in [false, true] {
            let case = case(pair, 40, 2, 10);
            let case = if rough { case.roughened() } else { case };
            let report = case.run(skewed(40, 400.0, 5).as_mut(), 3);
            let about = format!("{} rough {rough}", pair.0);
            let mut together = 0;
            for device in DeviceIx::first::<2>() {
                let (infers, loads) = (
                    steps(&report, device, ActionKind::Infer),
                    steps(&report, device, ActionKind::Load),
                );
                assert_one_at_a_time(&infers, &about);
                assert_one_at_a_time(&loads, &about);
                let overlap = |load: &&Step| {
                    let with = |infer: &Step| infer.start < load.end && load.start < infer.end;
                    infers.iter().any(with)
                };
                together += loads.iter().filter(overlap).count();
                assert!(most_pages(&report, device) <= 70, "{about}");
            }
            assert!(together > 10, "{about}: {together}");
            let all = all(&report);
            assert_eq!(all.sent, all.good + all.misses(), "{about}");
        }
    }
}

#[test]
fn without_scatter_nothing_is_late_and_nothing_fails() {
    for pair in PAIRS {
        for rps in [100.0, 500.0, 1_500.0] {
            let case = case(pair, 40, 1, 10);
            let report = case.run(skewed(40, rps, 3).as_mut(), 2);
            let all = all(&report);
            let about = format!("{} at {rps} r/s", pair.0);
            assert_eq!((all.late, all.failures()), (0, 0), "{about}");
            assert!(all.latency_max <= 100 * MS, "{about}");
            assert!(all.cold > 0 && all.good > 0, "{about}");
            let failed = report.total().failed_loads;
            assert!(failed.is_empty(), "{about}: {failed:?}");
        }
    }
}

#[test]
fn scatter_that_estimates_follow_makes_nothing_late() {
    for pair in PAIRS {
        let case = case(pair, 40, 2, 10).roughened();
        let report = case.run(skewed(40, 600.0, 11).as_mut(), 4);
        let all = all(&report);
        assert_eq!(all.late, 0, "{}", pair.0);
        assert!(all.latency_max <= 100 * MS, "{}", pair.0);
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for pair in PAIRS {
        let case = case(pair, 40, 2, 10).roughened();
        let run = |seed| case.run(skewed(40, 400.0, seed).as_mut(), 1);
        assert_eq!(run(7), run(7), "{}", pair.0);
        assert_ne!(run(7), run(8), "{}", pair.0);
    }
}

fn single(at_s: &str) -> Trace {
    Trace::read(&format!("timestamp,model\n{at_s},a\n"), "one.csv").unwrap()
}

#[test]
fn a_request_of_a_model_that_is_not_loaded_is_answered_after_a_load() {
    for pair in PAIRS {
        let case = case(pair, 1, 1, 1);
        let report = case.run(&mut single("0").replay(1.0), 1);
        let all = all(&report);
        assert_eq!((all.sent, all.cold, all.cold_good), (1, 1, 1), "{}", pair.0);
        let load = steps(&report, DeviceIx::new(0), ActionKind::Load);
        let infer = steps(&report, DeviceIx::new(0), ActionKind::Infer);
        assert_eq!((load.len(), infer.len()), (1, 1), "{}", pair.0);
        assert_eq!(load[0].end - load[0].start, LOAD);
        assert!(infer[0].start >= load[0].end, "{}", pair.0);
        assert!(infer[0].end <= 100 * MS, "{}", pair.0);
    }
}

#[test]
fn a_target_shorter_than_load_and_run_is_refused_without_a_load() {
    for pair in PAIRS {
        let mut case = case(pair, 1, 1, 1);
        case.setting.models[0].target = LOAD + 2 * MS;
        let report = case.run(&mut single("0").replay(1.0), 1);
        assert!(report.log.is_empty(), "{}: {:?}", pair.0, report.log);
        let all_of = all(&report);
        assert_eq!((all_of.misses(), all_of.failures()), (1, 0), "{}", pair.0);
        case.setting.models[0].target = NEVER;
        let report = case.run(&mut single("0").replay(1.0), 1);
        assert_eq!(all(&report).good, 1, "{}", pair.0);
    }
}

#[test]
fn what_takes_longer_than_predicted_once_fails_or_is_answered_and_never_both() {
    for pair in PAIRS {
        let mut case = case(pair, 20, 1, 8).roughened();
        case.paging.infer_jitter = Jitter::Spikes {
            share: 0.05,
            factor: 8.0,
        };
        let report = case.run(skewed(20, 500.0, 13).as_mut(), 3);
        let all = all(&report);
        assert_eq!(all.sent, all.good + all.misses(), "{}", pair.0);
        assert!(all.failures() > 0, "{}", pair.0);
        assert!(all.good > all.sent / 3, "{}: {all:?}", pair.0);
    }
}

#[test]
fn slower_devices_are_followed_by_the_estimates() {
    for pair in PAIRS {
        let mut case = case(pair, 4, 1, 4);
        case.paging.infer_jitter = Jitter::Spikes {
            share: 1.0,
            factor: 2.0,
        };
        case.paging.precision = 10 * MS;
        let mut late = |estimation| {
            case.paging.estimation = estimation;
            let all = all(&case.run(skewed(4, 500.0, 3).as_mut(), 3));
            all.late + all.failures()
        };
        let (followed, fixed) = (late(Estimation::Sextant), late(Estimation::Profile));
        assert!(followed * 4 < fixed, "{}: {followed}, {fixed}", pair.0);
    }
}

/// Clockwork's figure 10, with its own estimates.
#[test]
fn times_scatter_as_clockwork_measured_them() {
    let mut case = case(PAIRS[1], 2, 1, 1).roughened();
    case.paging.estimation = Estimation::Clockwork;
    case.paging.log = false;
    let near = |errors: &Histogram, us: f64, off: f64| {
        let found = errors.quantile(0.99) as f64 / 1e3;
        assert!((found / us - 1.0).abs() < off, "{found} us, not {us} us");
    };
    let steady = case.run(skewed(1, 250.0, 3).as_mut(), 30);
    near(&steady.infer.over, 144.0, 0.25);
    near(&steady.infer.under, 55.0, 0.25);
    let switching = case.run(skewed(2, 200.0, 3).as_mut(), 30);
    assert!(switching.total().loads > 1_000);
    near(&switching.load.over, 431.0, 0.3);
    near(&switching.load.under, 348.0, 0.3);
}

/// A small version of the experiment with a busy model beside a load that spreads over many models.
#[test]
fn a_busy_model_is_served_beside_many_that_have_to_be_loaded() {
    for pair in PAIRS {
        let mut case = case(pair, 101, 1, 10).roughened();
        case.paging.classes = (0..101).map(|model| u32::from(model > 0)).collect();
        let busy = open_loop(
            &[Stream {
                model: 0,
                gaps: Gaps::Exponential,
                rate: Rate::Constant(200.0),
            }],
            1,
        );
        let spread = Spread {
            rps: 300.0,
            begin_s: 0.5,
            step_s: 0.01,
        };
        let others: Vec<u32> = (1..101).collect();
        let spreading = Spreading::new(others.clone(), spread, 2).unwrap();
        let mut source = MixedSource::new(vec![
            (vec![0], busy.unwrap()),
            (others, Box::new(spreading)),
        ]);
        let report = case.run(&mut source, 4);
        let last = &report.intervals[3];
        let (busy, others) = (&last.classes[0], &last.classes[1]);
        assert_eq!(busy.cold, 0, "{}", pair.0);
        assert_eq!(busy.good, busy.sent, "{}", pair.0);
        assert!(others.cold * 2 > others.sent, "{}", pair.0);
        assert!(last.load_busy_share(1) > 0.9, "{}", pair.0);
    }
}

#[test]
fn memory_that_makes_no_sense_is_refused() {
    let mut too_small = case(PAIRS[0], 2, 1, 1);
    too_small.paging.pages = 6;
    let error = PagedWorld::new(&too_small.setting, &too_small.paging).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("`resnet50-0` takes `7` pages"),
        "{message}"
    );
    let mut incomplete = case(PAIRS[0], 2, 1, 1);
    incomplete.paging.residences.pop();
    let error = PagedWorld::new(&incomplete.setting, &incomplete.paging).unwrap_err();
    assert!(
        error.to_string().contains("each of the `2` models"),
        "{error}"
    );
}
