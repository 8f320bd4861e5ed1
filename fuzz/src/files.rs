//! Input files of offline jobs.

use std::{
    future::Future,
    path::Path,
    sync::{Arc, LazyLock},
};

use sextant_objects::{LocalStore, ObjectPath};
use sextant_records::{Error, Files, Outline, Reader, Record};
use sextant_types::{DataType, Signature, TensorSpec, offline::RecordFormat};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Most records that are read of one file.
const MOST_RECORDS: u64 = 200;

/// A store with its folder, and what its calls run on.
struct Place {
    files: Files,
    runtime: Runtime,
    _folder: TempDir,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let folder = folder();
    let store = LocalStore::open(folder.path().join("objects"), None).expect("a store");
    Place {
        files: Files::new(Arc::new(store)),
        runtime: runtime(),
        _folder: folder,
    }
});

/// A folder that goes with the process, in memory where the machine has such a place.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.expect("a folder for files")
}

/// A runtime on the calling thread.
pub(crate) fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

/// `.npy` or, where the first byte is odd, `.npz`. Whatever can be opened reads the same in pieces of any
/// length.
pub fn record_arrays(bytes: &[u8]) {
    let Some((first, file)) = bytes.split_first() else {
        return;
    };
    let name = if first & 1 == 0 { "a.npy" } else { "a.npz" };
    let two = first & 2 != 0;
    read_in_pieces(name, file, &signature(types(first >> 2), two));
}

/// Lines of JSON. A line that cannot be read fails alone.
pub fn record_lines(bytes: &[u8]) {
    let Some((first, file)) = bytes.split_first() else {
        return;
    };
    read_in_pieces(
        "a.jsonl",
        file,
        &signature(types(first >> 2), first & 2 != 0),
    );
}

fn types(index: u8) -> DataType {
    let types = [
        DataType::Fp32,
        DataType::Fp64,
        DataType::Int64,
        DataType::Uint8,
        DataType::Bool,
        DataType::Fp16,
        DataType::Int8,
        DataType::Uint64,
    ];
    types[usize::from(index) % types.len()]
}

/// A batched model with one input or two.
fn signature(data_type: DataType, two: bool) -> Signature {
    let spec = |name: &str, columns| TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: vec![None, columns],
    };
    let mut inputs = vec![spec("x", Some(2))];
    inputs.extend(two.then(|| spec("y", None)));
    Signature {
        inputs,
        outputs: vec![spec("z", Some(1))],
        batched: true,
    }
}

fn read_in_pieces(name: &str, file: &[u8], signature: &Signature) {
    let path = ObjectPath::parse(name).expect("a path");
    let format = RecordFormat::of_path(name).expect("a known suffix");
    let place = &*PLACE;
    block_on(async {
        let put = place.files.put(&path, file.to_vec().into()).await;
        put.expect("the store takes a file");
        let outline = match Outline::scan(&place.files, &path, format, signature).await {
            Ok(outline) => outline,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let singly = read(&path, &outline, signature, 1).await;
        let by_seven = read(&path, &outline, signature, 7).await;
        match (singly, by_seven) {
            (Ok(singly), Ok(by_seven)) => assert_eq!(text(&singly), text(&by_seven)),
            (Err(_), Err(_)) => {}
            (singly, by_seven) => panic!("{:?} and {:?}", singly.err(), by_seven.err()),
        }
    });
}

/// Records to compare; NaN equals NaN here.
fn text(records: &[Record]) -> String {
    format!("{records:?}")
}

async fn read(
    path: &ObjectPath,
    outline: &Outline,
    signature: &Signature,
    piece: u32,
) -> Result<Vec<Record>, Error> {
    let mut reader = Reader::open(&PLACE.files, path, outline, signature, 0).await?;
    let mut records = Vec::new();
    let mut left = outline.records.min(MOST_RECORDS);
    while left > 0 {
        let count = left.min(u64::from(piece)) as u32;
        records.extend(reader.read(count).await?);
        left -= u64::from(count);
    }
    Ok(records)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    PLACE.runtime.block_on(future)
}
