//! Many batches between loads and unloads: each is answered once, and never wrongly.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{double::FAILS, *};

const VARIANTS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn every_batch_is_answered_once_while_variants_come_and_go() {
    for (seed, kind) in [(1, Kind::Cpu), (2, Kind::Dedicated), (3, Kind::Staged)] {
        println!("seed {seed}");
        stress(seed, kind).await;
    }
}

async fn stress(seed: u64, kind: Kind) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // Room for half of the variants.
    let world = World::with(
        kind,
        Config {
            cores: 2,
            ..config()
        },
    )
    .await;
    let mut variants = Vec::new();
    for number in 0..VARIANTS {
        let name = format!("m-{number}");
        variants.push(world.variant(&name, &name, 250).await);
    }
    let (mut sent, mut moves) = (Vec::new(), Vec::new());
    for number in 0..1000i64 {
        let variant = &variants[random.random_range(0..VARIANTS)];
        if number % 5 == 0 {
            let variant = &variants[random.random_range(0..VARIANTS)];
            let moved = if random.random_bool(0.6) {
                world.loading(Load::at_once(Arc::clone(variant)))
            } else {
                world.unloading(variant)
            };
            // Some batches have ended before the next one is sent, and some have not.
            if random.random_bool(0.5) {
                check_moved(&moved.await.unwrap());
            } else {
                moves.push(moved);
            }
        }
        let parts = random.random_range(1..4);
        let bad = random.random_bool(0.05);
        let key = |part: i64| {
            if bad && part == 0 {
                FAILS
            } else {
                number + part
            }
        };
        let window = (
            Instant::now() + Duration::from_micros(random.random_range(0..2000)),
            random
                .random_bool(0.2)
                .then(|| Instant::now() + Duration::from_millis(1)),
        );
        let keys: Vec<i64> = (0..parts).map(key).collect();
        let inputs = keys.iter().map(|key| row(*key, 2)).collect();
        sent.push((keys, world.send(variant.id.as_str(), inputs, window)));
    }
    let mut answered = 0;
    for (number, (keys, outcome)) in sent.into_iter().enumerate() {
        match outcome.get() {
            Ok(result) => {
                answered += 1;
                assert_eq!(result.outputs.len(), keys.len());
                for (outputs, key) in result.outputs.into_iter().zip(keys) {
                    match outputs {
                        Ok(outputs) => assert_eq!(
                            outputs[0].to_vec::<f32>().unwrap(),
                            [2.0 * key as f32; 2],
                            "seed {seed}, batch {number}"
                        ),
                        Err(error) => assert_eq!(key, FAILS, "{error}"),
                    }
                }
            }
            Err(error) => {
                let codes = ["too_late", "not_loaded", "weights_changed", "failed"];
                assert!(codes.contains(&error.code()), "seed {seed}: {error}");
                let alone = keys.len() == 1 && keys[0] == FAILS;
                assert!(alone || error.code() != "failed", "seed {seed}: {error}");
            }
        }
    }
    assert!(answered > 50, "seed {seed}: only {answered} ran");
    for moved in moves {
        check_moved(&moved.await.unwrap());
    }
    for variant in &variants {
        world.worker.unload(&variant.id).await.unwrap();
    }
    assert_eq!(world.used(), 0, "seed {seed}");
}

fn check_moved(moved: &Result<(), WorkError>) {
    assert!(
        matches!(moved, Ok(()) | Err(WorkError::NoMemory { .. })),
        "{moved:?}"
    );
}
