//! Writes feedback: one request writes the rows of all that wait.
//!
//! A transaction costs a flush of the disk, however many rows it has. So rows wait while another transaction is made,
//! and the next transaction has all of them: the more requests come, the more of them share one. A request writes until
//! its own rows are written, and leaves later rows to the requests that brought them.

use parking_lot::Mutex;
use sextant_registry::{Fate, Feedback};
use sextant_types::Code;
use tokio::sync::oneshot;

use crate::{ApiState, problem::Problem};

/// Most rows that wait to be written.
const MOST_WAITING: usize = 200_000;

/// Most rows of one transaction.
const MOST_AT_ONCE: usize = 20_000;

/// Rows that wait to be written into the registry.
#[derive(Default)]
pub struct Intake {
    queue: Mutex<Queue>,
    /// Held by the request that writes.
    writing: tokio::sync::Mutex<()>,
}

/// The waiting rows, in the order of their arrival.
#[derive(Default)]
struct Queue {
    waiting: Vec<QueuedRows>,
    /// Number of requests that have queued rows, and of those whose rows were taken to be written.
    came: u64,
    taken: u64,
}

/// Receives the fates of the rows of one request.
type FateReceiver = oneshot::Receiver<Result<Vec<Fate>, Problem>>;

/// The rows of one request.
struct QueuedRows {
    rows: Vec<Feedback>,
    done: oneshot::Sender<Result<Vec<Fate>, Problem>>,
}

// === impl Intake ===

impl Intake {
    /// Writes rows and returns the fate of each. No two of them may have the same row, query and kind. When this
    /// returns, the rows are durable.
    pub async fn keep(&self, state: &ApiState, rows: Vec<Feedback>) -> Result<Vec<Fate>, Problem> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let (number, told) = self.queue(rows)?;
        let writer = state.clone();
        // It runs to its end even if this client goes: the rows of others are among those that it writes.
        let written = async move {
            let state = &writer;
            let each = |batch| write(state, batch);
            state.intake().write(number, each).await;
        };
        state.changes().make(written).await?;
        told.await.unwrap_or_else(|_| {
            let detail = "the feedback was not written: send it again";
            Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000))
        })
    }

    /// Queues rows, and returns the request's number and the receiver of the fates.
    fn queue(&self, rows: Vec<Feedback>) -> Result<(u64, FateReceiver), Problem> {
        let (done, told) = oneshot::channel();
        let mut queue = self.queue.lock();
        let count: usize = queue.waiting.iter().map(|it| it.rows.len()).sum();
        if count + rows.len() > MOST_WAITING {
            let detail = format!("`{count}` rows of feedback wait to be written");
            return Err(Problem::new(Code::Overloaded, detail).retry_after_ms(1000));
        }
        queue.waiting.push(QueuedRows { rows, done });
        queue.came += 1;
        Ok((queue.came, told))
    }

    /// Writes waiting rows until those of request `number` are written.
    async fn write<F: Future<Output = ()>>(
        &self,
        number: u64,
        each: impl Fn(Vec<QueuedRows>) -> F,
    ) {
        let _writing = self.writing.lock().await;
        while let Some(batch) = self.next(number) {
            each(batch).await;
        }
    }

    /// The rows of the next transaction; `None` if those of request `number` were taken already. Two requests about the
    /// same row go into two transactions.
    fn next(&self, number: u64) -> Option<Vec<QueuedRows>> {
        let mut queue = self.queue.lock();
        if queue.taken >= number {
            return None;
        }
        let (mut rows, mut keys, mut until) = (0, std::collections::HashSet::new(), 0);
        for one in &queue.waiting {
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
        queue.taken += until as u64;
        Some(queue.waiting.drain(..until).collect())
    }
}

async fn write(state: &ApiState, batch: Vec<QueuedRows>) {
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
        // A client that has gone does not wait for the fates.
        drop(done.send(of));
    }
}

#[cfg(test)]
mod tests {
    use sextant_feedback::Kind;
    use sextant_types::{ApplicationId, ModelId, VariantId};

    use super::*;

    fn row(query: usize) -> Feedback {
        Feedback {
            query: format!("q{query}"),
            row: 0,
            kind: Kind::Label,
            application: ApplicationId::new("digits").expect("a name"),
            model: ModelId::new("m").expect("a name"),
            version: 0,
            variant: VariantId::new("m-ort").expect("a name"),
            answered_ms: 1,
            given_ms: 2,
            value: "7".to_owned(),
            score: None,
            propensity: 1.0,
            subject: None,
            actor: "anonymous".to_owned(),
        }
    }

    #[tokio::test]
    async fn who_gives_while_others_give_on_is_told_after_its_own_rows() {
        let intake = Intake::default();
        let (first, _told) = intake.queue(vec![row(0)]).expect("room");
        let (second, _told) = intake.queue(vec![row(1)]).expect("room");
        let written = Mutex::new(Vec::new());
        // While each transaction is made, another request arrives.
        let each = |batch: Vec<QueuedRows>| {
            let mut written = written.lock();
            written.push(batch.len());
            assert!(written.len() < 10, "it writes for others without end");
            drop(intake.queue(vec![row(10 + written.len())]));
            std::future::ready(())
        };
        intake.write(first, &each).await;
        assert_eq!(*written.lock(), [2], "both shared a transaction");
        intake.write(second, &each).await;
        assert_eq!(*written.lock(), [2], "its rows were written with the first");
        let (third, _told) = intake.queue(vec![row(2)]).expect("room");
        intake.write(third, &each).await;
        assert_eq!(*written.lock(), [2, 2], "with those that came meanwhile");
    }
}
