use sextant_types::DataType;

use super::*;

fn key(variant: &Variant, inputs: &[NamedTensor]) -> Key {
    InputsDigest::new(inputs).of_variant(&variant.id, &variant.artefact)
}

fn sample(name: &str) -> Variant {
    Variant::clone(&sextant_metadata::conformance::sample_variant(name, 1.0))
}

fn inputs(values: &[f32]) -> Vec<NamedTensor> {
    let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    let tensor = Tensor::from_bytes(DataType::Fp32, vec![1, values.len()], bytes.into());
    vec![NamedTensor::new("x", tensor.expect("a tensor"))]
}

fn tensor(values: &[f32]) -> Tensor {
    inputs(values).remove(0).tensor
}

fn with_cache(variant: &Variant, cache_bytes: u64, cache_ttl_s: Option<u32>) -> Variant {
    Variant {
        resources: Resources {
            cache_bytes,
            cache_ttl_s,
            ..variant.resources
        },
        ..variant.clone()
    }
}

#[test]
fn a_key_tells_variants_files_and_inputs_apart() {
    let variant = sample("v");
    let other = Variant {
        artefact: FileDigest::from_bytes([9; 32]),
        ..variant.clone()
    };
    let of = key(&variant, &inputs(&[1.0, 2.0]));
    assert_eq!(of, key(&variant, &inputs(&[1.0, 2.0])));
    for differs in [
        key(&sample("w"), &inputs(&[1.0, 2.0])),
        key(&other, &inputs(&[1.0, 2.0])),
        key(&variant, &inputs(&[2.0, 1.0])),
        key(&variant, &inputs(&[1.0])),
    ] {
        assert_ne!(of, differs);
    }
    let strings = |texts: &[&str]| {
        let tensor =
            Tensor::from_strings(vec![1, texts.len()], texts.iter().map(|it| it.as_bytes()));
        key(&variant, &[NamedTensor::new("x", tensor.expect("texts"))])
    };
    assert_ne!(strings(&["ab", "c"]), strings(&["a", "bc"]));
}

#[tokio::test]
async fn what_is_made_is_found_by_all_who_wait_for_it() {
    let cache = Arc::new(Cache::new(1 << 20, None));
    let variant = sample("v");
    let of = key(&variant, &inputs(&[1.0]));
    let CacheLookup::Absent(guard) = cache.find(&of, None).await else {
        panic!("it is empty");
    };
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move { matches!(cache.find(&of, None).await, CacheLookup::Kept(_)) })
        })
        .collect();
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(matches!(
        cache.find(&of, Some(soon)).await,
        CacheLookup::Late
    ));
    guard.fill(CachedAnswer::new(&[tensor(&[3.0])]));
    for waits in waiting {
        assert!(waits.await.expect("no panic"));
    }
}

#[tokio::test]
async fn one_of_those_who_wait_goes_on_where_the_first_fails() {
    let cache = Cache::new(1 << 20, None);
    let of = [7; 32];
    let CacheLookup::Absent(guard) = cache.find(&of, None).await else {
        panic!("it is empty");
    };
    drop(guard);
    assert!(matches!(
        cache.find(&of, None).await,
        CacheLookup::Absent(_)
    ));
}

#[tokio::test]
async fn what_is_too_old_or_too_much_is_gone() {
    let old = Cache::new(1 << 20, Some(Duration::ZERO));
    old.put([1; 32], CachedAnswer::new(&[tensor(&[1.0])]));
    assert!(old.get(&[1; 32]).is_none());
    assert!(matches!(
        old.find(&[1; 32], None).await,
        CacheLookup::Absent(_)
    ));
    let small = Cache::new(16 << 10, None);
    for at in 0..=255u8 {
        small.put([at; 32], CachedAnswer::new(&[tensor(&[0.0; 64])]));
    }
    assert!(small.figures().bytes <= 16 << 10, "{:?}", small.figures());
}

#[test]
fn a_variant_that_draws_at_random_is_left_out() {
    let (cache, variant) = (Cache::new(1 << 20, None), sample("v"));
    let kept = CachedAnswer::new(&[tensor(&[1.0, 2.0])]);
    assert!(cache.is_trial(&variant) && cache.is_trial(&variant));
    cache.judge(&variant, &kept, &[tensor(&[1.0, 2.000_01])]);
    assert!(!cache.is_trial(&variant) && cache.keeps(&variant));
    cache.judge(&variant, &kept, &[tensor(&[1.0, 7.0])]);
    assert!(!cache.keeps(&variant));
}

#[test]
fn what_was_put_off_is_due_again() {
    let (cache, variant) = (Cache::new(1 << 20, None), sample("v"));
    for _ in 0..100 {
        assert!(cache.is_trial(&variant));
        cache.put_off(&variant);
    }
    let tried = (0..4096).filter(|_| cache.is_trial(&variant)).count();
    assert_eq!(tried as u64, TRIALS + (4096 - TRIALS) / TRIAL_EVERY);
}

#[test]
fn only_the_first_queries_are_made_up_for_where_they_failed() {
    let (cache, variant) = (Cache::new(1 << 20, None), sample("v"));
    for _ in 0..100 {
        assert!(cache.is_trial(&variant));
        cache.fail(&variant);
    }
    let first = (0..).take_while(|_| cache.is_trial(&variant)).count();
    assert_eq!(first as u64, TRIALS);
    // From then on all hits but one in many are answered from the cache, whatever happens to that
    // one.
    let next = (0..).take_while(|_| !cache.is_trial(&variant)).count();
    assert!(next as u64 <= TRIAL_EVERY);
    cache.fail(&variant);
    assert!(!cache.is_trial(&variant));
}

#[test]
fn caches_follow_what_applications_are_given() {
    let caches = Caches::default();
    let variant = sample("v");
    caches.follow([&variant].into_iter(), 100 << 20);
    assert!(caches.is_empty());
    let given = with_cache(&variant, 1 << 20, None);
    caches.follow([&given].into_iter(), 100 << 20);
    let first = caches.of(&variant.application).expect("a cache");
    caches.follow([&given].into_iter(), 100 << 20);
    let same = caches.of(&variant.application).expect("a cache");
    assert!(Arc::ptr_eq(&first, &same), "it is kept");
    let timed = with_cache(&variant, 1 << 20, Some(5));
    caches.follow([&timed].into_iter(), 1 << 10);
    let other = caches.of(&variant.application).expect("a cache");
    assert_eq!(
        (other.max_bytes, other.ttl),
        (1 << 10, Some(Duration::from_secs(5)))
    );
    caches.follow([&variant].into_iter(), 100 << 20);
    assert!(caches.is_empty());
}
