//! Faults of the connection: every call returns what was requested or an error, never other bytes.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_objects::{Error, ObjectStore, digest_of};
use sextant_test_servers::s3::{Fault, Request};

use super::support::{HASTE, PART_BYTES, content, path, start, start_with, stream};

/// One fault of a random kind, at a random place.
fn any_fault(rng: &mut ChaCha8Rng, bytes: u64) -> Fault {
    let place = rng.random_range(0..bytes);
    match rng.random_range(0..8) {
        0 => Fault::SlowDown,
        1 => Fault::Refuse,
        2 => Fault::CutRequest { after_bytes: place },
        3 => Fault::CutResponse { after_bytes: place },
        4 => Fault::Truncate { keep_bytes: place },
        5 => Fault::LoseResponse,
        6 => Fault::Stall { after_bytes: place },
        _ => Fault::Delay(Duration::from_millis(rng.random_range(0..20))),
    }
}

/// A fault for about one in `one_in` requests.
fn now_and_then(seed: u64, one_in: u32, bytes: u64) -> impl FnMut(&Request) -> Option<Fault> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    move |_| (rng.random_range(0..one_in) == 0).then(|| any_fault(&mut rng, bytes))
}

fn is_honest(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. })
}

#[tokio::test]
async fn with_faults_on_the_way_small_objects_are_whole_or_an_error() {
    let (store, server) = start_with(|config| config.timeout = HASTE).await;
    let mut failed = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let whole = content(seed, 60_000 + seed as usize);
        let name = path(&format!("file-{seed}"));
        server.faults().set(now_and_then(seed, 3, 60_000));
        for round in 0..10 {
            match store.put_blob(whole.clone()).await {
                Ok(digest) => assert_eq!(digest, digest_of(&whole)),
                Err(error) => {
                    assert!(is_honest(&error), "{error:?}");
                    failed += 1;
                }
            }
            match store.get_blob(&digest_of(&whole)).await {
                Ok(bytes) => assert_eq!(bytes, whole),
                Err(Error::NotFound { .. }) if round == 0 => failed += 1,
                Err(error) => assert!(is_honest(&error), "{error:?}"),
            }
            if let Err(error) = store.put(&name, whole.clone()).await {
                assert!(is_honest(&error), "{error:?}");
                continue;
            }
            let piece = store.get_range(&name, 1_000..50_000).await;
            if let Ok(piece) = piece {
                assert_eq!(piece, whole.slice(1_000..50_000));
            }
            match store.get(&name).await {
                Ok(bytes) => assert_eq!(bytes, whole),
                Err(error) => assert!(is_honest(&error), "{error:?}"),
            }
        }
        server.faults().clear();
        store.put(&name, whole.clone()).await.unwrap();
        assert_eq!(store.get(&name).await.unwrap(), whole);
    }
    println!(
        "{} faults, {failed} calls failed",
        server.faults().injected()
    );
    // A third of the requests fail: ten attempts almost always suffice.
    assert!(server.faults().injected() > 50);
    assert!(failed < 5, "{failed} calls failed");
}

#[tokio::test]
async fn with_faults_on_the_way_large_objects_are_whole_or_an_error() {
    let (store, server) = start_with(|config| config.timeout = HASTE).await;
    for seed in 10..12 {
        println!("seed {seed}");
        let whole = content(seed, 2 * PART_BYTES + 54_321);
        let name = path(&format!("large-{seed}"));
        server
            .faults()
            .set(now_and_then(seed, 3, PART_BYTES as u64));
        match store.put_stream(&name, stream(&whole)).await {
            Ok(size) => {
                assert_eq!(size, whole.len() as u64);
                match store.get(&name).await {
                    Ok(bytes) => assert_eq!(bytes, whole),
                    Err(error) => assert!(is_honest(&error), "{error:?}"),
                }
            }
            Err(error) => assert!(is_honest(&error), "{error:?}"),
        }
        match store.put_blob_stream(stream(&whole)).await {
            Ok(put) => match store.get_blob(&put.digest).await {
                Ok(bytes) => assert_eq!(bytes, whole),
                Err(error) => assert!(is_honest(&error), "{error:?}"),
            },
            Err(error) => assert!(is_honest(&error), "{error:?}"),
        }
    }
    assert!(server.faults().injected() > 5);
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_cut() {
    let (store, server) = start().await;
    let whole = content(20, 1_000_000);
    let digest = store.put_blob(whole.clone()).await.unwrap();
    let before = server.faults().requests();
    // Each answer ends after 300,000 bytes: four are needed.
    server.faults().set(|_| {
        let after_bytes = 300_000;
        Some(Fault::CutResponse { after_bytes })
    });
    assert_eq!(store.get_blob(&digest).await.unwrap(), whole);
    assert_eq!(server.faults().requests() - before, 4);
}

#[tokio::test]
async fn a_shortened_answer_is_noticed() {
    let (store, server) = start().await;
    let whole = content(21, 500_000);
    let large = content(22, 2 * PART_BYTES);
    let digest = store.put_blob(whole.clone()).await.unwrap();
    let (name, parts) = (path("file"), path("in-parts"));
    store.put(&name, whole.clone()).await.unwrap();
    store.put_stream(&parts, stream(&large)).await.unwrap();
    let shorten = |request: &Request| {
        let keep_bytes = 123_456;
        (request.method == "GET").then_some(Fault::Truncate { keep_bytes })
    };
    let once = || {
        let mut done = false;
        move |request: &Request| {
            let fault = shorten(request).filter(|_| !done);
            done |= fault.is_some();
            fault
        }
    };
    server.faults().set(once());
    assert_eq!(store.get_blob(&digest).await.unwrap(), whole);
    server.faults().set(once());
    assert_eq!(store.get(&name).await.unwrap(), whole);
    server.faults().set(once());
    assert_eq!(store.get(&parts).await.unwrap(), large);
    server.faults().set(once());
    let piece = store.get_range(&name, 0..400_000).await.unwrap();
    assert_eq!(piece, whole.slice(..400_000));
    // This happens each time: no answer is better than a wrong one.
    server.faults().set(shorten);
    assert!(matches!(
        store.get_blob(&digest).await,
        Err(Error::Corrupt { .. })
    ));
    assert!(is_honest(&store.get(&name).await.unwrap_err()));
    assert!(is_honest(&store.get(&parts).await.unwrap_err()));
    assert!(is_honest(
        &store.get_range(&name, 0..400_000).await.unwrap_err()
    ));
}

#[tokio::test]
async fn a_blob_damaged_in_the_store_is_corrupt_until_it_is_put_again() {
    let (store, server) = start().await;
    let whole = content(23, 100_000);
    let digest = store.put_blob(whole.clone()).await.unwrap();
    let hex = digest.to_string();
    let file = server.file(&format!("some/fleet/blobs/{}/{hex}", &hex[..2]));
    let mut damaged = std::fs::read(&file).unwrap();
    damaged[50_000] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let read = store.get_blob(&digest).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
    store.put_blob(whole.clone()).await.unwrap();
    assert_eq!(store.get_blob(&digest).await.unwrap(), whole);
}

#[tokio::test]
async fn a_store_that_stops_and_goes_on_is_waited_for_a_while() {
    let (store, server) = start_with(|config| {
        config.timeout = HASTE;
        config.max_attempts = 3;
    })
    .await;
    let name = path("file");
    store.put(&name, "before".into()).await.unwrap();
    server.stop();
    assert!(is_honest(&store.get(&name).await.unwrap_err()));
    assert!(is_honest(&store.stat(&name).await.unwrap_err()));
    assert!(is_honest(
        &store.put(&name, "lost".into()).await.unwrap_err()
    ));
    server.cont();
    store.put(&name, "after".into()).await.unwrap();
    assert_eq!(store.get(&name).await.unwrap(), "after");
}
