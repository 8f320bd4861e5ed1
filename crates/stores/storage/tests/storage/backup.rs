//! The contents of a backup, and what a restore gives.

use std::{fs, path::Path, sync::Arc};

use sextant_objects::ListRequest;
use sextant_registry::{
    Audit, JobFilter, JobKind, JobState, KeyScope, NewKey,
    dump::{Dump, TABLES},
};
use sextant_storage::backup::{self, Error, Manifest, PREFIXES, Progress};
use sextant_types::{Code, Digest, JobId};
use tempfile::TempDir;

use crate::{
    flat::FlatStore,
    support::{Bench, CONFIG, path},
};

/// Rows of most kinds, files, what jobs keep, and an unreferenced blob.
async fn fill(bench: &Bench) -> [Digest; 2] {
    let files = (bench.put("model").await, bench.put(vec![7; 9 << 20]).await);
    bench.register("m", files).await;
    bench.put("nobody's").await;
    let job = bench.held_job("out.jsonl", 5).await;
    bench.put_file("in.jsonl", "a record").await;
    bench.put_file("a/b/deep", vec![1; 100]).await;
    bench.put_file("empty", "").await;
    let part = format!("out.jsonl.parts/{}/plan-1.json", job.id);
    bench.put_file(&part, "{}").await;
    let key = NewKey {
        id: "k".to_owned(),
        name: "k".to_owned(),
        hash: "0".repeat(64),
        scopes: vec![KeyScope::Query],
        application: None,
        rate_per_s: Some(0.1 + 0.2),
        burst: Some(3),
        quota_per_day: None,
        expires_ms: None,
    };
    bench.registry.create_key(&key, 3).await.expect("a key");
    let entry = Audit::new(
        4,
        "me",
        "model.create",
        "m",
        serde_json::json!({"odd": "\u{1}\n\"ü"}),
    );
    bench.registry.record(&entry).await.expect("recorded");
    files.into()
}

/// Takes a backup of the registry of one bench and the store of the other.
async fn write(registry: &Bench, store: &Bench, to: &Path) -> Result<Manifest, Error> {
    backup::take(&registry.place, store.objects.as_ref(), to, &mut quiet).await
}

async fn take(bench: &Bench) -> (TempDir, Manifest) {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = write(bench, bench, folder.path());
    let manifest = manifest.await.expect("a backup");
    (folder, manifest)
}

fn quiet(_: Progress) {}

async fn restore(folder: &Path, to: &Bench) -> Result<Manifest, Error> {
    backup::restore(folder, &to.registry, &to.objects, &mut quiet).await
}

/// Every table with its stored rows, except jobs, which are put back into the queue.
async fn rows(bench: &Bench) -> Vec<(String, Vec<String>)> {
    let mut dump = Dump::open(&bench.place).await.expect("a dump");
    let mut all = Vec::new();
    for table in TABLES.into_iter().filter(|table| *table != "jobs") {
        let mut columns = dump.columns(table).await.expect("columns");
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        let mut rows = Vec::new();
        let read = dump.each_row(table, &columns, |row| {
            rows.push(format!("{row:?}"));
            Ok::<(), sextant_registry::Error>(())
        });
        read.await.expect("rows");
        rows.sort();
        all.push((table.to_owned(), rows));
    }
    all
}

async fn files(bench: &Bench) -> Vec<(String, u64)> {
    let page = bench.objects.list(&ListRequest::prefix("")).await;
    let objects = page.expect("a page").objects.into_iter();
    objects
        .map(|it| (it.path.to_string(), it.size_bytes))
        .collect()
}

async fn a_backup_is_restored_as_it_was(from: Bench, to: Bench) {
    let blobs = fill(&from).await;
    let (folder, manifest) = take(&from).await;
    assert_eq!((manifest.blobs, manifest.files), (2, 3));
    assert_eq!(manifest.missing, []);
    restore(folder.path(), &to).await.expect("restored");
    assert_eq!(rows(&to).await, rows(&from).await);
    for blob in &blobs {
        let restored = to.objects.get_blob(blob).await.expect("a blob");
        assert_eq!(restored, from.objects.get_blob(blob).await.expect("a blob"));
    }
    let mut wanted = files(&from).await;
    wanted.retain(|(name, _)| !name.contains(".parts/"));
    assert_eq!(files(&to).await, wanted);
    let deep = to.objects.get(&path("a/b/deep")).await.expect("a file");
    assert_eq!(deep, vec![1; 100]);
    // Jobs wait for a runner.
    let jobs = to.registry.jobs(&JobFilter::default()).await.expect("jobs");
    assert_eq!(jobs.len(), 2);
    assert!(
        jobs.iter().all(|job| job.state == JobState::Queued),
        "{jobs:?}"
    );
    let claimed = to.registry.claim(JobKind::Offline, "other", 10, 1).await;
    assert!(claimed.expect("an answer").is_some());
    // Registry and store have a new name, and nothing that belongs to them is swept.
    to.storage(CONFIG)
        .meet()
        .await
        .expect("they belong together");
    let freed = to.storage(CONFIG).sweep(None).await.expect("swept");
    assert_eq!(freed.blobs.objects, 0);
    let names = [&from, &to].map(|it| it.registry.identity());
    let [one, other] = names;
    assert_ne!(one.await.expect("a name"), other.await.expect("a name"));
    // The second time they are not empty.
    let refused = restore(folder.path(), &to)
        .await
        .expect_err("it is not empty");
    assert_eq!(refused.code(), Code::NotEmpty, "{refused}");
}

#[tokio::test]
async fn a_folder_is_restored_into_a_folder() {
    a_backup_is_restored_as_it_was(Bench::folder().await, Bench::bare_folder().await).await;
}

#[tokio::test]
async fn a_fleet_is_restored_into_a_fleet() {
    let from = Bench::fleet("backup_from").await;
    a_backup_is_restored_as_it_was(from, Bench::bare_fleet("backup_to").await).await;
}

#[tokio::test]
async fn a_folder_is_restored_into_a_fleet() {
    let to = Bench::bare_fleet("backup_of_folder").await;
    a_backup_is_restored_as_it_was(Bench::folder().await, to).await;
}

#[tokio::test]
async fn a_fleet_is_restored_into_a_folder() {
    let from = Bench::fleet("backup_of_fleet").await;
    a_backup_is_restored_as_it_was(from, Bench::bare_folder().await).await;
}

/// Longest name in a folder.
const LONGEST: usize = 255;

#[tokio::test]
async fn a_file_with_the_longest_name_is_restored() {
    let (from, to) = (Bench::folder().await, Bench::bare_folder().await);
    let name = "a".repeat(LONGEST);
    from.put_file(&name, "long").await;
    let (folder, _) = take(&from).await;
    restore(folder.path(), &to).await.expect("restored");
    let restored = to.objects.get(&path(&name)).await.expect("a file");
    assert_eq!(restored, "long");
}

#[tokio::test]
async fn a_file_below_another_one_is_restored() {
    let (mut from, mut to) = (Bench::folder().await, Bench::bare_folder().await);
    for bench in [&mut from, &mut to] {
        bench.objects = Arc::new(FlatStore(Arc::clone(&bench.objects)));
    }
    for name in ["a", "a/b", "a/b/c", "a/d"] {
        from.put_file(name, name.to_owned()).await;
    }
    let (folder, _) = take(&from).await;
    restore(folder.path(), &to).await.expect("restored");
    assert_eq!(files(&to).await, files(&from).await);
    let restored = to.objects.get(&path("a/b")).await.expect("a file");
    assert_eq!(restored, "a/b");
}

/// Changes a file of a backup, or removes it.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    match bytes.first_mut() {
        Some(first) => *first ^= 1,
        None => bytes.push(0),
    }
    fs::write(file, bytes).expect("written");
}

fn all_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.map(|it| it.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => all_files(&path),
            false => vec![path],
        })
        .collect()
}

#[tokio::test]
async fn whatever_is_damaged_or_missing_in_a_backup_is_noticed() {
    let bench = Bench::folder().await;
    fill(&bench).await;
    let (folder, _) = take(&bench).await;
    let files = all_files(folder.path());
    assert!(files.len() > TABLES.len() + 4, "{files:?}");
    for file in files {
        let whole = fs::read(&file).expect("a file");
        for remove in [false, true] {
            match remove {
                true => fs::remove_file(&file).expect("removed"),
                false => damage(&file),
            }
            let to = Bench::bare_folder().await;
            let refused = restore(folder.path(), &to).await;
            let refused = refused.expect_err("it is damaged");
            assert_eq!(refused.code(), Code::InvalidBackup, "{refused}");
            let rows = rows(&to).await;
            assert!(rows.iter().all(|(_, rows)| rows.is_empty()), "{rows:?}");
            fs::write(&file, &whole).expect("written");
        }
    }
    let to = Bench::bare_folder().await;
    restore(folder.path(), &to)
        .await
        .expect("it is whole again");
}

#[tokio::test]
async fn a_backup_is_written_into_an_empty_folder_and_restored_into_empty_stores() {
    let bench = Bench::folder().await;
    fill(&bench).await;
    let (folder, _) = take(&bench).await;
    let again = write(&bench, &bench, folder.path());
    assert_eq!(again.await.expect_err("refused").code(), Code::NotEmpty);
    let with_rows = Bench::unnamed_folder().await;
    let with_blobs = Bench::bare_folder().await;
    with_blobs.put("a blob").await;
    let with_files = Bench::bare_folder().await;
    with_files.put_file("a", "file").await;
    for to in [with_rows, with_blobs, with_files] {
        let refused = restore(folder.path(), &to).await.expect_err("not empty");
        assert_eq!(refused.code(), Code::NotEmpty, "{refused}");
    }
    let strange = Bench::folder().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mixed = write(&strange, &bench, elsewhere.path());
    assert_eq!(
        mixed.await.expect_err("refused").code(),
        Code::StoreMismatch
    );
}

/// A store's own folder has no prefix that a backup does not know.
#[tokio::test]
async fn every_prefix_of_the_store_is_known() {
    let bench = Bench::folder().await;
    fill(&bench).await;
    let root = bench.objects.scratch().expect("it is a folder");
    fs::create_dir_all(&root).expect("created");
    let root = root.parent().expect("the store's");
    let mut found: Vec<String> = fs::read_dir(root)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    found.sort();
    assert_eq!(found, PREFIXES.map(|(prefix, _)| prefix));
}

/// Models are registered and deleted while backups are taken: each backup is of one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_service_that_runs_is_one_moment() {
    let bench = Arc::new(Bench::folder().await);
    let storage = bench.storage(CONFIG);
    let busy = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let name = format!("m{number}");
                let content = format!("model {number}");
                let files = (bench.put(content).await, bench.put("validation").await);
                let job = bench.register(&name, files).await.job;
                cancel(&bench, &job.id, number).await;
                let model = name.parse().expect("a name");
                bench
                    .registry
                    .delete_model(&model, number)
                    .await
                    .expect("deleted");
                storage.sweep(None).await.expect("swept");
            }
        })
    };
    for _ in 0..10 {
        let folder = tempfile::tempdir().expect("a folder");
        let taken = write(&bench, &bench, folder.path());
        let manifest = match taken.await {
            Ok(manifest) => manifest,
            // The backup fails, rather than lacking something.
            Err(Error::Unsteady) => continue,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(manifest.missing, []);
        let to = Bench::bare_folder().await;
        restore(folder.path(), &to).await.expect("restored");
        for used in to.registry.blob_uses().await.expect("uses") {
            assert!(to.has(&used.digest).await, "{used:?}");
        }
    }
    busy.abort();
}

async fn cancel(bench: &Bench, job: &JobId, now_ms: u64) {
    bench.registry.cancel(job, now_ms).await.expect("cancelled");
}
