//! Keeping what was given: whoever comes first writes for all who wait.
//!
//! A transaction costs a flush of the disk, whatever is in it. So items wait while another transaction is made, and
//! the next one has all of them: the more come, the more share one.

use parking_lot::Mutex;
use sextant_registry::{Fate, Feedback};
use sextant_types::Code;
use tokio::sync::oneshot;

use crate::{ApiState, problem::Problem};

/// Most rows that wait to be written.
const MOST_WAITING: usize = 200_000;

/// Most rows of one transaction.
const MOST_AT_ONCE: usize = 20_000;

/// Rows on their way into the registry.
#[derive(Default)]
pub struct Intake {
    waiting: Mutex<Vec<Waiting>>,
    /// Held by whoever writes.
    writing: tokio::sync::Mutex<()>,
}

/// What one request gives.
struct Waiting {
    rows: Vec<Feedback>,
    done: oneshot::Sender<Result<Vec<Fate>, Problem>>,
}

// === impl Intake ===

impl Intake {
    /// Keeps rows, none of which is of the same row, query and kind as another, and tells what became of each. What was
    /// told is durable.
    pub async fn keep(&self, state: &ApiState, rows: Vec<Feedback>) -> Result<Vec<Fate>, Problem> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let told = self.queue(rows)?;
        let writer = state.clone();
        // To its end, even where this client goes: the rows of others are among them.
        let written = async move { writer.intake().write(&writer).await };
        state.changes().make(written).await?;
        told.await.unwrap_or_else(|_| {
            let detail = "the feedback was not written: send it again";
            Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000))
        })
    }

    fn queue(
        &self,
        rows: Vec<Feedback>,
    ) -> Result<oneshot::Receiver<Result<Vec<Fate>, Problem>>, Problem> {
        let (done, told) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let count: usize = waiting.iter().map(|it| it.rows.len()).sum();
        if count + rows.len() > MOST_WAITING {
            let detail = format!("`{count}` rows of feedback wait to be written");
            return Err(Problem::new(Code::Overloaded, detail).retry_after_ms(1000));
        }
        waiting.push(Waiting { rows, done });
        Ok(told)
    }

    /// Writes what waits, until nothing does.
    async fn write(&self, state: &ApiState) {
        let _writing = self.writing.lock().await;
        loop {
            let batch = self.next();
            if batch.is_empty() {
                return;
            }
            write(state, batch).await;
        }
    }

    /// What the next transaction has. Two requests that speak of the same row are in two.
    fn next(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let (mut rows, mut keys, mut until) = (0, std::collections::HashSet::new(), 0);
        for one in waiting.iter() {
            rows += one.rows.len();
            let is_further = until > 0;
            let is_apart = one.rows.iter().all(|row| {
                let (query, at, kind) = row.key();
                keys.insert((query.to_owned(), at, kind))
            });
            if is_further && (rows > MOST_AT_ONCE || !is_apart) {
                break;
            }
            until += 1;
        }
        waiting.drain(..until).collect()
    }
}

async fn write(state: &ApiState, batch: Vec<Waiting>) {
    let counts: Vec<usize> = batch.iter().map(|it| it.rows.len()).collect();
    let (rows, told): (Vec<Vec<Feedback>>, Vec<_>) =
        batch.into_iter().map(|it| (it.rows, it.done)).unzip();
    let rows: Vec<Feedback> = rows.into_iter().flatten().collect();
    let kept = state.registry().give_feedback(&rows).await;
    let kept = kept.map_err(Problem::from);
    let mut from = 0;
    for (done, count) in told.into_iter().zip(counts) {
        let of = match &kept {
            Ok(fates) => Ok(fates[from..from + count].to_vec()),
            Err(problem) => Err(problem.clone()),
        };
        from += count;
        // Whoever has gone does not wait for it.
        drop(done.send(of));
    }
}
