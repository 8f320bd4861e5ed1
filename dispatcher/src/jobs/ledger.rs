//! Which claim of a job wrote what: the names of its parts, and what is stored beside them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_objects::{InvalidPath, ObjectPath};
use sextant_records::Files;
use sextant_registry::{Job, JobState, Registry};
use sextant_types::{Code, JobId, offline::parts_folder};

use super::{plan::Plan, stop::Stop};

/// The most leftovers of other jobs that are examined.
const MOST_LEFTOVERS: usize = 10_000;

/// The claims of a job, up to this runner's own claim.
pub(crate) struct Ledger {
    files: Files,
    folder: String,
    /// The number of the own claim.
    number: u32,
    /// The claims that wrote something, in order of their numbers.
    claims: Vec<Claim>,
}

/// The state of the job when a claim began. A claim writes it once, before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Its number: how often the job had been claimed, including this claim.
    number: u32,
    /// Records that had been committed. The claim wrote the parts after them.
    first_record: u64,
    /// The number of the claim that wrote the plan.
    plan: u32,
}

impl Ledger {
    /// Reads what earlier claims of the job wrote.
    pub(crate) async fn open(files: &Files, output: &str, job: &Job) -> Result<Self, Stop> {
        let mut ledger = Self {
            files: files.clone(),
            folder: format!("{}/{}", parts_folder(output), job.id),
            number: job.attempts,
            claims: Vec::new(),
        };
        for number in 1..job.attempts {
            if let Some(claim) = ledger.read::<Claim>(&claim_name(number)).await? {
                ledger.claims.push(claim);
            }
        }
        Ok(ledger)
    }

    /// The plan that the committed records followed. If none are committed, the plan of any earlier
    /// claim. A plan never changes once it is written.
    pub(crate) async fn plan(&self, committed: u64) -> Result<Option<(u32, Plan)>, Stop> {
        let mut claims = self.claims.iter().rev();
        let claim = claims.find(|claim| committed == 0 || claim.first_record < committed);
        let Some(claim) = claim else {
            return Ok(None);
        };
        let plan = self.read(&plan_name(claim.plan)).await?;
        Ok(plan.map(|plan| (claim.plan, plan)))
    }

    /// Stores a new plan under the number of the own claim.
    pub(crate) async fn put_plan(&self, plan: &Plan) -> Result<u32, Stop> {
        self.write(&plan_name(self.number), plan).await?;
        Ok(self.number)
    }

    /// Enters the own claim into the ledger.
    pub(crate) async fn begin(&mut self, first_record: u64, plan: u32) -> Result<(), Stop> {
        let claim = Claim {
            number: self.number,
            first_record,
            plan,
        };
        self.write(&claim_name(self.number), &claim).await?;
        // A job whose parts were lost starts over, so earlier claims no longer count.
        self.claims
            .retain(|earlier| earlier.first_record <= first_record);
        self.claims.push(claim);
        Ok(())
    }

    /// The path of the part for a chunk that begins at `record`.
    pub(crate) fn part(&self, chunk: u64, record: u64) -> Result<ObjectPath, InvalidPath> {
        let mut claims = self.claims.iter().rev();
        let claim = claims.find(|claim| claim.first_record <= record);
        let number = claim.map_or(self.number, |claim| claim.number);
        ObjectPath::parse(&format!("{}/{chunk:08}-{number}.part", self.folder))
    }

    /// Removes everything that the job stored.
    pub(crate) async fn remove(files: &Files, output: &str, job: &JobId) {
        let prefix = format!("{}/{job}/", parts_folder(output));
        remove_below(files, &prefix, |_| true).await;
    }

    async fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, Stop> {
        let path = ObjectPath::parse(&format!("{}/{name}", self.folder))?;
        let bytes = match self.files.get(&path).await {
            Err(sextant_objects::Error::NotFound { .. }) => return Ok(None),
            read => read?,
        };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| {
            let message = format!("`{path}`, which the job keeps, is unreadable: {error}");
            Stop::failed(Code::Internal, message)
        })
    }

    async fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Stop> {
        let path = ObjectPath::parse(&format!("{}/{name}", self.folder))?;
        let text = serde_json::to_vec(value)
            .map_err(|error| Stop::failed(Code::Internal, error.to_string()))?;
        Ok(self.files.put(&path, Bytes::from(text)).await?)
    }
}

fn claim_name(number: u32) -> String {
    format!("claim-{number}.json")
}

fn plan_name(number: u32) -> String {
    format!("plan-{number}.json")
}

/// Removes what ended jobs with the same output left behind. A crash may have come between the end
/// of a job and the removal of its parts.
pub(crate) async fn sweep(files: &Files, registry: &Registry, output: &str, own: &JobId) {
    let prefix = format!("{}/", parts_folder(output));
    let Ok(found) = files.list(&prefix, MOST_LEFTOVERS).await else {
        return;
    };
    let mut owners: Vec<&str> = found
        .iter()
        .filter_map(|info| info.path.as_str().strip_prefix(&prefix)?.split('/').next())
        .collect();
    owners.dedup();
    for owner in owners {
        let over = match JobId::new(owner) {
            Ok(job) if job == *own => false,
            Ok(job) => match registry.job(&job).await {
                Ok(job) => job.state.is_final(),
                Err(sextant_registry::Error::NotFound { .. }) => true,
                Err(_) => false,
            },
            Err(_) => true,
        };
        if over {
            let is_left = |path: &str| path[prefix.len()..].split('/').next() == Some(owner);
            remove_below(files, &prefix, is_left).await;
        }
    }
}

async fn remove_below(files: &Files, prefix: &str, is_meant: impl Fn(&str) -> bool) {
    let found = match files.list(prefix, usize::MAX - 1).await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(prefix, %error, "parts of a job were not removed"),
    };
    for info in found.iter().filter(|info| is_meant(info.path.as_str())) {
        if let Err(error) = files.delete(&info.path).await {
            tracing::warn!(path = %info.path, %error, "a part of a job was not removed");
        }
    }
}

/// Whether nothing more will be done for the job, as far as the registry answers.
pub(crate) async fn is_over(registry: &Registry, job: &JobId) -> bool {
    let state = registry.job(job).await.map(|job| job.state);
    state.is_ok_and(JobState::is_final)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use sextant_objects::LocalStore;
    use sextant_registry::{JobKind, NewJob};
    use sextant_types::{ApplicationId, VariantId};

    use super::*;

    const CHUNK_RECORDS: u64 = 3;

    fn job(attempts: u32) -> Job {
        let application = ApplicationId::new("a").expect("a name");
        let new = NewJob::new(JobKind::Offline, application, serde_json::Value::Null);
        Job {
            id: JobId::new("job").expect("a name"),
            kind: new.kind,
            application: new.application,
            model: None,
            engine: None,
            spec: new.spec,
            state: JobState::Running,
            step: String::new(),
            progress_done: 0,
            progress_total: 0,
            error: None,
            attempts,
            owner: None,
            lease_until_ms: 0,
            created_ms: 0,
            updated_ms: 0,
            result: None,
        }
    }

    fn plan(number: u32) -> Plan {
        Plan {
            variant: VariantId::new(format!("v{number}")).expect("a name"),
            sources: Vec::new(),
        }
    }

    /// Claims follow each other at random moments while earlier claims go on writing.
    async fn play(seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let folder = tempfile::tempdir().expect("a folder");
        let store = LocalStore::open(folder.path(), None).expect("a store");
        let files = Files::new(Arc::new(store));
        let (mut committed, mut settled) = (0, None);
        let mut written = BTreeMap::new();
        let mut late: Vec<(Ledger, u64)> = Vec::new();
        for number in 1..12 {
            let mut ledger = Ledger::open(&files, "out", &job(number))
                .await
                .expect("read");
            let found = ledger.plan(committed * CHUNK_RECORDS).await.expect("read");
            if random.random_bool(0.2) {
                // The claim died, or wrote a plan too late for any other claim to follow.
                drop(ledger.put_plan(&plan(number)).await);
                continue;
            }
            let kept = match found {
                Some((kept, found)) => {
                    assert_eq!(found, plan(kept), "seed {seed}");
                    kept
                }
                None => ledger.put_plan(&plan(number)).await.expect("written"),
            };
            if committed > 0 {
                assert_eq!(Some(kept), settled, "seed {seed}: the plan changed");
            }
            let begun = ledger.begin(committed * CHUNK_RECORDS, kept).await;
            begun.expect("written");
            for _ in 0..random.random_range(0..4) {
                let part = ledger.part(committed, committed * CHUNK_RECORDS);
                written.insert(committed, part.expect("a path"));
                (committed, settled) = (committed + 1, Some(kept));
            }
            for (ledger, next) in &late {
                let part = ledger.part(*next, next * CHUNK_RECORDS).expect("a path");
                let taken = written.values().any(|written| *written == part);
                assert!(
                    !taken,
                    "seed {seed}: a late part `{part}` is one that counts"
                );
            }
            let reader = Ledger::open(&files, "out", &job(number + 1)).await;
            let reader = reader.expect("read");
            for (chunk, part) in &written {
                let found = reader.part(*chunk, chunk * CHUNK_RECORDS);
                assert_eq!(found.expect("a path"), *part, "seed {seed}");
            }
            late.push((ledger, committed));
        }
    }

    #[tokio::test]
    async fn of_each_chunk_the_part_that_counts_is_that_of_who_committed_it() {
        for seed in 0..40 {
            play(seed).await;
        }
    }
}
