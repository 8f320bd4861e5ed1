//! Runners that die, pause, come back too late, or no longer lead.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_registry::JobState;
use sextant_types::OfflineSpec;
use tokio::sync::watch;

use super::{
    RECORDS, answers, check, formats, get, many_records, nothing_is_left, put, records, registry,
    runner, service, spec, submit, submit_spec, succeeded, wait_for,
};
use crate::world::{Kind, PATIENCE, World, wait_until};

const KILLS: u32 = 20;

/// The kinds of jobs: lines, arrays, folders.
fn kinds(name: &str) -> [(OfflineSpec, String); 3] {
    [
        (
            spec("in.jsonl", &format!("{name}.jsonl")),
            format!("{name}.jsonl"),
        ),
        (
            spec("in.npy", &format!("{name}.npz")),
            format!("{name}.npz"),
        ),
        (
            spec("in/", &format!("{name}/")),
            format!("{name}/b.npy.jsonl"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_killed_at_twenty_moments_writes_what_an_undisturbed_one_does() {
    let seed = 20;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    put(&world, "in.jsonl", many_records(200)).await;
    put(&world, "in.npy", formats::npy(&formats::pairs(200))).await;
    put(&world, "in/a.jsonl", records()).await;
    put(&world, "in/b.npy", formats::npy(&formats::pairs(RECORDS))).await;
    let undisturbed = runner(&world, &registry, 0);
    for (spec, _) in kinds("calm") {
        let job = submit_spec(&registry, &spec).await;
        succeeded(&registry, &job).await;
    }
    drop(undisturbed);
    let mut life = 0;
    for ((spec, cut), (_, calm)) in kinds("cut").into_iter().zip(kinds("calm")) {
        let job = submit_spec(&registry, &spec).await;
        let mut kills = 0;
        while kills < KILLS && !registry.job(&job.id).await.unwrap().state.is_final() {
            life += 1;
            kills += 1;
            let killed = runner(&world, &registry, life);
            // This waits for nothing: the moment is random.
            tokio::time::sleep(Duration::from_micros(random.random_range(0..10_000))).await;
            drop(killed);
            registry.void_leases(2).await.unwrap();
        }
        life += 1;
        let _last = runner(&world, &registry, life);
        succeeded(&registry, &job).await;
        assert_eq!(
            get(&world, &cut).await,
            get(&world, &calm).await,
            "seed {seed}"
        );
        nothing_is_left(
            &world,
            &format!("{}.parts/", spec.output.trim_end_matches('/')),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_comes_back_too_late_changes_nothing() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let job = submit(&world, &registry, records()).await;
    world.gate.close();
    let before = world.gate.entered.load(Ordering::SeqCst);
    let late = runner(&world, &registry, 1);
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) > before).await;
    // The runner pauses inside its first chunk, and its lease lapses.
    registry.void_leases(2).await.unwrap();
    let next = runner(&world, &registry, 2);
    wait_for(&registry, &job, |job| job.attempts == 2).await;
    world.gate.open();
    let done = succeeded(&registry, &job).await;
    assert_eq!(done.attempts, 2);
    check(&answers(&world).await);
    drop((late, next));
    // The next job with this output removes whatever the late runner left.
    let again = submit_spec(&registry, &spec("in.jsonl", "out.jsonl")).await;
    let _third = runner(&world, &registry, 3);
    succeeded(&registry, &again).await;
    nothing_is_left(&world, "out.jsonl.parts/").await;
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_lease_lapses_runs_its_job_under_the_later_claim_alone() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    world.gate.close();
    let job = submit(&world, &registry, records()).await;
    let _runner = runner(&world, &registry, 1);
    let first = wait_for(&registry, &job, |job| job.state == JobState::Running).await;
    let owner = first.owner.expect("somebody holds it");
    let begun = Instant::now();
    let second = loop {
        let now = registry.job(&job.id).await.unwrap();
        if now.attempts > 1 {
            break now;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody claims it");
        // The lease lapses as when the registry was away, and the process looks at the queue.
        drop(registry.renew(&job.id, &owner, 0, 1).await);
        let other = submit_spec(&registry, &spec("none.jsonl", "none.out.jsonl")).await;
        registry.cancel(&other.id, 2).await.unwrap();
    };
    assert_ne!(second.owner, Some(owner.clone()));
    let late = registry.advance(&job.id, &owner, "", (0, 0), 3).await;
    assert!(late.is_err(), "the first claim holds nothing any more");
    world.gate.open();
    let done = succeeded(&registry, &job).await;
    assert_eq!(done.attempts, 2);
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_only_while_the_process_leads() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let (first, second) = (watch::Sender::new(false), watch::Sender::new(false));
    for (life, leads) in [(1, &first), (2, &second)] {
        let service = service(&world, &registry, life);
        tokio::spawn(service.run_while(leads.subscribe(), std::future::pending()));
    }
    let job = submit(&world, &registry, records()).await;
    world.gate.close();
    first.send_replace(true);
    wait_for(&registry, &job, |job| job.state == JobState::Running).await;
    first.send_replace(false);
    // The job is given back at once, although its lease would last a minute.
    wait_for(&registry, &job, |job| job.state == JobState::Queued).await;
    world.gate.open();
    second.send_replace(true);
    let done = succeeded(&registry, &job).await;
    assert_eq!(done.attempts, 2);
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_parts_were_lost_begins_again() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let job = submit(&world, &registry, records()).await;
    let killed = runner(&world, &registry, 1);
    wait_for(&registry, &job, |job| job.progress_done > 0).await;
    drop(killed);
    let request = sextant_objects::ListRequest::prefix("out.jsonl.parts/");
    for part in world.objects.list(&request).await.unwrap().objects {
        world.objects.delete(&part.path).await.unwrap();
    }
    registry.void_leases(2).await.unwrap();
    let _next = runner(&world, &registry, 2);
    succeeded(&registry, &job).await;
    check(&answers(&world).await);
}
