//! A shared server that is restarted, killed and stopped.

use std::{collections::BTreeSet, error::Error as _, time::Duration};

use serde_json::json;
use sextant_test_servers::postgres::Postgres;
use sextant_types::Code;
use tokio::time::timeout;

use super::*;
use crate::{ConnectOptions, JobState, database::Database};

/// Far more than any call may take; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(what: &str, call: impl Future<Output = T>) -> T {
    let answer = timeout(PATIENCE, call).await;
    answer.unwrap_or_else(|_| panic!("{what} did not end"))
}

/// The answer to a call that may be repeated: a busy machine may take longer than the short limits allow.
async fn in_the_end<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let answered = async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    };
    within("the call", answered).await
}

/// Short limits, so that a test of them is short.
fn hasty(url: String) -> ConnectOptions {
    let limit = Duration::from_millis(500);
    ConnectOptions {
        acquire_limit: limit,
        statement_limit: limit,
        ..ConnectOptions::new(url)
    }
}

fn is_away<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the server is away");
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_row_is_created_once_however_many_try() {
    let place = Place::server().await;
    let handles = [place.open().await, place.open().await];
    let racers: Vec<_> = (0..8)
        .map(|index: usize| {
            let registry = handles[index % 2].clone();
            tokio::spawn(async move {
                let first = registry.create_application(&application()).await.unwrap();
                let (model, job) = (new_model("m"), register_job("m"));
                let made = registry.register_model(&model, &job, 1).await.unwrap();
                (first, made.created, made.job.id)
            })
        })
        .collect();
    let (mut applications, mut models, mut jobs) = (0, 0, BTreeSet::new());
    for racer in racers {
        let (application, model, job) = racer.await.unwrap();
        applications += usize::from(application);
        models += usize::from(model);
        jobs.insert(job);
    }
    assert_eq!((applications, models, jobs.len()), (1, 1, 1));
}

/// Leaves what a call leaves that is dropped while its transaction begins: the server has begun it, and the driver does
/// not know. `and_then` is run in it.
async fn give_up_beginning(registry: &Registry, and_then: &str) {
    let Database::Postgres(postgres) = &registry.inner.database else {
        panic!("it is on a server");
    };
    let mut connection = postgres.pool.acquire().await.unwrap();
    sqlx::raw_sql("begin")
        .execute(&mut *connection)
        .await
        .unwrap();
    let said = sqlx::raw_sql(sqlx::AssertSqlSafe(and_then.to_owned()));
    // This may fail, and the transaction with it.
    said.execute(&mut *connection).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_transaction_that_was_given_up_as_it_began_harms_nobody_after_it() {
    const LOCK: &str = "select pg_advisory_xact_lock(6001430271839269889)";
    let server = Postgres::start();
    let options = ConnectOptions {
        connections: 1,
        ..ConnectOptions::new(server.url())
    };
    let one = Registry::connect_with(&options).await.unwrap();
    let other = Registry::connect(&server.url()).await.unwrap();
    one.create_application(&application()).await.unwrap();
    for and_then in ["select 1 / 0", "select 1", LOCK] {
        give_up_beginning(&one, and_then).await;
        let model = new_model(&format!("m{}", and_then.len()));
        let created = within("the other", create_model(&other, &model, 1)).await;
        created.unwrap_or_else(|error| panic!("after `{and_then}`: {error:?}"));
        let claimed = one.claim(JobKind::Offline, "me", 100, 1).await;
        claimed.unwrap_or_else(|error| panic!("after `{and_then}`: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_process_is_woken() {
    let place = Place::server().await;
    let (here, there) = (place.open().await, place.open().await);
    there.create_application(&application()).await.unwrap();
    let mut changed = here.jobs_changed();
    let runner = tokio::spawn(async move {
        loop {
            let job = here.claim(JobKind::Offline, "me", 100, 1).await.unwrap();
            if let Some(job) = job {
                return job.id;
            }
            changed.changed().await.unwrap();
        }
    });
    let id = queued(&there, 0).await;
    let claimed = within("the wake-up", runner).await.unwrap();
    assert_eq!(claimed, id);
}

#[tokio::test]
async fn names_are_sorted_by_their_bytes_in_any_database() {
    // The server's own order is that of a dictionary.
    let dictionary = [
        "--template=template0",
        "--locale-provider=icu",
        "--icu-locale=en",
    ];
    let place = Place::database(&dictionary);
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let mut names = ["a-b", "ab", "a.b", "a_b", "b", "a-c", "aa"];
    for name in names {
        create_model(&registry, &new_model(name), 1).await.unwrap();
    }
    names.sort_unstable();
    let models = registry.models(None).await.unwrap();
    let sorted: Vec<_> = models.iter().map(|model| model.id.to_string()).collect();
    assert_eq!(sorted, names);
}

#[tokio::test]
async fn a_text_that_cannot_be_stored_is_the_callers_mistake() {
    let place = Place::server().await;
    let registry = place.open().await;
    let odd = Application {
        description: "before\u{0}after".to_owned(),
        ..application()
    };
    let refused = registry.create_application(&odd).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidRequest);
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let document = json!({ "nul": "\u{0}", "zero": -0.0, "tiny": f64::MIN_POSITIVE });
    registry
        .put_step(&model_id("m"), "odd", &document)
        .await
        .unwrap();
    let steps = registry.steps(&model_id("m")).await.unwrap();
    assert_eq!(steps[0].result.to_string(), document.to_string());
}

#[tokio::test]
async fn no_message_holds_the_password() {
    let server = Postgres::shared();
    let (url, secret) = (server.url(), "wrong-horse");
    let wrong = url.replace(server.password(), secret);
    let nowhere = wrong.replace(&server.port().to_string(), "1");
    let malformed = wrong.replace("127.0.0.1", "[::1");
    let foreign = wrong.replace("postgres://", "mysql://");
    for (url, wanted) in [
        (wrong, "Database"),
        (nowhere, "Unavailable"),
        (malformed, "Url"),
        (foreign, "Url"),
    ] {
        let options = ConnectOptions {
            patience: Duration::from_millis(200),
            ..ConnectOptions::new(url)
        };
        let error = Registry::connect_with(&options).await.unwrap_err();
        let mut text = format!("{options:?} {error:?} {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            text += &inner.to_string();
            cause = inner.source();
        }
        assert!(!text.contains(secret), "{text}");
        assert_eq!(told::<()>(Err(error)), wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_end_while_the_server_is_away_and_succeed_once_it_is_back() {
    let mut server = Postgres::start();
    let options = hasty(server.url());
    let registry = Registry::connect_with(&options).await.unwrap();
    in_the_end(async || registry.create_application(&application()).await).await;
    let mut changed = registry.jobs_changed();
    server.kill();
    is_away(within("a read", registry.applications()).await);
    is_away(within("a write", create_model(&registry, &new_model("m"), 1)).await);
    let impatient = ConnectOptions {
        patience: Duration::from_millis(500),
        ..options.clone()
    };
    is_away(within("a connection", Registry::connect_with(&impatient)).await);
    server.start_again();
    let kept = in_the_end(async || registry.applications().await).await;
    assert_eq!(kept, [application()], "what was committed is there");
    in_the_end(async || create_model(&registry, &new_model("m"), 1).await).await;
    // Messages of other processes arrive again.
    let other = Registry::connect(&server.url()).await.unwrap();
    changed.mark_unchanged();
    within("the wake-up", async {
        while !changed.has_changed().unwrap() {
            queued(&other, 1).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_end_while_the_server_says_nothing() {
    let server = Postgres::start();
    let patient = Registry::connect(&server.url()).await.unwrap();
    patient.create_application(&application()).await.unwrap();
    let id = queued(&patient, 0).await;
    let registry = Registry::connect_with(&hasty(server.url())).await.unwrap();
    let mut open = in_the_end(async || registry.begin_rows().await).await;
    server.stop();
    let statement = crate::sql::JOB.bind(id.as_str());
    is_away(within("a statement", open.row(statement)).await.map(drop));
    is_away(within("a commit", open.commit()).await);
    for _ in 0..3 {
        is_away(within("a read", registry.applications()).await);
        is_away(within("a claim", registry.claim(JobKind::Offline, "me", 1, 1)).await);
    }
    server.cont();
    let claimed = within("a claim", async {
        loop {
            match registry.claim(JobKind::Offline, "me", 1_000, 2_000).await {
                Ok(claimed) => return claimed,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    });
    // One of the dropped claims may have been made.
    let claimed = claimed.await.map(|job| job.id);
    assert_eq!(claimed, Some(id));
}

/// Claims jobs and finishes each in steps, whatever the server does.
async fn work_through(registry: Registry, owner: String) -> BTreeSet<JobId> {
    let mut finished = BTreeSet::new();
    let mut now_ms = 1_000;
    loop {
        now_ms += 1;
        let job = match registry.claim(JobKind::Offline, &owner, 1, now_ms).await {
            Ok(Some(job)) => job,
            Ok(None) => match registry.jobs(&crate::JobFilter::default()).await {
                Ok(jobs) if jobs.iter().all(|job| job.state.is_final()) => return finished,
                _ => continue,
            },
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                continue;
            }
        };
        let mut done = job.progress_done;
        while done < STEPS {
            match registry
                .advance(&job.id, &owner, "step", (done + 1, STEPS), now_ms)
                .await
            {
                Ok(()) => done += 1,
                Err(error) if error.is_retryable() => {}
                Err(_) => break,
            }
        }
        if done == STEPS && finish(&registry, &job.id, &owner, now_ms).await {
            finished.insert(job.id);
        }
    }
}

const STEPS: u64 = 6;

/// Whether this owner has finished the job.
async fn finish(registry: &Registry, id: &JobId, owner: &str, now_ms: u64) -> bool {
    let result = json!(owner);
    loop {
        match registry.finish(id, owner, &result, now_ms).await {
            Ok(()) => return true,
            Err(error) if error.is_retryable() => {}
            // Perhaps the previous call did, and its answer was lost.
            Err(_) => loop {
                if let Ok(job) = registry.job(id).await {
                    return job.state == JobState::Succeeded && job.result == Some(result);
                }
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runners_go_on_over_restarts_and_no_job_is_finished_twice() {
    const JOBS: usize = 24;
    let mut server = Postgres::start();
    let options = hasty(server.url());
    let patient = Registry::connect(&server.url()).await.unwrap();
    patient.create_application(&application()).await.unwrap();
    let mut ids = BTreeSet::new();
    for index in 0..JOBS {
        ids.insert(queued(&patient, index as u64).await);
    }
    let registry = Registry::connect_with(&options).await.unwrap();
    let mut runners = Vec::new();
    for index in 0..4 {
        let registry = match index % 2 {
            0 => registry.clone(),
            _ => Registry::connect_with(&options).await.unwrap(),
        };
        runners.push(tokio::spawn(work_through(registry, format!("{index}"))));
    }
    for round in 0..2 {
        within("some progress", async {
            let wanted = (round + 1) * JOBS / 8;
            while finished(&registry).await < wanted {}
        })
        .await;
        if round == 0 {
            server.restart();
        } else {
            server.kill();
            server.start_again();
        }
    }
    let mut all = Vec::new();
    for runner in runners {
        all.extend(within("a runner", runner).await.unwrap());
    }
    assert_eq!(all.len(), JOBS, "each by one");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), ids);
    for job in registry.jobs(&crate::JobFilter::default()).await.unwrap() {
        assert_eq!((job.state, job.progress_done), (JobState::Succeeded, STEPS));
    }
}

/// Jobs that have ended.
async fn finished(registry: &Registry) -> usize {
    let jobs = registry.jobs(&crate::JobFilter::default()).await;
    let jobs = jobs.unwrap_or_default();
    jobs.iter().filter(|job| job.state.is_final()).count()
}
