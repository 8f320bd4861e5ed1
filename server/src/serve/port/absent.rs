//! A binary that was built without the feature `fleet`.

use std::sync::Arc;

use sextant_api::Readiness;
use sextant_config::Config;
use sextant_rpc::{DispatcherClient, WorkerClient};

use super::{Caller, Process, Stores, WorkerEvent};
use crate::serve::UNBUILT;

/// There is none.
pub(in crate::serve) enum Port {}

impl Port {
    pub(in crate::serve) async fn open(
        _: &Config,
        _: &Stores,
        _: &mut Process,
    ) -> anyhow::Result<Self> {
        anyhow::bail!("`fleet.listen` or `roles`: {UNBUILT}")
    }

    pub(in crate::serve) fn endpoint(&self) -> Arc<str> {
        match *self {}
    }

    pub(in crate::serve) fn offer_worker(&self, _: WorkerClient) -> WorkerClient {
        match *self {}
    }

    pub(in crate::serve) fn offer_dispatcher(
        &self,
        _: DispatcherClient,
        _: Arc<dyn Fn() -> bool + Send + Sync>,
    ) {
        match *self {}
    }

    pub(in crate::serve) fn reach_dispatcher(
        &self,
        _: &Config,
        _: &Stores,
        _: &mut Process,
    ) -> anyhow::Result<(DispatcherClient, Readiness)> {
        match *self {}
    }

    pub(in crate::serve) fn follow_workers(
        &self,
        _: &Stores,
        _: Caller,
        _: &[WorkerClient],
        _: &mut Process,
        _: impl Fn(WorkerEvent) + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        match *self {}
    }
}
