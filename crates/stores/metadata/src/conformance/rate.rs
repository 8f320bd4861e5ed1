//! The properties that every [`RateStore`] has: one function each, over an empty store.
//!
//! A backend binds them all with [`bind_rate_conformance!`](crate::bind_rate_conformance).

use std::sync::Arc;

use super::fixtures::Choices;
use crate::{Rate, RateStore};

/// A store under test.
pub type Rates = Arc<dyn RateStore>;

const SECOND: u64 = 1000;
const TEN_A_SECOND: Rate = Rate {
    per_s: 10.0,
    burst: 20.0,
};

/// Makes one `#[tokio::test]` of each property. The argument is an async expression that gives an
/// empty store and a value that must live as long as the store, such as its server:
/// `bind_rate_conformance!(async { (Arc::new(MyRates::new()) as Rates, ()) })`.
#[macro_export]
macro_rules! bind_rate_conformance {
    ($fresh:expr) => {
        $crate::bind_rate_conformance!(@each $fresh;
            bucket_begins_full_and_fills_with_time
            bucket_never_grants_more_than_came
            clock_that_goes_back_fills_nothing
            tokens_given_back_are_there_again
            quota_begins_again_with_each_window
            names_do_not_know_each_other
            takers_at_once_share_what_is_there
        );
    };
    (@each $fresh:expr; $($property:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                let (rates, _guard) = $fresh.await;
                $crate::conformance::rate::$property(rates).await;
            }
        )*
    };
}

async fn take(rates: &Rates, name: &str, most: u32, now_ms: u64) -> u32 {
    let taken = rates.take(name, most, TEN_A_SECOND, now_ms).await;
    taken.expect("take")
}

async fn spend(rates: &Rates, most: u32, limit: (u64, u64), now_ms: u64) -> u32 {
    let spent = rates.spend("quota", most, limit, now_ms).await;
    spent.expect("spend")
}

/// A new bucket holds its burst. What comes in later is counted in parts of a token.
pub async fn bucket_begins_full_and_fills_with_time(rates: Rates) {
    assert_eq!(take(&rates, "a", 15, SECOND).await, 15);
    assert_eq!(take(&rates, "a", 15, SECOND).await, 5);
    assert_eq!(take(&rates, "a", 15, SECOND).await, 0);
    assert_eq!(take(&rates, "a", 15, SECOND + 250).await, 2);
    assert_eq!(take(&rates, "a", 15, SECOND + 300).await, 1);
    assert_eq!(take(&rates, "a", 100, 60 * SECOND).await, 20, "the burst");
}

/// For any order of calls, the sum of granted tokens is at most the burst and what came in.
pub async fn bucket_never_grants_more_than_came(rates: Rates) {
    let mut choices = Choices::new(0xb_0c4e7);
    let (mut now_ms, mut granted) = (5 * SECOND, 0);
    let begun_ms = now_ms;
    for round in 0..200 {
        now_ms += choices.below(150);
        let most = choices.below(5) as u32;
        let got = take(&rates, "a", most, now_ms).await;
        let seed = choices.seed;
        assert!(got <= most, "seed {seed} round {round}");
        granted += got;
        let came = 20.0 + 10.0 * (now_ms - begun_ms) as f64 / 1e3;
        let sum = f64::from(granted);
        assert!(
            sum <= came + 1e-6,
            "seed {seed} round {round}: {sum} of {came}"
        );
    }
    assert!(granted > 20, "it went on after the burst: {granted}");
}

/// A caller whose clock is behind gains nothing, and takes nothing from other callers.
pub async fn clock_that_goes_back_fills_nothing(rates: Rates) {
    assert_eq!(take(&rates, "a", 20, 10 * SECOND).await, 20);
    assert_eq!(take(&rates, "a", 20, 9 * SECOND).await, 0);
    assert_eq!(take(&rates, "a", 20, 10 * SECOND).await, 0);
    assert_eq!(take(&rates, "a", 20, 11 * SECOND).await, 10);
}

/// Unspent tokens may be given back, up to the burst.
pub async fn tokens_given_back_are_there_again(rates: Rates) {
    assert_eq!(take(&rates, "a", 12, SECOND).await, 12);
    let back = rates.give_back("a", 4, TEN_A_SECOND).await;
    back.expect("give back");
    assert_eq!(take(&rates, "a", 20, SECOND).await, 12);
    let back = rates.give_back("a", 100, TEN_A_SECOND).await;
    back.expect("give back");
    assert_eq!(take(&rates, "a", 100, SECOND).await, 20);
}

/// In a window at most the limit is granted. The next window begins at a multiple of its length.
pub async fn quota_begins_again_with_each_window(rates: Rates) {
    let limit = (10, 60 * SECOND);
    assert_eq!(spend(&rates, 6, limit, 59 * SECOND).await, 6);
    assert_eq!(spend(&rates, 6, limit, 60 * SECOND - 1).await, 4);
    assert_eq!(spend(&rates, 6, limit, 60 * SECOND - 1).await, 0);
    assert_eq!(spend(&rates, 6, limit, 60 * SECOND).await, 6);
    assert_eq!(
        spend(&rates, 6, limit, 59 * SECOND).await,
        4,
        "a late clock"
    );
    assert_eq!(spend(&rates, 6, limit, 119 * SECOND).await, 0);
    assert_eq!(spend(&rates, 6, (20, 60 * SECOND), 119 * SECOND).await, 6);
    assert_eq!(spend(&rates, 6, (0, 60 * SECOND), 300 * SECOND).await, 0);
}

/// Buckets and quotas of different names are independent, and so are a bucket and a quota.
pub async fn names_do_not_know_each_other(rates: Rates) {
    assert_eq!(take(&rates, "quota", 20, SECOND).await, 20);
    assert_eq!(
        take(&rates, "a key: with {odd} letters", 20, SECOND).await,
        20
    );
    assert_eq!(take(&rates, "", 20, SECOND).await, 20);
    assert_eq!(spend(&rates, 5, (5, SECOND), SECOND).await, 5);
}

/// Concurrent takers together get exactly the tokens that exist.
pub async fn takers_at_once_share_what_is_there(rates: Rates) {
    let takers: Vec<_> = (0..8)
        .map(|_| {
            let rates = rates.clone();
            tokio::spawn(async move {
                let tokens = take(&rates, "a", 3, SECOND).await;
                (tokens, spend(&rates, 3, (17, SECOND), SECOND).await)
            })
        })
        .collect();
    let (mut tokens, mut units) = (0, 0);
    for taker in takers {
        let (taken, spent) = taker.await.expect("the taker ran");
        tokens += taken;
        units += spent;
    }
    assert_eq!((tokens, units), (20, 17));
}
