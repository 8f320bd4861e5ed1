//! What is left out because something that was measured before is better.

use super::*;

/// A batch of one takes 15 ms at least, one of eight 85 ms.
fn slow() -> EmulatedEngine {
    emulated(10.0, 5.0)
}

fn rival() -> Rival {
    Rival {
        name: "quick".to_owned(),
        engine: EngineName("other".to_owned()),
        precision: Precision::Fp32,
        threads: 1,
        load_ms: 0.0,
        alone_ms: 1.0,
        rows_per_s: 1000.0,
    }
}

fn race(rivals: &[Rival], effort: Effort) -> Result<Measurement, MeasureError> {
    let (engine, signature, validation) = (slow(), signature(), validation());
    let subject = Subject {
        rivals,
        ..subject(&engine, &signature, &validation, Metric::Top1)
    };
    measure(&subject, &effort, &Cancel::default())
}

#[test]
fn what_a_rival_outruns_is_left_out() {
    let effort = quick();
    let pruned = race(&[rival()], effort);
    let Err(MeasureError::Pruned(reason)) = pruned else {
        panic!("{pruned:?}");
    };
    assert!(reason.contains("slower than `quick`"), "{reason}");
    let others = [
        // It takes more threads, is less exact, or loads for longer.
        Rival {
            threads: 2,
            ..rival()
        },
        Rival {
            precision: Precision::Fp16,
            ..rival()
        },
        Rival {
            load_ms: 60_000.0,
            ..rival()
        },
    ];
    for other in others {
        race(&[other], effort).expect("measures");
    }
}

/// A batch of one takes 15 ms and one of four 45 ms, which is 89 rows in a second: a rival that takes as long is not
/// clearly faster, even where the machine is late by some milliseconds.
#[test]
fn a_near_copy_is_left_out_where_it_is_no_faster() {
    let near = Rival {
        alone_ms: 15.0,
        rows_per_s: 89.0,
        ..rival()
    };
    race(std::slice::from_ref(&near), quick()).expect("measures");
    let copy = Rival {
        engine: EngineName("emulated".to_owned()),
        ..near
    };
    let pruned = race(std::slice::from_ref(&copy), quick());
    assert!(matches!(pruned, Err(MeasureError::Pruned(_))), "{pruned:?}");
    let with_fewer_threads = Rival { threads: 0, ..copy };
    race(&[with_fewer_threads], quick()).expect("measures");
}

/// Counts loads.
struct CountingEngine {
    engine: EmulatedEngine,
    loads: AtomicU32,
}

impl Engine for CountingEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.engine.load(request)
    }

    fn resident_weights_bytes(&self) -> u64 {
        self.engine.resident_weights_bytes()
    }
}

#[test]
fn only_what_is_measured_in_full_is_loaded_again() {
    let (signature, validation) = (signature(), validation());
    let loads = |rivals: &[Rival]| {
        let engine = CountingEngine {
            engine: slow(),
            loads: AtomicU32::new(0),
        };
        let subject = Subject {
            rivals,
            ..subject(&engine, &signature, &validation, Metric::Top1)
        };
        let effort = Effort {
            loads: 3,
            ..quick()
        };
        let measured = measure(&subject, &effort, &Cancel::default());
        (measured.is_ok(), engine.loads.load(Ordering::Relaxed))
    };
    assert_eq!(loads(&[rival()]), (false, 1));
    assert_eq!(loads(&[]), (true, 3));
}

#[test]
fn an_accuracy_that_is_known_is_not_measured_again_unless_each_is_wanted() {
    let (signature, validation) = (signature(), validation());
    let engine = emulated(0.0, 0.0);
    let known = run(&engine, quick()).expect("measures").accuracy;
    let told = Accuracy {
        kind: sextant_types::AccuracyKind::Accuracy,
        value: 0.25,
        ..known
    };
    let measured = |effort: Effort| {
        let subject = Subject {
            accuracy: Some(told),
            ..subject(&engine, &signature, &validation, Metric::Top1)
        };
        let measured = measure(&subject, &effort, &Cancel::default());
        measured.expect("measures").accuracy
    };
    assert_eq!(measured(quick()), told);
    let each = Effort {
        scores_each: Effort::thorough().scores_each,
        ..quick()
    };
    assert_eq!(measured(each), known);
}

#[test]
fn quick_models_are_measured_whatever_is_quicker() {
    let effort = Effort {
        pruned_above: Duration::from_secs(600),
        ..quick()
    };
    race(&[rival()], effort).expect("measures");
    let thorough = Effort {
        pruned_above: Effort::thorough().pruned_above,
        ..quick()
    };
    race(&[rival()], thorough).expect("measures");
}

#[test]
fn only_what_is_as_accurate_as_the_uploaded_file_is_a_rival() {
    let configuration = |precision| Configuration {
        engine: EngineName("emulated".to_owned()),
        precision,
        optimization: Optimization::All,
        threads: 1,
    };
    let with_accuracy = |value: f64| {
        let mut measured = run(&emulated(0.0, 0.0), quick()).expect("measures");
        measured.accuracy.value = value;
        measured.accuracy.lower = value - 0.1;
        measured
    };
    let whole = (configuration(Precision::Fp32), with_accuracy(0.9));
    let near = (configuration(Precision::Bf16), with_accuracy(0.85));
    let far = (configuration(Precision::Int8Static), with_accuracy(0.5));
    let all = [&whole, &near, &far].map(|(configuration, measured)| (configuration, measured));
    let names: Vec<String> = rivals(&all).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["emulated-fp32-all-t1", "emulated-bf16-all-t1"]);
    // Without single precision nobody knows how accurate the file is.
    assert!(rivals(&all[1..]).is_empty());
}
