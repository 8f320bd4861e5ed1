//! Archives of arrays (`.npz`) in the artefact store. Their members are stored without compression, so that they can be
//! read by ranges.

use sextant_formats::zip::{
    self, End, Entry, LARGE_END_BYTES, LOCAL_BYTES, MAX_DIRECTORY_BYTES, Method, TAIL_BYTES,
};
use sextant_objects::ObjectPath;

use crate::{Error, Files};

/// Where a member's bytes are in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// The members of an archive, in the order of its directory.
pub(crate) async fn members(
    files: &Files,
    path: &ObjectPath,
    size: u64,
) -> Result<Vec<Member>, Error> {
    let broken =
        |reason: &str| Error::input(path, format!("it is not a readable archive: {reason}"));
    let get = async |start: u64, bytes: u64| {
        let range = start..start.saturating_add(bytes);
        files.get_range(path, range).await
    };
    let tail = get(size.saturating_sub(TAIL_BYTES), TAIL_BYTES.min(size)).await?;
    let (start, bytes) = match End::find(&tail).ok_or_else(|| broken("it has no directory"))? {
        End::Here { start, bytes } => (start, bytes),
        End::Large { at } => {
            let end = get(at, LARGE_END_BYTES).await?;
            zip::large_end(&end).ok_or_else(|| broken("its directory is damaged"))?
        }
    };
    if bytes > MAX_DIRECTORY_BYTES || start.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(broken("its directory is damaged or over 16 MiB"));
    }
    let directory = get(start, bytes).await?;
    let entries = zip::entries(&directory).ok_or_else(|| broken("its directory is damaged"))?;
    let mut members = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.method != Method::Stored || entry.encrypted {
            let advice =
                "its members are compressed: save it with `numpy.savez`, not `savez_compressed`";
            return Err(Error::input(path, advice));
        }
        let at = entry.header_at;
        let local = get(at, LOCAL_BYTES).await?;
        let start = Entry::header_bytes(&local)
            .and_then(|bytes| at.checked_add(bytes))
            .filter(|start| {
                let end = start.checked_add(entry.bytes);
                end.is_some_and(|end| end <= size)
            })
            .ok_or_else(|| broken("a member lies beyond its end"))?;
        members.push(Member {
            name: entry.name,
            start,
            bytes: entry.bytes,
        });
    }
    Ok(members)
}
