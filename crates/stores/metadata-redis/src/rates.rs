//! Token buckets and quotas that all front ends of a fleet share.

use std::fmt;

use async_trait::async_trait;
use sextant_metadata::{Error, Rate, RateStore};

use crate::{RedisConfig, connection::Connection, scripts};

/// Rate limits in Redis. With the server's clock, a bucket or quota that equals a new one expires
/// by itself.
#[derive(Clone)]
pub struct RedisRates {
    connection: Connection,
}

impl RedisRates {
    /// Connects; see [`RedisStore::connect`](crate::RedisStore::connect).
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        Ok(Self::over(Connection::open(&config).await?))
    }

    pub(crate) fn over(connection: Connection) -> Self {
        Self { connection }
    }

    fn key(&self, kind: &str, name: &str) -> String {
        self.connection.key(&format!("{kind}:{name}"))
    }
}

impl fmt::Debug for RedisRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRates").finish_non_exhaustive()
    }
}

#[async_trait]
impl RateStore for RedisRates {
    async fn take(&self, name: &str, most: u32, rate: Rate, now_ms: u64) -> Result<u32, Error> {
        let mut call = scripts::TAKE.key(self.key("bucket", name));
        call.arg(self.connection.time_argument(now_ms))
            .arg(most)
            .arg(rate.per_s)
            .arg(rate.burst);
        self.connection.invoke(&call).await
    }

    async fn give_back(&self, name: &str, tokens: u32, rate: Rate) -> Result<(), Error> {
        let mut call = scripts::GIVE_BACK.key(self.key("bucket", name));
        call.arg(tokens).arg(rate.burst);
        let _done: u32 = self.connection.invoke(&call).await?;
        Ok(())
    }

    async fn spend(
        &self,
        name: &str,
        most: u32,
        (limit, window_ms): (u64, u64),
        now_ms: u64,
    ) -> Result<u32, Error> {
        let mut call = scripts::SPEND.key(self.key("quota", name));
        call.arg(self.connection.time_argument(now_ms))
            .arg(most)
            .arg(limit)
            .arg(window_ms.max(1));
        self.connection.invoke(&call).await
    }
}
