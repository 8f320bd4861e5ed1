//! Look-ups by accuracy, latency and load without a copy of the content: for tools and processes
//! that ask now and then. Whoever answers queries follows the feed instead.

use redis::Cmd;
use sextant_metadata::{Error, InstanceKey};
use sextant_types::{ApplicationId, VariantId};

use crate::{RedisStore, decode};

impl RedisStore {
    /// Variants of an application whose accuracy, the lower bound of its interval, is at least
    /// `accuracy`; the most accurate first, at most `most`.
    pub async fn accurate(
        &self,
        application: &ApplicationId,
        accuracy: f64,
        most: usize,
    ) -> Result<Vec<VariantId>, Error> {
        let mut range = self.range(application, "accuracy");
        range.arg("+inf").arg(accuracy).arg("BYSCORE").arg("REV");
        let names = self.names(range, most).await?;
        names.iter().map(|name| decode::variant_id(name)).collect()
    }

    /// Variants of an application that answer a single row within `latency_ms` at the 99th
    /// percentile of their profile; the fastest first, at most `most`.
    pub async fn fast(
        &self,
        application: &ApplicationId,
        latency_ms: f64,
        most: usize,
    ) -> Result<Vec<VariantId>, Error> {
        let mut range = self.range(application, "latency");
        range.arg("-inf").arg(latency_ms).arg("BYSCORE");
        let names = self.names(range, most).await?;
        names.iter().map(|name| decode::variant_id(name)).collect()
    }

    /// Active instances of an application whose load is at most `load`; the least loaded first, at
    /// most `most`.
    pub async fn idle(
        &self,
        application: &ApplicationId,
        load: f64,
        most: usize,
    ) -> Result<Vec<InstanceKey>, Error> {
        let mut range = self.range(application, "load");
        range.arg("-inf").arg(load).arg("BYSCORE");
        let names = self.names(range, most).await?;
        let keys = names.iter().map(|name| decode::instance_key(name));
        keys.collect()
    }

    fn range(&self, application: &ApplicationId, by: &str) -> Cmd {
        let mut range = redis::cmd("ZRANGE");
        let key = format!("application:{application}:{by}");
        range.arg(self.connection().key(&key));
        range
    }

    async fn names(&self, mut range: Cmd, most: usize) -> Result<Vec<String>, Error> {
        range.arg("LIMIT").arg(0).arg(most);
        self.connection().command(&range).await
    }
}
