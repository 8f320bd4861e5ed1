//! Every webhook that a job names is told of the job's end, by whichever process.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use sextant_registry::{Job, JobKind, JobState, NewJob, Registry};
use sextant_rpc::{DeliveryFailure, Notice, Notify};
use sextant_types::{ApplicationId, EngineName};

use super::{Runner, get, records, registry, service, spec, submit_spec, succeeded, wait_for};
use crate::world::{Kind, World, wait_until};

/// Records the messages that it gets. It refuses the first message to an address that says so.
#[derive(Default)]
struct Receiver {
    taken: Mutex<Vec<Notice>>,
    refused: Mutex<usize>,
}

#[async_trait]
impl Notify for Receiver {
    async fn notify(&self, notice: &Notice) -> Result<u16, DeliveryFailure> {
        let mut refused = self.refused.lock().unwrap();
        let never = notice.url.ends_with("never");
        if never || (notice.url.ends_with("second") && *refused == 0) {
            *refused += 1;
            return Err(DeliveryFailure {
                reason: "on purpose".to_owned(),
                retry: !never,
            });
        }
        self.taken.lock().unwrap().push(notice.clone());
        Ok(200)
    }
}

impl Receiver {
    fn of(&self, job: &Job) -> Vec<Value> {
        let taken = self.taken.lock().unwrap();
        let of = taken.iter().filter(|notice| notice.id == job.id.as_str());
        of.map(|notice| serde_json::from_slice(&notice.body).unwrap())
            .collect()
    }
}

fn start(world: &World, registry: &Registry, life: u32, receiver: &Arc<Receiver>) -> Runner {
    let notifier = Arc::clone(receiver);
    Runner::start(service(world, registry, life).with_notifier(notifier))
}

async fn submit(registry: &Registry, (input, output): (&str, &str), address: &str) -> Job {
    let mut asked = spec(input, output);
    asked.webhook = Some(format!("http://receiver/secret/{address}"));
    submit_spec(registry, &asked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_is_told_once_and_tried_again_until_it_is_taken() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    super::put(&world, "in.jsonl", records()).await;
    let receiver = Arc::<Receiver>::default();
    // The job is cancelled before any runner starts it.
    let cancelled = submit(&registry, ("in.jsonl", "cancelled.jsonl"), "first").await;
    registry.cancel(&cancelled.id, unix_ms()).await.unwrap();
    let first = start(&world, &registry, 1, &receiver);
    let done = submit(&registry, ("in.jsonl", "done.jsonl"), "second").await;
    succeeded(&registry, &done).await;
    wait_until(|| receiver.of(&done).len() == 1).await;
    wait_until(|| receiver.of(&cancelled).len() == 1).await;
    let told = &receiver.of(&done)[0];
    assert_eq!(told["state"], "succeeded");
    assert_eq!(told["progress"]["done"], 100);
    assert_eq!(told["result"]["records"], 100);
    assert_eq!(receiver.of(&cancelled)[0]["state"], "cancelled");
    let record = format!(".jobs/{}/webhook.json", done.id);
    let noted = get_when_there(&world, &record).await;
    assert_eq!(
        (&noted["delivered"], &noted["attempts"]),
        (&true.into(), &2.into())
    );
    assert_eq!(noted["webhook"], "http://receiver/..");
    get_when_there(&world, &format!(".jobs/{}/webhook.json", cancelled.id)).await;
    drop(first);
    // The next process reports the jobs that it ends, not those that were reported.
    let _second = start(&world, &registry, 2, &receiver);
    let failed = submit(&registry, ("none.jsonl", "failed.jsonl"), "first").await;
    let refused = submit(&registry, ("in.jsonl", "refused.jsonl"), "never").await;
    succeeded(&registry, &refused).await;
    let ended = wait_for(&registry, &failed, |job| job.state.is_final()).await;
    wait_until(|| receiver.of(&failed).len() == 1).await;
    assert_eq!(ended.state, JobState::Failed);
    let told = &receiver.of(&failed)[0];
    assert_eq!(told["state"], "failed");
    assert_eq!(told["error"]["code"], "artefact_not_found");
    let noted = get_when_there(&world, &format!(".jobs/{}/webhook.json", refused.id)).await;
    assert_eq!(
        (&noted["delivered"], &noted["attempts"]),
        (&false.into(), &1.into())
    );
    assert_eq!(receiver.of(&done).len() + receiver.of(&cancelled).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_told_of_though_a_thousand_were_created_after_it() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let receiver = Arc::<Receiver>::default();
    let long = submit(&registry, ("in.jsonl", "long.jsonl"), "first").await;
    let application = ApplicationId::new("app").unwrap();
    for _ in 0..1000 {
        let newer = NewJob::new(JobKind::Offline, application.clone(), Value::Null);
        // No worker here runs it.
        let newer = newer.for_engine(EngineName("none".to_owned()));
        registry.create_job(&newer, 2).await.unwrap();
    }
    registry.cancel(&long.id, unix_ms()).await.unwrap();
    let _runner = start(&world, &registry, 1, &receiver);
    wait_until(|| receiver.of(&long).len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_told_of_that_has_the_name_of_one_that_is_forgotten() {
    let world = World::new().await;
    let registry = registry(&world).await;
    let receiver = Arc::<Receiver>::default();
    let _runner = start(&world, &registry, 1, &receiver);
    let mut asked = spec("in.jsonl", "out.jsonl");
    asked.webhook = Some("http://receiver/first".to_owned());
    let asked = serde_json::to_value(asked).unwrap();
    let mut nightly = NewJob::new(JobKind::Offline, ApplicationId::new("app").unwrap(), asked);
    // No worker here runs it.
    nightly = nightly.for_engine(EngineName("none".to_owned()));
    for night in 1..=2 {
        let job = registry.create_job(&nightly, night).await.unwrap();
        registry.cancel(&job.id, unix_ms()).await.unwrap();
        wait_until(|| receiver.of(&job).len() as u64 == night).await;
        let record = format!(".jobs/{}/webhook.json", job.id);
        let noted = async {
            while get_when_there(&world, &record).await["created_ms"] != night {
                tokio::task::yield_now().await;
            }
        };
        let noted = tokio::time::timeout(crate::world::PATIENCE, noted).await;
        noted.expect("the note of this one");
        assert!(registry.forget_job(&job.id).await.unwrap());
    }
}

fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_millis() as u64
}

async fn get_when_there(world: &World, path: &str) -> Value {
    let object = sextant_objects::ObjectPath::parse(path).unwrap();
    let there = async {
        while world.objects.stat(&object).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, there)
        .await
        .expect("the note");
    serde_json::from_slice(&get(world, path).await).unwrap()
}
