//! The properties that every object store has: one function each, over an empty store.
//!
//! A backend binds them all with [`bind_object_conformance!`](crate::bind_object_conformance).

use std::{io, sync::Arc};

use bytes::Bytes;
use sextant_types::{Digest, ErrorKind, StoreId};

use crate::{ByteStream, Error, ListRequest, ObjectPath, ObjectStore, digest_of};

/// A store under test.
pub type Store = Arc<dyn ObjectStore>;

/// Makes one `#[tokio::test]` of each property. The argument is an async expression that gives `(store, guard)`: an
/// empty store, and a value that must live as long as the store.
#[macro_export]
macro_rules! bind_object_conformance {
    ($fresh:expr) => {
        $crate::bind_object_conformance!(@each $fresh;
            identity_is_kept
            blob_is_named_by_its_content
            blob_has_a_file_or_none
            blob_put_twice_is_one
            blob_streams_in
            blob_is_read_in_pieces
            missing_blob_is_not_found
            deleted_blob_is_gone
            blobs_are_listed_in_pages
            blob_that_was_stored_again_stays
            file_is_replaced_as_a_whole
            file_streams_in
            broken_stream_stores_nothing
            dropped_stream_stores_nothing
            missing_file_is_not_found
            ranges_are_cut_at_the_end
            listing_is_sorted_and_complete
            listing_pages_join_without_gap_or_duplicate
            deleted_file_is_gone
            concurrent_puts_leave_one_whole_file
        );
    };
    (@each $fresh:expr; $($property:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                let (store, _guard) = $fresh.await;
                $crate::conformance::$property(store).await;
            }
        )*
    };
}

fn path(path: &str) -> ObjectPath {
    ObjectPath::parse(path).expect("a valid path")
}

fn stream(pieces: Vec<io::Result<Bytes>>) -> ByteStream<'static> {
    Box::pin(futures::stream::iter(pieces))
}

fn pieces(count: usize, bytes_each: usize) -> Vec<Bytes> {
    (0..count)
        .map(|index| Bytes::from(vec![index as u8; bytes_each]))
        .collect()
}

fn assert_not_found<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(error @ Error::NotFound { .. }) => assert_eq!(error.kind(), ErrorKind::NotFound),
        other => panic!("{other:?} instead of not found"),
    }
}

/// A store has no identity until it is given one, keeps the last one that it was given, and does not list it among
/// objects.
pub async fn identity_is_kept(store: Store) {
    assert_eq!(store.identity().await.expect("an answer"), None);
    for bits in [7, u128::MAX] {
        let identity = StoreId::from_bits(bits);
        store.set_identity(identity).await.expect("named");
        let kept = store.identity().await.expect("an answer");
        assert_eq!(kept, Some(identity));
    }
    let files = store.list(&ListRequest::prefix("")).await.expect("a page");
    let blobs = store.list_blobs(None, 10).await.expect("a page");
    assert!(files.objects.is_empty() && blobs.blobs.is_empty());
}

/// A blob's name is the SHA-256 of its bytes, also for the empty blob.
pub async fn blob_is_named_by_its_content(store: Store) {
    for bytes in [
        Bytes::new(),
        Bytes::from_static(b"abc"),
        vec![9; 3 << 20].into(),
    ] {
        let digest = store.put_blob(bytes.clone()).await.expect("put");
        assert_eq!(digest, digest_of(&bytes));
        assert!(store.has_blob(&digest).await.expect("has"));
        assert_eq!(store.get_blob(&digest).await.expect("get"), bytes);
    }
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let digest: Digest = known.parse().expect("a digest");
    assert!(
        store.has_blob(&digest).await.expect("has"),
        "SHA-256 of `abc`"
    );
}

/// A blob that has a file on this machine has it beside the scratch folder, and the file holds the blob.
pub async fn blob_has_a_file_or_none(store: Store) {
    let bytes = Bytes::from(vec![3; 2 << 20]);
    let digest = store.put_blob(bytes.clone()).await.expect("put");
    for _ in 0..2 {
        let Some(file) = store.blob_file(&digest).await.expect("looked for") else {
            return;
        };
        assert!(file.is_absolute(), "{}", file.display());
        assert_eq!(std::fs::read(&file).expect("read"), bytes);
        let scratch = store.scratch().expect("files can be linked");
        std::fs::create_dir_all(&scratch).expect("made");
        let link = scratch.join("link");
        std::fs::hard_link(&file, &link).expect("linked");
        assert_eq!(std::fs::read(&link).expect("read"), bytes);
        std::fs::remove_file(link).expect("removed");
    }
    // Files in the scratch folder are no objects.
    let listed = store.list(&ListRequest::prefix("")).await.expect("list");
    assert!(listed.objects.is_empty(), "{listed:?}");
    let missing = store.blob_file(&digest_of(b"nobody")).await;
    assert_not_found(missing);
}

/// Storing the same bytes again, or concurrently, is no error.
pub async fn blob_put_twice_is_one(store: Store) {
    let bytes = Bytes::from(vec![5; 200_000]);
    let puts: Vec<_> = (0..8)
        .map(|_| {
            let (store, bytes) = (store.clone(), bytes.clone());
            tokio::spawn(async move { store.put_blob(bytes).await })
        })
        .collect();
    for put in puts {
        let digest = put.await.expect("the put ran").expect("put");
        assert_eq!(digest, digest_of(&bytes));
    }
    let again = store.put_blob(bytes.clone()).await.expect("put");
    assert_eq!(store.get_blob(&again).await.expect("get"), bytes);
}

/// A streamed blob equals one that is put at once.
pub async fn blob_streams_in(store: Store) {
    let pieces = pieces(50, 70_000);
    let whole = pieces.concat();
    let put = store.put_blob_stream(stream(pieces.into_iter().map(Ok).collect()));
    let put = put.await.expect("put");
    assert_eq!(put.digest, digest_of(&whole));
    assert_eq!(put.size_bytes, whole.len() as u64);
    assert_eq!(store.get_blob(&put.digest).await.expect("get"), whole);
    let empty = store.put_blob_stream(stream(vec![])).await.expect("put");
    assert_eq!(empty.digest, digest_of(b""));
    assert_eq!(
        store.get_blob(&empty.digest).await.expect("get"),
        Bytes::new()
    );
}

/// Pieces of a blob join to the whole, and its size is known in advance.
pub async fn blob_is_read_in_pieces(store: Store) {
    let whole: Bytes = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let digest = store.put_blob(whole.clone()).await.expect("put");
    let size = store.stat_blob(&digest).await.expect("stat");
    assert_eq!(size, Some(400_000));
    let mut joined = Vec::new();
    while joined.len() < whole.len() {
        let start = joined.len() as u64;
        let piece = store.get_blob_range(&digest, start..start + 150_000);
        joined.extend_from_slice(&piece.await.expect("range"));
    }
    assert_eq!(joined, whole);
    let beyond = store.get_blob_range(&digest, 400_001..400_002).await;
    let wanted = matches!(beyond, Err(Error::Range { size: 400_000, .. }));
    assert!(wanted, "{beyond:?}");
}

/// An object that was never stored is reported as not found.
pub async fn missing_blob_is_not_found(store: Store) {
    let digest = digest_of(b"never stored");
    assert!(!store.has_blob(&digest).await.expect("has"));
    assert_eq!(store.stat_blob(&digest).await.expect("stat"), None);
    assert_not_found(store.get_blob(&digest).await);
    assert_not_found(store.get_blob_range(&digest, 0..1).await);
    assert!(!store.delete_blob(&digest).await.expect("delete"));
}

/// A deleted blob is gone, and can be stored again.
pub async fn deleted_blob_is_gone(store: Store) {
    let bytes = Bytes::from_static(b"for a while");
    let digest = store.put_blob(bytes.clone()).await.expect("put");
    assert!(store.delete_blob(&digest).await.expect("delete"));
    assert!(!store.has_blob(&digest).await.expect("has"));
    assert_not_found(store.get_blob(&digest).await);
    store.put_blob(bytes.clone()).await.expect("put");
    assert_eq!(store.get_blob(&digest).await.expect("get"), bytes);
}

/// With pages of any size, all pages together have every blob once, in order, with its size.
pub async fn blobs_are_listed_in_pages(store: Store) {
    let page = store.list_blobs(None, 10).await.expect("list");
    assert_eq!((page.blobs, page.next), (vec![], None));
    store.put(&path("file"), "x".into()).await.expect("put");
    let mut wanted = Vec::new();
    for index in 0..7_usize {
        let digest = store.put_blob(vec![7; index].into()).await.expect("put");
        wanted.push((digest, index as u64));
    }
    wanted.sort_unstable();
    for limit in 1..=wanted.len() + 1 {
        let (mut joined, mut after) = (Vec::new(), None);
        loop {
            let page = store.list_blobs(after.as_ref(), limit).await.expect("list");
            assert!(page.blobs.len() <= limit);
            assert!(page.blobs.iter().all(|blob| blob.stored_ms > 0));
            joined.extend(page.blobs.iter().map(|blob| (blob.digest, blob.size_bytes)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(joined, wanted, "limit {limit}");
    }
}

/// A blob that was stored again since then is not removed as the old one, however it was stored.
pub async fn blob_that_was_stored_again_stays(store: Store) {
    let bytes = Bytes::from(vec![3; 70_000]);
    let digest = store.put_blob(bytes.clone()).await.expect("put");
    for streamed in [false, true] {
        let old = stored_ms(&store).await;
        // Stores may have coarse clocks; some have only seconds.
        while stored_ms(&store).await == old {
            match streamed {
                true => {
                    let again = store.put_blob_stream(stream(vec![Ok(bytes.clone())]));
                    assert_eq!(again.await.expect("put").digest, digest);
                }
                false => assert_eq!(store.put_blob(bytes.clone()).await.expect("put"), digest),
            }
        }
        let deleted = store.delete_blob_stored_by(&digest, old).await;
        assert!(!deleted.expect("delete"));
        assert_eq!(store.get_blob(&digest).await.expect("get"), bytes);
    }
    let now = stored_ms(&store).await;
    let deleted = store.delete_blob_stored_by(&digest, now).await;
    assert!(deleted.expect("delete"));
    assert!(!store.has_blob(&digest).await.expect("has"));
}

async fn stored_ms(store: &Store) -> u64 {
    let page = store.list_blobs(None, 10).await.expect("list");
    page.blobs.first().expect("there is a blob").stored_ms
}

/// A put replaces the whole content, also by something shorter or empty.
pub async fn file_is_replaced_as_a_whole(store: Store) {
    let name = path("jobs/out.jsonl");
    for bytes in ["a long first content", "short", ""] {
        store.put(&name, bytes.into()).await.expect("put");
        assert_eq!(store.get(&name).await.expect("get"), bytes);
        let info = store.stat(&name).await.expect("stat").expect("it exists");
        assert_eq!(
            (info.path, info.size_bytes),
            (name.clone(), bytes.len() as u64)
        );
        assert!(info.modified_ms > 0);
    }
}

/// A streamed file equals one that is put at once.
pub async fn file_streams_in(store: Store) {
    let pieces = pieces(40, 90_000);
    let whole = pieces.concat();
    let name = path("in/large.bin");
    store.put(&name, "earlier".into()).await.expect("put");
    let size = store.put_stream(&name, stream(pieces.into_iter().map(Ok).collect()));
    assert_eq!(size.await.expect("put"), whole.len() as u64);
    assert_eq!(store.get(&name).await.expect("get"), whole);
}

/// If the stream fails, the previous content stays.
pub async fn broken_stream_stores_nothing(store: Store) {
    let broken = || {
        let mut pieces: Vec<_> = pieces(30, 100_000).into_iter().map(Ok).collect();
        pieces.push(Err(io::Error::other("the client went away")));
        stream(pieces)
    };
    let (old, new) = (path("old"), path("new"));
    store.put(&old, "kept".into()).await.expect("put");
    for name in [&old, &new] {
        let result = store.put_stream(name, broken()).await;
        assert!(matches!(result, Err(Error::Input { .. })), "{result:?}");
    }
    assert_eq!(store.get(&old).await.expect("get"), "kept");
    assert_eq!(store.stat(&new).await.expect("stat"), None);
    let blob = store.put_blob_stream(broken()).await;
    assert!(matches!(blob, Err(Error::Input { .. })), "{blob:?}");
}

/// If the caller drops the call in the middle of a stream, the previous content stays.
pub async fn dropped_stream_stores_nothing(store: Store) {
    use futures::StreamExt;
    let name = path("given/up");
    let (reached, waiting) = tokio::sync::oneshot::channel::<()>();
    let mut reached = Some(reached);
    let endless = futures::stream::iter(pieces(30, 100_000).into_iter().map(Ok)).chain(
        futures::stream::poll_fn(move |_| {
            drop(reached.take());
            std::task::Poll::Pending
        }),
    );
    {
        let put = store.put_stream(&name, Box::pin(endless));
        tokio::select! {
            result = put => panic!("the stream never ends, yet: {result:?}"),
            _ = waiting => {}
        }
    }
    assert_eq!(store.stat(&name).await.expect("stat"), None);
    let listed = store.list(&ListRequest::prefix("")).await.expect("list");
    assert_eq!(listed.objects, []);
}

/// A file that was never put is reported as not found. A folder is not an object.
pub async fn missing_file_is_not_found(store: Store) {
    store.put(&path("a/b"), "x".into()).await.expect("put");
    for name in ["missing", "a", "a/missing", "no/such/folder", "a/b/c"] {
        let name = path(name);
        assert_not_found(store.get(&name).await);
        assert_not_found(store.get_range(&name, 0..1).await);
        assert_eq!(store.stat(&name).await.expect("stat"), None, "{name}");
        assert!(!store.delete(&name).await.expect("delete"), "{name}");
    }
    assert_eq!(store.get(&path("a/b")).await.expect("get"), "x");
}

/// A range returns the bytes that exist in it. Only a range that begins beyond the end is refused.
pub async fn ranges_are_cut_at_the_end(store: Store) {
    let name = path("digits");
    store.put(&name, "0123456789".into()).await.expect("put");
    for (range, wanted) in [
        (0..10, "0123456789"),
        (2..5, "234"),
        (8..u64::MAX, "89"),
        (10..20, ""),
        (4..4, ""),
    ] {
        let got = store.get_range(&name, range.clone()).await.expect("range");
        assert_eq!(got, wanted, "{range:?}");
    }
    let beyond = store.get_range(&name, 11..12).await;
    let wanted = matches!(
        beyond,
        Err(Error::Range {
            size: 10,
            start: 11,
            ..
        })
    );
    assert!(wanted, "{beyond:?}");
}

/// In the order of their bytes. They are written in another order.
const NAMES: [&str; 9] = [
    "a.b",
    "a/1",
    "a/b/2",
    "a/b0",
    "a0",
    "b-",
    "b/x.parts/00000000.jsonl",
    "b/x.parts/00000001.jsonl",
    "é",
];

async fn put_names(store: &Store) {
    for name in NAMES.iter().rev() {
        store.put(&path(name), (*name).into()).await.expect("put");
    }
    store.put_blob("no file".into()).await.expect("put");
}

/// A listing has every file with the prefix, and no other, in the order of the paths' bytes.
pub async fn listing_is_sorted_and_complete(store: Store) {
    let empty = store.list(&ListRequest::prefix("")).await.expect("list");
    assert_eq!((empty.objects, empty.next), (vec![], None));
    put_names(&store).await;
    for prefix in [
        "",
        "a",
        "a/",
        "a/b",
        "a/b/",
        "b/x.parts/",
        "a.b",
        "c",
        "a/b/2/",
    ] {
        let page = store
            .list(&ListRequest::prefix(prefix))
            .await
            .expect("list");
        let wanted: Vec<_> = NAMES
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        let got: Vec<_> = page.objects.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(got.iter().collect::<Vec<_>>(), wanted, "prefix `{prefix}`");
        assert_eq!(page.next, None);
        for object in &page.objects {
            assert_eq!(object.size_bytes, object.path.as_str().len() as u64);
        }
    }
}

/// With pages of any size, all pages together are the listing.
pub async fn listing_pages_join_without_gap_or_duplicate(store: Store) {
    put_names(&store).await;
    for limit in 1..=NAMES.len() + 1 {
        let mut request = ListRequest {
            limit,
            ..ListRequest::prefix("")
        };
        let mut joined = Vec::new();
        loop {
            let page = store.list(&request).await.expect("list");
            assert!(page.objects.len() <= limit);
            joined.extend(page.objects.into_iter().map(|object| object.path));
            match page.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        let joined: Vec<_> = joined.iter().map(ObjectPath::as_str).collect();
        assert_eq!(joined, NAMES, "limit {limit}");
    }
}

/// A deleted file is gone, and others stay.
pub async fn deleted_file_is_gone(store: Store) {
    let (gone, stays) = (path("dir/gone"), path("dir/stays"));
    for name in [&gone, &stays] {
        store.put(name, "x".into()).await.expect("put");
    }
    assert!(store.delete(&gone).await.expect("delete"));
    assert!(!store.delete(&gone).await.expect("delete"));
    assert_not_found(store.get(&gone).await);
    assert_eq!(store.get(&stays).await.expect("get"), "x");
    store.put(&gone, "again".into()).await.expect("put");
    assert_eq!(store.get(&gone).await.expect("get"), "again");
}

/// Readers concurrent with many writers see one writer's whole content, never a mixture.
pub async fn concurrent_puts_leave_one_whole_file(store: Store) {
    const WRITERS: u8 = 6;
    let name = path("contended");
    store
        .put(&name, vec![0; 100_000].into())
        .await
        .expect("put");
    let writers: Vec<_> = (1..=WRITERS)
        .map(|writer| {
            let (store, name) = (store.clone(), name.clone());
            tokio::spawn(async move {
                let size = 50_000 + usize::from(writer);
                store
                    .put(&name, vec![writer; size].into())
                    .await
                    .expect("put");
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let seen = store.get(&name).await.expect("get");
        assert!(seen.iter().all(|byte| *byte == seen[0]), "a mixture");
    }
    for writer in writers {
        writer.await.expect("the writer ran");
    }
    let last = store.get(&name).await.expect("get");
    assert!((1..=WRITERS).contains(&last[0]));
    assert_eq!(last.len(), 50_000 + usize::from(last[0]));
}
