//! A data folder of a release without versions.

use std::process::Command;

use sextant_test_servers::interpreter;

use super::*;

/// Removes from a registry what the schema has had since versions exist, so that it is as a release without versions
/// left it.
const DOWNGRADE: &str = "
import sqlite3, sys
registry = sqlite3.connect(sys.argv[1])
run = registry.execute
run('delete from _sqlx_migrations where version > 15')
for table in ['pipeline_measures', 'shadow_answers', 'feedback', 'feedback_sums', 'feedback_alarms', 'feedback_keys']:
    run(f'drop table {table}')
run('drop index models_version')
for column in ['name', 'version', 'stage', 'percent', 'rules', 'stage_since_ms', 'replaced', 'registered_by',
               'registered_by_admin']:
    run(f'alter table models drop column {column}')
run('alter table applications drop column feedback')
registry.commit()
registry.close()
";

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_from_before_versions_answers_by_the_names_that_it_has() {
    let mut cluster = service().await;
    let before = ask(&cluster.api(), ("model", "model"), 3).await.json(200);
    assert!(cluster.stop().success());
    let done = Command::new(interpreter())
        .args(["-c", DOWNGRADE])
        .arg(cluster.data().join("registry.sqlite"))
        .output()
        .expect("Python can be started");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    cluster.launch();
    let api = cluster.api();
    assert_eq!(stages(&api).await, ["current"]);
    for what in [
        ("model", "model"),
        ("model", "model@1"),
        ("application", "digits"),
    ] {
        let answer = until("the model is loaded", || async {
            let answer = ask(&api, what, 3).await;
            (answer.status == 200).then(|| answer.json(200))
        })
        .await;
        assert_eq!(answer["version"], 1, "{answer}");
        assert_eq!(answer["outputs"], before["outputs"], "bit for bit");
    }
    assert_eq!(next(&api, "logistic", &[]).await["version"], 2);
    act(&api, 2, "promotion", 1).await.json(200);
    await_version(&api, ("model", "model"), 2).await;
}
