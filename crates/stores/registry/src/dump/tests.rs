//! A dump contains the whole registry.

use std::{collections::BTreeSet, fs, path::Path};

use super::*;

/// The tables that exist after the migrations of a dialect.
fn made(dialect: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../migrations");
    let files = fs::read_dir(folder.join(dialect)).expect("the migrations");
    let mut files: Vec<_> = files.map(|it| it.expect("a file").path()).collect();
    files.sort();
    let mut tables = BTreeSet::new();
    for file in files {
        for line in fs::read_to_string(file).expect("a text").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["create", "table", name, ..] => assert!(tables.insert(name.to_owned())),
                ["drop", "table", name] => {
                    assert!(tables.remove(name.trim_end_matches(';')));
                }
                ["alter", "table", from, "rename", "to", to] => {
                    assert!(tables.remove(from));
                    tables.insert(to.trim_end_matches(';').to_owned());
                }
                _ => {}
            }
        }
    }
    tables
}

#[test]
fn every_table_of_the_migrations_is_in_a_backup_or_left_out_on_purpose() {
    let left = LEFT_OUT.iter().map(|(table, _)| *table);
    let known: BTreeSet<String> = TABLES.into_iter().chain(left).map(str::to_owned).collect();
    for dialect in ["sqlite", "postgres"] {
        let mut made = made(dialect);
        assert!(made.len() > 5, "{made:?}");
        // This is the driver's own table.
        made.insert("_sqlx_migrations".to_owned());
        assert_eq!(made, known, "{dialect}");
    }
}

#[tokio::test]
async fn every_table_of_a_real_file_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("registry.sqlite");
    let registry = Registry::open(&file).await.expect("a registry");
    let place = Place::File(file);
    let mut dump = Dump::open(&place).await.expect("a dump");
    let found: BTreeSet<String> = tables(&mut dump.session)
        .await
        .expect("tables")
        .into_iter()
        .collect();
    assert_eq!(found.len(), TABLES.len() + LEFT_OUT.len(), "{found:?}");
    drop(dump);
    let mut writer = registry.begin().await.expect("a transaction");
    let Connection::Sqlite(session) = writer.connection() else {
        panic!("it is a file");
    };
    sqlx::query("create table forgotten (id text) strict")
        .execute(session.connection())
        .await
        .expect("created");
    writer.commit().await.expect("committed");
    let refused = Dump::open(&place).await.err();
    assert!(
        matches!(&refused, Some(Error::UnknownTable { table }) if table == "forgotten"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_backup_has_the_blobs_that_a_sweep_would_keep() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("registry.sqlite");
    let registry = Registry::open(&file).await.expect("a registry");
    crate::tests::fill(&registry).await;
    let used = registry.blob_uses().await.expect("uses");
    let roles: BTreeSet<_> = used.iter().map(|used| used.role).collect();
    assert_eq!(roles.len(), 4, "each role is there: {roles:?}");
    let used: BTreeSet<Digest> = used.into_iter().map(|used| used.digest).collect();
    let mut dump = Dump::open(&Place::File(file)).await.expect("a dump");
    let named = dump.digests().await.expect("digests");
    assert_eq!(named, used.into_iter().collect::<Vec<_>>());
}
