//! Properties of roles that have one leader.

use super::{SECOND, Store, fixtures::candidate, head};
use crate::Event;

/// Of many concurrent candidates one is elected, and all are told which one.
pub async fn one_of_many_candidates_leads(store: Store) {
    const CANDIDATES: usize = 8;
    let start = head(&store).await;
    let campaigns: Vec<_> = (0..CANDIDATES)
        .map(|index| {
            let store = store.clone();
            let candidate = candidate("dispatcher", &format!("process-{index}"));
            tokio::spawn(async move { store.campaign(&candidate, SECOND, 0).await })
        })
        .collect();
    let mut leaders = Vec::new();
    for campaign in campaigns {
        let leader = campaign.await.expect("the candidate ran");
        leaders.push(leader.expect("campaign"));
    }
    let first = &leaders[0];
    assert!(leaders.iter().all(|leader| leader == first), "{leaders:?}");
    assert_eq!(first.lease_until_ms, SECOND);
    let events = store.changes(start).await.expect("changes").events;
    assert_eq!(events, [Event::LeaderChanged(first.clone())]);
    let recorded = store.snapshot().await.expect("snapshot").leaders;
    assert_eq!(&recorded, std::slice::from_ref(first));
}

/// A holder renews its role before another candidate takes it, also after its lease has lapsed.
pub async fn renewal_keeps_the_token_and_is_no_event(store: Store) {
    let mine = candidate("dispatcher", "mine");
    let taken = store.campaign(&mine, SECOND, 0).await.expect("campaign");
    assert_eq!(taken.candidate, mine);
    let start = head(&store).await;
    for now_ms in [SECOND / 2, SECOND, 2 * SECOND - 1] {
        let renewed = store.campaign(&mine, SECOND, now_ms).await;
        let renewed = renewed.expect("campaign");
        assert_eq!(renewed.token, taken.token);
        assert_eq!(renewed.lease_until_ms, now_ms + SECOND);
        let recorded = store.snapshot().await.expect("snapshot").leaders;
        assert_eq!(recorded, [renewed]);
    }
    assert_eq!(store.changes(start).await.expect("changes").events, []);
    let shorter = store.campaign(&mine, 1, 2 * SECOND).await;
    let shorter = shorter.expect("campaign");
    assert_eq!(
        shorter.lease_until_ms,
        3 * SECOND - 1,
        "a lease never shrinks"
    );
}

/// A holder that returns after its lease lapsed, before another has taken the role, leads on as if the lease had not
/// lapsed: a machine that stood still changes nothing for its followers.
pub async fn lapsed_role_is_renewed_by_who_held_it_last(store: Store) {
    let mine = candidate("dispatcher", "mine");
    let first = store.campaign(&mine, SECOND, 0).await.expect("campaign");
    let start = head(&store).await;
    let again = store.campaign(&mine, SECOND, 3 * SECOND).await;
    let again = again.expect("campaign");
    assert_eq!(again.candidate, mine);
    assert_eq!(again.token, first.token);
    assert_eq!(again.lease_until_ms, 4 * SECOND);
    let events = store.changes(start).await.expect("changes").events;
    assert_eq!(events, [], "nobody else has led");
}

/// No candidate takes a role before the lease lapses. After that, the next candidate does.
pub async fn lapsed_role_goes_to_another_with_a_greater_token(store: Store) {
    let names = ["first", "second", "first", "third"];
    let mut last = None;
    for (round, name) in (0..).zip(names) {
        let now_ms = round * SECOND;
        let mine = candidate("dispatcher", name);
        if let Some(held) = &last {
            let early = store.campaign(&mine, SECOND, now_ms - 1).await;
            assert_eq!(&early.expect("campaign"), held, "one millisecond early");
        }
        let leader = store.campaign(&mine, SECOND, now_ms).await;
        let leader = leader.expect("campaign");
        assert_eq!(leader.candidate, mine);
        assert_eq!(leader.lease_until_ms, now_ms + SECOND);
        let greatest = last.map_or(0, |last| last.token);
        assert!(leader.token > greatest, "{} after {greatest}", leader.token);
        last = Some(leader);
    }
}

/// A holder that resigns frees the role at once. No other candidate can free it.
pub async fn resigned_role_is_free_at_once(store: Store) {
    let mine = candidate("dispatcher", "mine");
    let other = candidate("dispatcher", "other");
    assert!(!store.resign(&mine).await.expect("resign"));
    let taken = store.campaign(&mine, SECOND, 0).await.expect("campaign");
    let start = head(&store).await;
    assert!(!store.resign(&other).await.expect("resign"));
    assert!(store.resign(&mine).await.expect("resign"));
    assert!(!store.resign(&mine).await.expect("resign"));
    assert_eq!(store.snapshot().await.expect("snapshot").leaders, []);
    let next = store.campaign(&other, SECOND, 0).await.expect("campaign");
    assert_eq!(next.candidate, other);
    assert!(next.token > taken.token);
    let events = store.changes(start).await.expect("changes").events;
    let gone = Event::LeaderGone("dispatcher".into());
    assert_eq!(events, [gone, Event::LeaderChanged(next)]);
}

/// The holders of different roles are independent. A snapshot has them sorted by role.
pub async fn roles_do_not_know_each_other(store: Store) {
    let mut leaders = Vec::new();
    for (role, holder) in [("b", "one"), ("a", "one"), ("c", "two \"quoted\"")] {
        let candidate = candidate(role, holder);
        let leader = store.campaign(&candidate, SECOND, 0).await;
        let leader = leader.expect("campaign");
        assert_eq!(leader.candidate, candidate);
        leaders.push(leader);
    }
    leaders.sort_by(|a, b| a.candidate.role.cmp(&b.candidate.role));
    for leader in &leaders {
        let holds = store.leader(&leader.candidate.role).await;
        assert_eq!(holds.expect("leader").as_ref(), Some(leader));
    }
    assert_eq!(store.leader("d").await.expect("leader"), None);
    let recorded = store.snapshot().await.expect("snapshot").leaders;
    assert_eq!(recorded, leaders);
    let stood_down = store.resign(&leaders[0].candidate).await.expect("resign");
    assert!(stood_down);
    let recorded = store.snapshot().await.expect("snapshot").leaders;
    assert_eq!(recorded, leaders[1..]);
    let gone = store.leader(&leaders[0].candidate.role).await;
    assert_eq!(gone.expect("leader"), None);
}
