use std::time::Duration;

use bytes::Bytes;
use sextant_objects::{ByteStream, ObjectPath};
use sextant_objects_s3::{Credentials, S3Config, S3Store, Secret};
use sextant_test_servers::s3::S3;

/// Size of the parts in the tests.
pub const PART_BYTES: usize = 5 << 20;

/// How long an answer may take where some do not come: short for those, and enough on a busy machine for the others.
pub const HASTE: Duration = Duration::from_millis(500);

pub fn config(server: &S3) -> S3Config {
    S3Config {
        prefix: "some/fleet/".into(),
        endpoint: Some(server.endpoint()),
        path_style: true,
        credentials: Credentials::Given {
            access_key: server.access_key().into(),
            secret_key: Secret::new(server.secret_key()),
        },
        max_attempts: 10,
        backoff: Duration::from_millis(2),
        max_backoff: Duration::from_millis(20),
        part_bytes: PART_BYTES,
        ..S3Config::new(server.bucket())
    }
}

pub async fn start() -> (S3Store, S3) {
    start_with(|_| {}).await
}

pub async fn start_with(adjust: impl FnOnce(&mut S3Config)) -> (S3Store, S3) {
    let server = S3::start();
    let mut config = config(&server);
    adjust(&mut config);
    let store = S3Store::open(config).await.expect("the bucket is there");
    (store, server)
}

pub fn path(path: &str) -> ObjectPath {
    ObjectPath::parse(path).expect("a valid path")
}

/// Bytes without repetition, so that a piece in the wrong place is noticed.
pub fn content(seed: u64, bytes: usize) -> Bytes {
    let words = (0..bytes as u64 / 8 + 1).map(|index| {
        // An odd multiplier and a shift: cheap, and all words of a seed differ.
        let word = (seed << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ (word >> 29)
    });
    let mut content: Vec<u8> = Vec::with_capacity(bytes + 8);
    words.for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
    content.truncate(bytes);
    content.into()
}

/// The bytes in pieces whose size does not divide a part.
pub fn stream(bytes: &Bytes) -> ByteStream<'static> {
    let pieces: Vec<_> = bytes
        .chunks(777_777)
        .map(|piece| Ok(bytes.slice_ref(piece)))
        .collect();
    Box::pin(futures::stream::iter(pieces))
}
