//! Reads the answers of a measuring process, within limits.

use std::{
    io::{BufRead, Read},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use sextant_isolation::frame;

use super::protocol::Answer;

/// Longest answer: the labels for a set without labels are the longest.
const MOST_ANSWER_BYTES: u64 = 256 << 20;

/// A child's answer and the files after it.
pub(super) struct Reply {
    pub(super) answer: Answer,
    pub(super) files: Vec<Bytes>,
}

/// The next answer; `None` at the end. Libraries may print something between two answers.
pub(super) fn next(from: &mut impl BufRead, most_made: &AtomicU64) -> Option<Reply> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = from.take(MOST_ANSWER_BYTES).read_until(b'\n', &mut line);
        let is_whole = read.is_ok_and(|_| line.last() == Some(&b'\n'));
        if !is_whole {
            return None;
        }
        if let Ok(answer) = serde_json::from_slice(&line) {
            let files = files(&answer, from, most_made.load(Ordering::Acquire))?;
            return Some(Reply { answer, files });
        }
    }
}

/// The files after an answer; `None` if they are larger than expected, or cut short.
fn files(answer: &Answer, from: &mut impl Read, most: u64) -> Option<Vec<Bytes>> {
    let Answer::Rewritten(rewritten) = answer else {
        return Some(Vec::new());
    };
    let lengths = rewritten.files.iter().flatten();
    let all = lengths
        .clone()
        .fold(0, |all: u64, it| all.saturating_add(*it));
    if all > most {
        return None;
    }
    lengths
        .map(|length| frame::read_whole(from, *length).ok())
        .collect()
}
