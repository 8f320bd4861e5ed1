use std::{
    io,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Stdio},
};

use sextant_types::ErrorKind;
use tempfile::TempDir;

use super::*;

async fn fresh() -> (crate::conformance::Store, TempDir) {
    let (store, folder) = limited(None);
    (Arc::new(store), folder)
}

fn limited(max_bytes: Option<u64>) -> (LocalStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path().join("store"), max_bytes).unwrap();
    (store, folder)
}

fn path(path: &str) -> ObjectPath {
    ObjectPath::parse(path).unwrap()
}

fn root(folder: &TempDir) -> PathBuf {
    folder.path().join("store")
}

fn temporary_files(folder: &TempDir) -> usize {
    fs::read_dir(root(folder).join("tmp")).unwrap().count()
}

mod conforms {
    use super::fresh;

    crate::bind_object_conformance!(fresh());
}

mod conforms_with_a_limit {
    use super::*;

    crate::bind_object_conformance!(async {
        let (store, folder) = limited(Some(64 << 20));
        (Arc::new(store) as crate::conformance::Store, folder)
    });
}

#[tokio::test]
async fn a_damaged_blob_is_reported_and_healed() {
    let (store, folder) = limited(None);
    let bytes = Bytes::from_static(b"weights");
    let digest = store.put_blob(bytes.clone()).await.unwrap();
    let name = digest.to_string();
    let file = root(&folder).join("blobs").join(&name[..2]).join(&name);
    for damage in [&b"weighty"[..], b"weight", b""] {
        fs::write(&file, damage).unwrap();
        let read = store.get_blob(&digest).await;
        let Err(Error::Corrupt { expected, actual }) = read else {
            panic!("{read:?}");
        };
        assert_eq!((expected, actual), (digest, digest_of(damage)));
        assert_eq!(store.put_blob(bytes.clone()).await.unwrap(), digest);
        assert_eq!(store.get_blob(&digest).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn the_limit_counts_what_is_stored_and_nothing_else() {
    let (store, folder) = limited(Some(100));
    store.put(&path("a"), vec![1; 60].into()).await.unwrap();
    let full = store.put(&path("b"), vec![2; 41].into()).await.unwrap_err();
    assert!(matches!(full, Error::StorageFull { source: None, .. }));
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert_eq!(store.stat(&path("b")).await.unwrap(), None);
    assert_eq!((store.used_bytes(), temporary_files(&folder)), (60, 0));
    let room = store.room().expect("it counts");
    assert_eq!((room.stored_bytes, room.free_bytes), (60, 40));
    let blob = store.put_blob(vec![3; 41].into()).await;
    assert!(matches!(blob, Err(Error::StorageFull { .. })), "{blob:?}");
    store.put(&path("b"), vec![2; 40].into()).await.unwrap();
    store.put(&path("a"), vec![1; 0].into()).await.unwrap();
    assert_eq!(store.used_bytes(), 40);
    let blob = store.put_blob(vec![3; 41].into()).await.unwrap();
    assert!(store.delete(&path("b")).await.unwrap());
    assert_eq!(store.used_bytes(), 41);
    assert!(store.delete_blob(&blob).await.unwrap());
    assert_eq!(store.used_bytes(), 0);
}

#[tokio::test]
async fn a_stream_over_the_limit_gives_its_room_back() {
    let (store, folder) = limited(Some(5 << 20));
    let piece = Bytes::from(vec![7; 1 << 20]);
    let pieces = || -> ByteStream<'static> {
        let piece = piece.clone();
        Box::pin(futures::stream::iter(
            (0..9).map(move |_| Ok(piece.clone())),
        ))
    };
    let full = store.put_stream(&path("large"), pieces()).await;
    assert!(matches!(full, Err(Error::StorageFull { .. })), "{full:?}");
    let full = store.put_blob_stream(pieces()).await;
    assert!(matches!(full, Err(Error::StorageFull { .. })), "{full:?}");
    assert_eq!((store.used_bytes(), temporary_files(&folder)), (0, 0));
}

#[tokio::test]
async fn what_is_stored_is_counted_at_opening() {
    let (store, folder) = limited(None);
    store.put(&path("a/b"), vec![1; 10].into()).await.unwrap();
    store.put_blob(vec![2; 20].into()).await.unwrap();
    let again = LocalStore::open(root(&folder), Some(31)).unwrap();
    assert_eq!(again.used_bytes(), 30);
    assert!(again.put(&path("c"), vec![3; 2].into()).await.is_err());
    again.put(&path("c"), vec![3; 1].into()).await.unwrap();
}

#[test]
fn the_systems_ways_of_being_full_are_told_as_such() {
    use rustix::io::Errno;
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
        let error = Fault::from(io::Error::from(errno)).on_write("x");
        assert_eq!(error.code(), sextant_types::Code::StorageFull, "{errno}");
    }
    let other = Fault::from(io::Error::from(Errno::IO)).on_write("x");
    assert_eq!(other.code(), sextant_types::Code::Internal);
}

#[tokio::test]
async fn links_lead_nowhere() {
    let (store, folder) = limited(None);
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let files = root(&folder).join("files");
    symlink(&outside, files.join("dir")).unwrap();
    symlink(outside.join("secret"), files.join("file")).unwrap();
    symlink(outside.join("new"), files.join("dangling")).unwrap();
    for name in ["dir/secret", "file", "dangling"] {
        let read = store.get(&path(name)).await;
        assert!(
            matches!(read, Err(Error::InvalidPath(_))),
            "{name}: {read:?}"
        );
        assert!(store.stat(&path(name)).await.is_err(), "{name}");
        assert!(store.delete(&path(name)).await.is_err(), "{name}");
    }
    for name in ["dir/new", "dir/sub/new", "dir/secret"] {
        let put = store.put(&path(name), "x".into()).await;
        assert!(matches!(put, Err(Error::InvalidPath(_))), "{name}: {put:?}");
    }
    let listed = store.list(&ListRequest::prefix("")).await.unwrap();
    assert_eq!(listed.objects, []);
    // A link in a file's place is replaced by the file; its target stays.
    store.put(&path("file"), "mine".into()).await.unwrap();
    store.put(&path("dangling"), "mine".into()).await.unwrap();
    assert_eq!(store.get(&path("file")).await.unwrap(), "mine");
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_path_is_an_object_or_a_folder() {
    let (store, folder) = limited(None);
    store.put(&path("a/b"), "x".into()).await.unwrap();
    for name in ["a", "a/b/c", "a/b/c/d"] {
        let put = store.put(&path(name), "y".into()).await;
        assert!(matches!(put, Err(Error::InvalidPath(_))), "{name}: {put:?}");
    }
    assert_eq!(store.get(&path("a/b")).await.unwrap(), "x");
    assert_eq!((store.used_bytes(), temporary_files(&folder)), (1, 0));
}

#[tokio::test]
async fn a_folder_whose_files_were_deleted_makes_room_for_an_object() {
    let (store, folder) = limited(None);
    for name in ["a/b/c", "a/d"] {
        store.put(&path(name), "x".into()).await.unwrap();
    }
    assert!(store.delete(&path("a/b/c")).await.unwrap());
    let files = root(&folder).join("files");
    assert!(!files.join("a/b").exists() && files.join("a").exists());
    let put = store.put(&path("a"), "y".into()).await;
    assert!(matches!(put, Err(Error::InvalidPath(_))), "{put:?}");
    assert_eq!(store.get(&path("a/d")).await.unwrap(), "x");
    assert!(store.delete(&path("a/d")).await.unwrap());
    assert!(!files.join("a").exists());
    // Earlier versions left folders.
    fs::create_dir_all(files.join("a/b")).unwrap();
    store.put(&path("a"), "y".into()).await.unwrap();
    assert_eq!(store.get(&path("a")).await.unwrap(), "y");
    assert_eq!((store.used_bytes(), temporary_files(&folder)), (1, 0));
    // Files that are not the store's stay.
    store.put(&path("b/c"), "x".into()).await.unwrap();
    symlink(folder.path(), root(&folder).join("files/b/link")).unwrap();
    assert!(store.delete(&path("b/c")).await.unwrap());
    let put = store.put(&path("b"), "y".into()).await;
    assert!(matches!(put, Err(Error::InvalidPath(_))), "{put:?}");
    assert!(root(&folder).join("files/b/link").is_symlink());
}

#[tokio::test]
async fn folders_that_go_keep_no_file_from_coming() {
    let (store, folder) = limited(None);
    let beside = LocalStore::open_beside(root(&folder)).unwrap();
    let writers = (0..4).map(|writer| {
        let store = if writer % 2 == 0 { &store } else { &beside }.clone();
        tokio::spawn(async move {
            let name = path(&format!("a/b/{writer}"));
            for _ in 0..50 {
                store.put(&name, "x".into()).await.unwrap();
                let found = store.list(&ListRequest::prefix("a/")).await.unwrap();
                assert!(found.objects.iter().any(|it| it.path == name));
                assert!(store.delete(&name).await.unwrap());
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(!root(&folder).join("files/a").exists());
}

#[tokio::test]
async fn devices_and_pipes_are_no_objects() {
    let (store, folder) = limited(None);
    let pipe = root(&folder).join("files/pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let read = store.get(&path("pipe")).await;
    assert!(matches!(read, Err(Error::NotFound { .. })), "{read:?}");
    assert_eq!(store.stat(&path("pipe")).await.unwrap(), None);
}

#[tokio::test]
async fn leftovers_of_the_dead_go_and_files_of_the_living_stay() {
    let (store, folder) = limited(None);
    let leftover = root(&folder).join("tmp/leftover");
    let name = path("slow");
    let (reached, waiting) = tokio::sync::oneshot::channel::<()>();
    let (go_on, gate) = tokio::sync::oneshot::channel::<()>();
    let slow = futures::stream::once(async move {
        reached.send(()).unwrap();
        gate.await.unwrap();
        Ok(Bytes::from_static(b"whole"))
    });
    let put = tokio::spawn({
        let (store, name) = (store.clone(), name.clone());
        async move { store.put_stream(&name, Box::pin(slow)).await }
    });
    waiting.await.unwrap();
    let open = |beside| match beside {
        true => LocalStore::open_beside(root(&folder)),
        false => LocalStore::open(root(&folder), None),
    };
    for beside in [true, false] {
        fs::write(&leftover, "half").unwrap();
        assert_eq!(temporary_files(&folder), 2);
        open(beside).unwrap();
        assert!(!leftover.exists());
        assert_eq!(temporary_files(&folder), 1);
    }
    let other = open(true).unwrap();
    go_on.send(()).unwrap();
    put.await.unwrap().unwrap();
    assert_eq!(other.get(&name).await.unwrap(), "whole");
    assert_eq!(temporary_files(&folder), 0);
}

#[test]
fn a_root_that_cannot_be_made_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for root in [file.clone(), file.join("below")] {
        let opened = LocalStore::open(&root, None);
        assert!(opened.is_err(), "{root:?}");
    }
}

const CHILD: &str = "SEXTANT_OBJECTS_TEST_CHILD";

/// Not a test: this runs in the process that the next test kills.
#[tokio::test]
async fn child_writes_until_killed() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    let store = LocalStore::open(root, None).unwrap();
    println!("ready");
    for round in 0u64.. {
        let fill = (round % 251) as u8;
        let bytes = vec![fill; 200_000 + usize::from(fill)];
        store
            .put(&path("file"), bytes.clone().into())
            .await
            .unwrap();
        store.put_blob(bytes.into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_writer_leaves_whole_objects_only() {
    let (_, folder) = limited(None);
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "local::tests::child_writes_until_killed",
                "--nocapture",
            ])
            .env(CHILD, root(&folder))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Until the child has written something; then kills it at any point.
        while !root(&folder).join("files/file").exists() {
            tokio::task::yield_now().await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = LocalStore::open(root(&folder), None).unwrap();
        assert_eq!(temporary_files(&folder), 0);
        let file = store.get(&path("file")).await.unwrap();
        assert_eq!(file.len(), 200_000 + usize::from(file[0]));
        assert!(file.iter().all(|byte| *byte == file[0]));
        for shard in fs::read_dir(root(&folder).join("blobs")).unwrap() {
            for blob in fs::read_dir(shard.unwrap().path()).unwrap() {
                let name = blob.unwrap().file_name().into_string().unwrap();
                store.get_blob(&name.parse().unwrap()).await.unwrap();
            }
        }
        assert!(store.delete(&path("file")).await.unwrap());
    }
}

#[test]
fn a_root_is_closed_to_others() {
    let mode = |folder: &TempDir| fs::metadata(root(folder)).unwrap().permissions().mode() & 0o777;
    let (store, folder) = limited(None);
    assert_eq!(mode(&folder), 0o700);
    drop(store);
    fs::set_permissions(root(&folder), Permissions::from_mode(0o755)).unwrap();
    LocalStore::open_beside(root(&folder)).unwrap();
    assert_eq!(mode(&folder), 0o755, "it is another process's");
    LocalStore::open(root(&folder), None).unwrap();
    assert_eq!(mode(&folder), 0o750);
}

#[tokio::test]
async fn a_store_whose_folder_was_removed_says_so_and_that_nothing_is_missing() {
    for removed in ["", "tmp", "blobs", "files"] {
        let (store, folder) = limited(None);
        let bytes = Bytes::from_static(b"weights");
        store.put(&path("a"), bytes.clone()).await.unwrap();
        let digest = store.put_blob(bytes.clone()).await.unwrap();
        fs::remove_dir_all(root(&folder).join(removed)).unwrap();
        let outcomes = [
            store.put(&path("b"), bytes.clone()).await.err(),
            store.put_blob(bytes).await.err(),
            store.get(&path("a")).await.err(),
            store.get_blob(&digest).await.err(),
            store.stat(&path("a")).await.err(),
            store.stat_blob(&digest).await.err(),
            store.list(&ListRequest::prefix("")).await.err(),
            store.delete(&path("a")).await.err(),
        ];
        for (at, error) in outcomes.iter().enumerate() {
            let is_lost = matches!(error, Some(Error::Lost { .. }));
            assert!(is_lost, "call {at} without `{removed}`: {error:?}");
            let kind = error.as_ref().map(Error::kind);
            assert_eq!(kind, Some(ErrorKind::Unavailable));
        }
    }
}
