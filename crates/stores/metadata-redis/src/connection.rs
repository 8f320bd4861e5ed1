//! One shared connection, on which every call ends in time.

use std::{future::Future, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, IntoConnectionInfo, Pipeline, RedisError,
    RedisResult, ScriptInvocation,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
    io::tcp::TcpSettings,
};
use sextant_metadata::Error;

use crate::{Clock, RedisConfig, scripts::Static};

/// The oldest major version of the server that has the commands and scripts in use.
const OLDEST_MAJOR: u32 = 7;
/// Shortest time between two attempts to connect; it grows up to the longest.
const LEAST_BACK_OFF: Duration = Duration::from_millis(20);
const GREATEST_BACK_OFF: Duration = Duration::from_millis(250);
/// Number of attempts for which concurrent calls wait together. A later call starts again.
const ATTEMPTS: usize = 3;

/// A connection that is made again when it breaks. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    manager: ConnectionManager,
    limit: Duration,
    clock: Clock,
    history: usize,
    /// The prefix of all keys.
    prefix: Arc<str>,
}

impl Connection {
    /// Connects and checks the server's version.
    pub async fn open(config: &RedisConfig) -> Result<Self, Error> {
        let prefix = prefix(&config.prefix)?;
        let limit = config.timeout;
        let info = config.url.as_str().into_connection_info();
        // The library's text about a bad address might repeat the address.
        let info = info.map_err(|_| {
            unavailable("its URL is not of the form `redis://[user:password@]host:port[/database]`")
        })?;
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_user_timeout(2 * limit);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(|e| failed(&e))?;
        let options = ConnectionManagerConfig::new()
            .set_min_delay(LEAST_BACK_OFF)
            .set_max_delay(GREATEST_BACK_OFF)
            .set_number_of_retries(ATTEMPTS)
            .set_connection_timeout(Some(limit / 2))
            .set_response_timeout(Some(limit));
        let manager = client.get_connection_manager_lazy(options);
        let connection = Self {
            manager: manager.map_err(|e| failed(&e))?,
            client,
            limit,
            clock: config.clock,
            history: config.history.max(1),
            prefix: prefix.into(),
        };
        connection.check_version().await?;
        Ok(connection)
    }

    /// Longest time of a call.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The key `name` of this fleet.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// `now_ms`, or `None` if the server's clock is used.
    pub fn caller_time(&self, now_ms: u64) -> Option<u64> {
        (self.clock == Clock::Caller).then_some(now_ms)
    }

    /// Runs a script over the store's content. `fill` adds the script's own arguments.
    pub async fn script<T: FromRedisValue>(
        &self,
        script: &'static Static,
        now_ms: u64,
        fill: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, Error> {
        let mut call = script.key(self.key("state"));
        call.arg(&*self.prefix)
            .arg(self.time_argument(now_ms))
            .arg(self.history);
        fill(&mut call);
        self.invoke(&call).await
    }

    /// Runs a script that has only its own arguments.
    pub async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Error> {
        let mut manager = self.manager.clone();
        self.within(call.invoke_async(&mut manager)).await
    }

    /// Runs one command.
    pub async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut manager = self.manager.clone();
        self.within(command.query_async(&mut manager)).await
    }

    /// Runs commands as one atomic transaction.
    pub async fn together<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, Error> {
        let mut manager = self.manager.clone();
        self.within(commands.query_async(&mut manager)).await
    }

    /// `now_ms` as an argument of scripts: empty if the server's clock is used.
    pub fn time_argument(&self, now_ms: u64) -> String {
        let time = self.caller_time(now_ms);
        time.map(|time| time.to_string()).unwrap_or_default()
    }

    /// A separate connection for calls that wait in the server.
    pub async fn another(&self) -> Result<MultiplexedConnection, Error> {
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(Some(self.limit));
        let opening = self
            .client
            .get_multiplexed_async_connection_with_config(&options);
        self.within(opening).await
    }

    async fn within<T>(&self, call: impl Future<Output = RedisResult<T>>) -> Result<T, Error> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(answer) => answer.map_err(|error| failed(&error)),
            Err(_) => Err(unavailable(format!(
                "Redis did not answer within {} ms",
                self.limit.as_millis()
            ))),
        }
    }

    async fn check_version(&self) -> Result<(), Error> {
        let about: String = self.command(redis::cmd("INFO").arg("server")).await?;
        // Valkey states here the version of Redis with which it is compatible.
        let version = about.lines().find_map(|line| {
            let version = line.strip_prefix("redis_version:")?;
            version.split('.').next()?.parse::<u32>().ok()
        });
        match version {
            Some(major) if major < OLDEST_MAJOR => Err(unavailable(format!(
                "the server is Redis {major}: Redis {OLDEST_MAJOR} or later, or Valkey, is needed"
            ))),
            _ => Ok(()),
        }
    }
}

/// The prefix of all keys of a fleet.
fn prefix(fleet: &str) -> Result<String, Error> {
    if fleet.is_empty() || fleet.contains(['{', '}']) {
        return Err(unavailable(format!(
            "the prefix `{fleet}` must be a name without braces"
        )));
    }
    Ok(format!("{{{fleet}}}:"))
}

/// The error that the store cannot be used because of `reason`.
pub fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable {
        reason: reason.into(),
    }
}

/// The library's text about a failed call. It has the server's answer, not the password.
pub fn failed(error: &RedisError) -> Error {
    unavailable(format!("Redis: {error}"))
}
