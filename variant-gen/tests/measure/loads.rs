//! Load times, where the first prepares what the others find.

use std::time::Duration;

use super::*;

/// Its first load takes longer than the others.
struct SlowFirstLoad {
    keeps: bool,
    first: Duration,
    loads: Arc<AtomicU32>,
}

/// What a load takes that finds everything prepared, ms.
const AGAIN_MS: f64 = 2.0;

impl SlowFirstLoad {
    fn new(keeps: bool, first_ms: u64) -> Self {
        Self {
            keeps,
            first: Duration::from_millis(first_ms),
            loads: Arc::default(),
        }
    }

    fn loads(&self) -> u32 {
        self.loads.load(Ordering::Relaxed)
    }
}

impl Engine for SlowFirstLoad {
    fn name(&self) -> &'static str {
        "preparing"
    }

    fn capabilities(&self) -> Capabilities {
        emulated(0.0, 0.0).capabilities()
    }

    fn keeps_prepared(&self) -> bool {
        self.keeps
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let load_ms = match self.loads.fetch_add(1, Ordering::Relaxed) {
            0 => self.first.as_secs_f64() * 1e3,
            _ => AGAIN_MS,
        };
        let described = EmulatedModel {
            signature: signature(),
            alpha_ms: 0.0,
            beta_ms: 0.0,
            load_ms,
            weights_bytes: 1,
        };
        EmulatedEngine::new(move |_| Ok(described.clone())).load(request)
    }
}

#[test]
fn the_first_load_is_told_apart_where_the_engine_keeps_what_it_prepared() {
    let effort = Effort {
        loads: 3,
        ..quick()
    };
    let engine = SlowFirstLoad::new(true, 100);
    let measured = run(&engine, effort).expect("measures");
    assert_eq!(engine.loads(), 1 + 3);
    assert!(measured.load_ms >= AGAIN_MS && measured.load_ms < 100.0);
    assert!(measured.first_load_ms.is_some_and(|first| first >= 100.0));
    let profile = measured.profile(1);
    assert_eq!(profile.first_load_ms, measured.first_load_ms);
    assert_eq!(profile.first_ms(), measured.first_load_ms.unwrap_or(0.0));
}

/// A first load longer than what repetitions may take in all says nothing of how long those take.
#[test]
fn one_load_behind_a_long_first_one_is_timed() {
    let engine = SlowFirstLoad::new(true, 400);
    let measured = run(&engine, quick()).expect("measures");
    assert_eq!(engine.loads(), 2);
    assert!(measured.load_ms < 400.0, "{}", measured.load_ms);
}

#[test]
fn loads_that_are_alike_are_told_as_one() {
    let effort = Effort {
        loads: 3,
        ..quick()
    };
    let engine = SlowFirstLoad::new(false, 4);
    let measured = run(&engine, effort).expect("measures");
    assert_eq!((engine.loads(), measured.first_load_ms), (3, None));
    assert_eq!(measured.profile(1).first_ms(), measured.load_ms);
}
