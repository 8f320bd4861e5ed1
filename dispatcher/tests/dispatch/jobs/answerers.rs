//! Whoever answers a job's records must stay the same.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use sextant_dispatcher::{Dispatcher, jobs::JobService};
use sextant_health::throttle::Throttle;
use sextant_registry::JobState;
use sextant_rpc::{Answer, Offline, OnlineLoad, Query, QueryError};
use sextant_types::{Code, OfflineSpec, Route, Signature, VariantId};

use super::{Runner, config, records, registry, submit, wait_for};
use crate::world::{Kind, World};

/// A dispatcher in whose place another version answers from the third query on, as where a pipeline changes.
struct Changing {
    dispatcher: Arc<Dispatcher>,
    asked: AtomicU32,
}

#[async_trait]
impl Offline for Changing {
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError> {
        self.dispatcher.choose(spec)
    }

    fn route(&self, spec: &OfflineSpec, chosen: &VariantId) -> Route {
        self.dispatcher.route(spec, chosen)
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Offline::signature(&*self.dispatcher, route)
    }

    fn most_together(&self, _: &Route) -> u32 {
        1
    }

    fn online_load(&self, route: &Route) -> OnlineLoad {
        self.dispatcher.online_load(route)
    }

    async fn answer(&self, query: Query) -> Result<Answer, QueryError> {
        assert!(query.offline, "a job asks");
        let mut answer = Offline::answer(&*self.dispatcher, query).await?;
        if self.asked.fetch_add(1, Ordering::Relaxed) >= 2 {
            answer.variant = VariantId::new("another-v2").unwrap();
        }
        Ok(answer)
    }
}

#[tokio::test]
async fn a_job_ends_when_another_version_answers() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let offline = Arc::new(Changing {
        dispatcher: Arc::clone(&world.dispatcher),
        asked: AtomicU32::new(0),
    });
    let objects = Arc::clone(&world.objects);
    let config = config(1, Throttle::default());
    let service = JobService::new(config, offline as _, registry.clone(), objects);
    let _runner = Runner::start(service);
    let job = submit(&world, &registry, records()).await;
    let ended = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(ended.state, JobState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, Code::PreconditionFailed);
    assert!(error.message.contains("`another-v2`"), "{}", error.message);
}
