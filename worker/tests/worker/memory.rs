//! Pages of weights and working memory, bytes of inputs, and versions of weights.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_counted_once_for_shared_weights_and_never_overdrawn() {
    let world = World::new().await;
    let first = world.variant("m-a", "same", 500).await;
    let again = world.variant("m-b", "same", 500).await;
    let other = world.variant("m-c", "other", 600).await;
    world.load(&first).await.unwrap();
    world.load(&again).await.unwrap();
    world.load(&first).await.unwrap();
    assert_eq!(world.used(), 500, "one session, one copy of weights");
    let short = world.load(&other).await.unwrap_err();
    let needed = WorkError::NoMemory {
        variant: other.id.clone(),
        needed: 600,
        free: 500,
        page_bytes: 1,
    };
    assert_eq!(short, needed);
    assert_eq!(world.state(&other).await, None, "nothing was begun");
    for resident in ["m-a", "m-b"] {
        world.infer(resident, 1, now()).ok();
    }
    world.worker.unload(&first.id).await.unwrap();
    assert_eq!(world.used(), 500, "the other still needs all of it");
    world.worker.unload(&again.id).await.unwrap();
    assert_eq!(world.used(), 0);
    assert_eq!(world.state(&first).await, Some(InstanceState::Inactive));
    world.load(&other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn precisions_have_weights_and_larger_sessions_room_of_their_own() {
    let world = World::new().await;
    let variant = world.variant("m-a", "same", 300).await;
    let changed = |name: &str, change: fn(&mut Variant)| {
        let mut other = Variant::clone(&variant);
        other.id = VariantId::new(name).unwrap();
        change(&mut other);
        Arc::new(other)
    };
    let exact = changed("m-b", |it| it.spec.precision = Precision::Fp16);
    let larger = changed("m-c", |it| it.profile.peak_memory_bytes = 350);
    let threaded = changed("m-d", |it| it.spec.threads = 2);
    for (variant, used) in [
        (&variant, 300),
        (&exact, 600),
        (&larger, 650),
        (&threaded, 850),
    ] {
        world.load(variant).await.unwrap();
        assert_eq!(world.used(), used);
    }
    world.worker.unload(&larger.id).await.unwrap();
    assert_eq!(world.used(), 800, "the session shrinks to what is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_given_out_in_whole_pages() {
    let config = Config {
        page_bytes: 64,
        ..config()
    };
    let world = World::with(Kind::Cpu, config).await;
    assert_eq!(world.worker.info().pages.total, 15);
    // 100 bytes of weights in two pages, 101 of working memory in two.
    let first = world.variant("m-1", "m-1", 201).await;
    world.load(&first).await.unwrap();
    assert_eq!(world.worker.info().pages.free, 11);
    let large = world.variant("m-2", "m-2", 1000).await;
    let short = world.load(&large).await.unwrap_err();
    let needed = WorkError::NoMemory {
        variant: large.id.clone(),
        needed: 2 + 15,
        free: 11,
        page_bytes: 64,
    };
    assert_eq!(short, needed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_succeeds_exactly_when_enough_pages_are_free() {
    let seed = 5;
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let world = World::with(Kind::Dedicated, config()).await;
    let mut variants = Vec::new();
    for number in 0..12 {
        let name = format!("m-{number}");
        let memory = random.random_range(100..400);
        variants.push(world.variant(&name, &name, memory).await);
    }
    let mut loaded = vec![false; variants.len()];
    for step in 0..600 {
        let at = random.random_range(0..variants.len());
        let (variant, free) = (&variants[at], world.worker.info().pages.free);
        let needed = variant.profile.peak_memory_bytes;
        if loaded[at] {
            world.worker.unload(&variant.id).await.unwrap();
            assert_eq!(world.worker.info().pages.free, free + needed, "step {step}");
            loaded[at] = false;
            continue;
        }
        let result = world.load(variant).await;
        assert_eq!(result.is_ok(), needed <= free, "step {step}: {result:?}");
        let taken = if result.is_ok() { needed } else { 0 };
        assert_eq!(world.worker.info().pages.free, free - taken, "step {step}");
        loaded[at] = result.is_ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_on_weights_that_were_unloaded_is_not_answered_with() {
    for (kind, back) in [(Kind::Cpu, false), (Kind::Cpu, true), (Kind::Staged, true)] {
        let world = World::with(kind, config()).await;
        let variant = world.loaded("m-a").await;
        world.record.hold(Step::Exec, Some(1));
        let running = world.infer("m-a", 1, now());
        world.record.begun(Step::Exec, 1).await;
        let waiting = world.infer("m-a", 2, now());
        let unloading = world.unloading(&variant);
        until(|| world.worker.usage().is_empty()).await;
        assert_eq!(world.used(), 200, "the last batch has not left");
        let loading = back.then(|| world.loading(Load::at_once(Arc::clone(&variant))));
        world.record.release(Step::Exec);
        assert_eq!(
            running.error(),
            InferError::WeightsChanged(variant.id.clone())
        );
        unloading.await.unwrap().unwrap();
        match loading {
            Some(loading) => {
                loading.await.unwrap().unwrap();
                world.infer("m-a", 3, now()).ok();
            }
            None => {
                assert_eq!(waiting.error(), InferError::NotLoaded(variant.id.clone()));
                assert_eq!(world.used(), 0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unloading_is_idempotent_and_needs_no_consent() {
    let world = World::new().await;
    let variant = world.loaded("m-a").await;
    // The state machine has no instance any more. The memory is given back nevertheless.
    assert_eq!(world.metadata.expire(u64::MAX).await.unwrap().len(), 1);
    for _ in 0..2 {
        world.worker.unload(&variant.id).await.unwrap();
        assert_eq!(world.used(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_count_as_engines_hold_them() {
    let config = Config {
        io_bytes: 300,
        ..config()
    };
    let world = World::with(Kind::Staged, config).await;
    world.loaded("m-a").await;
    // The texts are empty and have no bytes.
    let texts = Tensor::from_texts(vec![1, 3], Texts::empty(3)).unwrap();
    let inputs = vec![NamedTensor::new("x", texts)];
    let refused = world.send("m-a", vec![inputs], now()).error();
    assert_eq!(refused.code(), "no_memory");
    assert!(refused.to_string().contains("room for `300`"), "{refused}");
    world.infer("m-a", 1, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_beyond_the_room_for_them_are_refused() {
    let config = Config {
        io_bytes: 20,
        ..config()
    };
    let world = World::with(Kind::Staged, config).await;
    world.loaded("m-a").await;
    world.record.hold(Step::Exec, Some(1));
    let first = world.infer("m-a", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let second = world.infer("m-a", 2, now());
    let refused = world.infer("m-a", 3, now()).error();
    assert_eq!(refused.code(), "no_memory");
    assert!(refused.to_string().contains("room for `4`"), "{refused}");
    world.record.release(Step::Exec);
    first.ok();
    second.ok();
    world.infer("m-a", 4, now()).ok();
}
