//! One process leads, whatever happens to the others and to the store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use sextant_fleet::{Leadership, Token, always, unsteady::UnsteadyStore};
use sextant_metadata::{Candidate, MetadataStore};
use tokio::{sync::oneshot, task::JoinHandle};

/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(20);

const TTL: Duration = Duration::from_millis(200);

struct Runner {
    token: Token,
    stop: oneshot::Sender<()>,
    run: JoinHandle<()>,
}

fn run(store: &Arc<UnsteadyStore>, holder: &str) -> Runner {
    let candidate = Candidate {
        role: "dispatcher".into(),
        holder: holder.into(),
        endpoint: "host:1".into(),
    };
    let leadership = Leadership::new(Arc::clone(store) as _, candidate, TTL);
    let token = leadership.token();
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn(leadership.run(async move { drop(stopped.await) }));
    Runner { token, stop, run }
}

impl Runner {
    async fn wins(&mut self) -> u64 {
        let won = tokio::time::timeout(PATIENCE, self.token.wait_for(Option::is_some));
        won.await.unwrap().unwrap().unwrap()
    }

    async fn loses(&mut self) {
        let lost = tokio::time::timeout(PATIENCE, self.token.wait_for(Option::is_none));
        drop(lost.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn the_lead_passes_on_with_a_greater_token_each_time() {
    let store = Arc::new(UnsteadyStore::new(64));
    let mut last = 0;
    let mut leader = run(&store, "0");
    for next in 1..6 {
        let token = leader.wins().await;
        assert!(token > last, "{token} after {last}");
        last = token;
        let standby = run(&store, &next.to_string());
        assert!(standby.token.borrow().is_none());
        match next % 2 {
            // The process is killed: the lease must lapse.
            0 => leader.run.abort(),
            // The process resigns.
            _ => {
                leader.stop.send(()).unwrap();
                leader.run.await.unwrap();
                let leaders = store.snapshot().await.unwrap().leaders;
                assert!(leaders.iter().all(|leader| leader.token > last));
            }
        }
        leader = standby;
    }
}

#[tokio::test]
async fn nobody_believes_in_a_lease_for_longer_than_it_lasts() {
    let store = Arc::new(UnsteadyStore::new(64));
    let mut leader = run(&store, "0");
    let first = leader.wins().await;
    store.set_away(true);
    leader.loses().await;
    store.set_away(false);
    // After the lease has ended the role is taken again, before it is renewed.
    let first = {
        let again = leader.wins().await;
        assert!(again >= first, "{again} after {first}");
        again
    };
    // A store that has forgotten everything elects again.
    store.lose_everything();
    let token = tokio::time::timeout(
        PATIENCE,
        leader.token.wait_for(|token| *token != Some(first)),
    );
    drop(token.await.unwrap().unwrap());
    assert!(leader.wins().await > first);
}

#[test]
fn who_is_alone_always_leads() {
    assert_eq!(*always().borrow(), Some(0));
}
