//! How often a key may ask.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Value, json};
use sextant_metadata::{Error, InProcessRates, Rate, RateStore};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::double::{ADMIN, Api, Recorder, Settings};

const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

/// A store that can be taken away.
#[derive(Default)]
struct FlakyStore {
    store: InProcessRates,
    is_away: AtomicBool,
    /// It takes calls and never answers them.
    is_stuck: AtomicBool,
}

impl FlakyStore {
    async fn check(&self) -> Result<(), Error> {
        if self.is_stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable {
                reason: "taken away".to_owned(),
            }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl RateStore for FlakyStore {
    async fn take(&self, name: &str, most: u32, rate: Rate, now_ms: u64) -> Result<u32, Error> {
        self.check().await?;
        self.store.take(name, most, rate, now_ms).await
    }

    async fn give_back(&self, name: &str, tokens: u32, rate: Rate) -> Result<(), Error> {
        self.check().await?;
        self.store.give_back(name, tokens, rate).await
    }

    async fn spend(
        &self,
        name: &str,
        most: u32,
        window: (u64, u64),
        now_ms: u64,
    ) -> Result<u32, Error> {
        self.check().await?;
        self.store.spend(name, most, window, now_ms).await
    }
}

/// Stops the clock of the runtime until the result is dropped. A front end goes on without its store when a request has
/// waited for a block for a while, and on a busy machine that happens although the store answers.
fn stop_clock() -> mpsc::Sender<()> {
    tokio::time::pause();
    // A paused clock does not advance by itself while a blocking task runs.
    let (clock, dropped) = mpsc::channel();
    tokio::task::spawn_blocking(move || dropped.recv().is_err());
    clock
}

async fn front_ends(rates: &Arc<FlakyStore>) -> (Api, Api) {
    let settings = || Settings {
        rates: Arc::clone(rates) as Arc<dyn RateStore>,
        ..Settings::keys()
    };
    let one = Api::with(Recorder::answering(), settings()).await;
    let other = one.beside(Recorder::answering(), settings()).await;
    (one, other)
}

async fn create(apis: [&Api; 2], key: &Value) -> String {
    let created = apis[0]
        .keyed(ADMIN, "POST", "/v1/keys", key.to_string())
        .await;
    apis[1].state.refresh().await.expect("read");
    let secret = created.json()["secret"].as_str().map(str::to_owned);
    secret.unwrap_or_else(|| panic!("{}", created.json()))
}

/// Asks as often at each front end and counts what was admitted.
async fn admitted(apis: [&Api; 2], key: &str, each: usize) -> usize {
    let ask = |api| async move {
        let reading = Api::keyed(api, key, "POST", "/v1/queries", QUERY).await;
        let is_admitted = reading.status == 200;
        if !is_admitted {
            reading.problem("rate_limited");
            assert!(reading.headers.contains_key("retry-after"));
        }
        assert!(reading.headers.contains_key("ratelimit-remaining"));
        usize::from(is_admitted)
    };
    let asked = (0..2 * each).map(|index| ask(apis[index % 2]));
    futures::future::join_all(asked).await.into_iter().sum()
}

#[tokio::test]
async fn two_front_ends_together_keep_to_rate_and_burst() {
    let (one, other) = front_ends(&Arc::default()).await;
    let limits = json!({"name": "a", "scopes": ["query"], "rate_per_s": 2, "burst": 40});
    let key = create([&one, &other], &limits).await;
    let _clock = stop_clock();
    let began = Instant::now();
    let mut count = 0;
    // The rate alone gives 40 tokens only after 20 seconds.
    let patience = Duration::from_secs(15);
    for round in 0.. {
        if round >= 5 && (count >= 40 || began.elapsed() > patience) {
            break;
        }
        count += admitted([&one, &other], &key, 20).await;
    }
    let most = 40.0 + 2.0 * began.elapsed().as_secs_f64();
    assert!(count as f64 <= most, "{count} of {most}");
    // A burst is all there for who asks first, not only what comes with the rate.
    assert!(count >= 40, "{count}");
}

#[tokio::test]
async fn a_refusal_says_when_to_come_again() {
    let (one, other) = front_ends(&Arc::default()).await;
    let limits = json!({"name": "a", "scopes": ["query"], "rate_per_s": 0.1, "burst": 1});
    let key = create([&one, &other], &limits).await;
    let _clock = stop_clock();
    let first = one.keyed(&key, "POST", "/v1/queries", QUERY).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["ratelimit-limit"], "1");
    let second = one.keyed(&key, "POST", "/v1/queries", QUERY).await;
    assert_eq!(second.status, 429);
    let seconds = second.headers["retry-after"].to_str().expect("a number");
    let seconds: u64 = seconds.parse().expect("a number");
    assert!((1..=10).contains(&seconds), "{seconds}");
    assert_eq!(second.headers["ratelimit-remaining"], "0");
    let problem = second.problem("rate_limited");
    assert_eq!(problem["detail"], "the key's rate is used up");
    // Open routes and other keys are not counted.
    assert_eq!(one.get("/health/ready").await.status, 200);
    assert_eq!(one.keyed(ADMIN, "GET", "/v1/models", "").await.status, 200);
}

#[tokio::test]
async fn two_front_ends_together_keep_to_a_quota() {
    let (one, other) = front_ends(&Arc::default()).await;
    let limits = json!({"name": "a", "scopes": ["query"], "quota_per_day": 25});
    let key = create([&one, &other], &limits).await;
    let _clock = stop_clock();
    let count = admitted([&one, &other], &key, 30).await;
    // At midnight a second quota begins.
    assert!((23..=25).contains(&count) || count > 40, "{count}");
    let refused = one.keyed(&key, "POST", "/v1/queries", QUERY).await;
    let problem = refused.problem("rate_limited");
    assert_eq!(problem["detail"], "the key's quota for today is used up");
}

#[tokio::test]
async fn limits_go_on_while_their_store_is_away() {
    let rates = Arc::<FlakyStore>::default();
    let (one, other) = front_ends(&rates).await;
    let limits = json!({"name": "a", "scopes": ["query"], "rate_per_s": 1000, "burst": 5});
    let key = create([&one, &other], &limits).await;
    assert!(admitted([&one, &other], &key, 3).await >= 1);
    rates.is_away.store(true, Ordering::SeqCst);
    // Each front end admits by the last known rate: some get through, a flood does not.
    let mut count = 0;
    let began = Instant::now();
    while count < 20 {
        count += admitted([&one, &other], &key, 2).await;
    }
    let most = 10.0 + 2.0 * (6.0 + 1000.0 * began.elapsed().as_secs_f64());
    assert!(
        f64::from(u32::try_from(count).expect("few")) <= most,
        "{count} of {most}"
    );
    rates.is_away.store(false, Ordering::SeqCst);
    while admitted([&one, &other], &key, 1).await < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_do_not_wait_for_a_store_that_is_stuck() {
    let rates = Arc::<FlakyStore>::default();
    rates.is_stuck.store(true, Ordering::SeqCst);
    let (one, other) = front_ends(&rates).await;
    let limits = json!({"name": "a", "scopes": ["query"], "rate_per_s": 1e6, "quota_per_day": 9});
    let key = create([&one, &other], &limits).await;
    // Both limits go on without the store: the rate as it was, the quota uncounted for now.
    for _ in 0..12 {
        let asked = one.keyed(&key, "POST", "/v1/queries", QUERY).await;
        assert_eq!(asked.status, 200);
    }
}

#[tokio::test]
async fn a_store_that_is_stuck_holds_up_neither_revocations_nor_the_end() {
    let rates = Arc::<FlakyStore>::default();
    let (one, other) = front_ends(&rates).await;
    let limits = json!({"name": "a", "scopes": ["query"], "rate_per_s": 1e3, "burst": 1000});
    let key = create([&one, &other], &limits).await;
    // Until it has some in hand that it would put back.
    let mut in_hand = 0;
    while in_hand == 0 {
        let asked = other.keyed(&key, "POST", "/v1/queries", QUERY).await;
        let remaining = asked.headers["ratelimit-remaining"].to_str();
        in_hand = remaining.expect("text").parse().expect("a number");
    }
    rates.is_stuck.store(true, Ordering::SeqCst);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let shutdown = CancellationToken::new();
    let serving = sextant_api::serve(listener, other.state.clone(), shutdown.clone());
    let serving = tokio::spawn(serving);
    let keys = one.keyed(ADMIN, "GET", "/v1/keys", "").await.json();
    let path = format!(
        "/v1/keys/{}",
        keys["keys"][0]["id"].as_str().expect("an id")
    );
    assert_eq!(one.keyed(ADMIN, "DELETE", &path, "").await.status, 200);
    while other.keyed(&key, "GET", "/v1/models", "").await.status != 401 {
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    serving.await.expect("no panic").expect("a clean end");
}
