//! The places of queries in flight, and how many of them one application may have.
//!
//! An application whose queries pile up must not take the places of all others. Each application may have four times as
//! many places as are free (the dynamic thresholds of Choudhury and Hahne, IEEE/ACM ToN 1998). A single application
//! gets four fifths of all places; if two pile up, each gets four ninths, and a third one still finds free places.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use sextant_types::{ApplicationId, Code};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::Problem;

/// Ratio of the places that one application may have to the free places.
const TIMES_FREE: usize = 4;

/// Places that an application may always have: if there are only a few places, the first to come gets them.
const ANYWAY: usize = 2;

/// All places.
#[derive(Debug)]
pub struct Places {
    most: usize,
    free: Semaphore,
    /// Places by application; `None` for queries whose application is not known.
    taken: Mutex<HashMap<Option<ApplicationId>, usize>>,
}

/// One place, counted for an application.
#[derive(Debug)]
pub struct Share<'a> {
    places: &'a Places,
    application: Option<ApplicationId>,
}

// === impl Places ===

impl Places {
    /// `most` free places.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            free: Semaphore::new(most),
            taken: Mutex::default(),
        }
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.most.saturating_sub(self.free.available_permits())
    }

    /// Places that are taken, by application.
    pub(crate) fn by_application(&self) -> Vec<(Option<ApplicationId>, usize)> {
        let taken = self.lock();
        taken
            .iter()
            .map(|(id, count)| (id.clone(), *count))
            .collect()
    }

    /// Takes a place before the query's application is known.
    pub fn take(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.free.try_acquire().map_err(|_| {
            let most = self.most;
            refusal(format!("`{most}` queries are in flight already"))
        })
    }

    /// Counts a taken place for an application; refuses if the other applications need the rest.
    pub fn count(&self, application: Option<ApplicationId>) -> Result<Share<'_>, Problem> {
        let free = self.free.available_permits();
        let mut taken = self.lock();
        let has = taken.entry(application.clone()).or_default();
        if *has >= TIMES_FREE * free + ANYWAY {
            let (has, most) = (*has, self.most);
            let of = application.map_or("what is unknown".to_owned(), |it| format!("`{it}`"));
            return Err(refusal(format!(
                "`{has}` queries of {of} are in flight already, and what is left of `{most}` places is kept for other applications"
            )));
        }
        *has += 1;
        drop(taken);
        Ok(Share {
            places: self,
            application,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<ApplicationId>, usize>> {
        self.taken.lock()
    }
}

fn refusal(detail: String) -> Problem {
    Problem::new(Code::Overloaded, detail).retry_after_ms(100)
}

// === impl Share ===

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(has) = taken.get_mut(&self.application) {
            *has -= 1;
            if *has == 0 {
                taken.remove(&self.application);
            }
        }
    }
}
