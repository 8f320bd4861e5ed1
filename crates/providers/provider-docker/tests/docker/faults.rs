//! Refusals of the engine, and limits.

use sextant_provider::{Error, Provider, State};
use sextant_provider_docker::Containers;

use super::support::{Fleet, LONG_MS, pool};

#[tokio::test]
async fn missing_image_is_named() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let mut settings = fleet.settings();
    settings.template.image = "sextant-test-nothing:0".to_owned();
    let (provider, pool) = (Containers::new(settings), pool("cpu", LONG_MS));
    let error = provider.grow(&pool, 2).await.expect_err("no image");
    assert!(matches!(error, Error::Settings { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("`sextant-test-nothing:0`: pull it"),
        "{error}"
    );
    assert_eq!(provider.list(&pool).await.expect("list"), []);
}

/// If the image lacks the program, or the engine lacks the network, no container is left.
#[tokio::test]
async fn container_that_cannot_start_is_refused_and_goes() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let mut program = fleet.settings();
    program.template.command = vec!["/bin/nothing".to_owned()];
    let mut network = fleet.settings();
    network.template.network = Some("sextant-test-nowhere".to_owned());
    for (settings, words) in [(program, "/bin/nothing"), (network, "sextant-test-nowhere")] {
        let (provider, pool) = (Containers::new(settings), pool("cpu", LONG_MS));
        let error = provider.grow(&pool, 2).await.expect_err("it cannot start");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(provider.list(&pool).await.expect("list"), []);
        assert_eq!(fleet.containers().await.len(), 0);
    }
}

#[tokio::test]
async fn no_more_start_than_there_is_room_for() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let mut settings = fleet.settings();
    settings.most = 2;
    let provider = Containers::new(settings);
    let (one, other) = (pool("stubborn-one", LONG_MS), pool("other", LONG_MS));
    let first = fleet.up(&provider, &one, 1).await.remove(0);
    provider.grow(&other, 5).await.expect("grow");
    assert_eq!(provider.list(&other).await.expect("list").len(), 1);
    provider.end(&one, &[first.id]).await.expect("end");
    provider.grow(&one, 1).await.expect("grow");
    let listed = provider.list(&one).await.expect("list");
    assert_eq!(listed.len(), 1, "those that end take room: {listed:?}");
    assert_eq!(listed[0].state, State::Ending);
}

#[tokio::test]
async fn long_name_of_a_pool_is_refused() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let pool = pool(&"x".repeat(128), LONG_MS);
    let error = fleet.open().grow(&pool, 1).await.expect_err("too long");
    assert!(matches!(error, Error::Settings { .. }), "{error:?}");
}
