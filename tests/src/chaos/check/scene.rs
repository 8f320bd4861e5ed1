//! A short correct history, for tests that change it.

use std::collections::BTreeSet;

use super::check;
use crate::chaos::{
    Plan,
    history::{Entry, Event},
    plan::{Application, FailureRates, Fault, Job, Kind, Registration, Setting},
    worth,
};

const SEED: u64 = 3;
const RECORDS: u64 = 5;

/// Two applications, one of them modest; one job; a fleet with one front end.
pub struct Scene(Vec<Entry>);

impl Default for Scene {
    fn default() -> Self {
        let plan = plan();
        let mut scene = Self(Vec::new());
        scene.add_at(0, Event::Planned { plan: plan.clone() });
        for query in 0..40 {
            let at_ms = 10 + query * 100;
            scene.add_at(
                at_ms,
                Event::Asked {
                    query,
                    application: (query % 2) as usize,
                    front_end: "api-1".to_owned(),
                },
            );
            let scores = scene.answer(query);
            scene.add_at(at_ms + 20, Event::Answered { query, scores });
        }
        scene.add_at(500, Event::Submitted { job: 0 });
        scene.add_at(600, Event::Registered { registration: 0 });
        scene.add(Event::Healed);
        let process = "api-1".to_owned();
        scene.add(Event::Ready { process });
        scene.add(Event::Calm);
        scene.add(Event::Rest);
        scene.add(Event::JobOver {
            job: 0,
            state: "succeeded".to_owned(),
            code: String::new(),
        });
        scene.add(Event::RegistrationOver {
            registration: 0,
            state: "ready".to_owned(),
            code: String::new(),
            scores: scene.answer(0),
        });
        for index in 0..RECORDS {
            let scores = scene.answer(Plan::record_number(0, index));
            let job = 0;
            scene.add(Event::Record { job, index, scores });
        }
        let job = plan.jobs[0].name.clone();
        scene.add(Event::Told { job });
        for process in plan.processes() {
            scene.add(Event::Stopped {
                process,
                is_success: true,
                cause: String::new(),
            });
        }
        scene
    }
}

impl Scene {
    /// The whole history.
    pub fn history(&self) -> Vec<Entry> {
        self.0.clone()
    }

    /// Asserts that exactly these rules are violated, one entry for each violation.
    pub fn breaks(&self, rules: &[&str]) {
        let found = check(&self.0);
        let broken: Vec<_> = found.iter().map(|violation| violation.rule).collect();
        assert_eq!(broken, rules, "{found:?}");
    }

    /// The right answer.
    pub fn answer(&self, number: u64) -> Vec<f32> {
        worth::answer(SEED, number)
    }

    /// When a query was sent.
    pub fn asked_at(&self, number: u64) -> u64 {
        let is_it =
            |entry: &&Entry| matches!(entry.event, Event::Asked { query, .. } if query == number);
        self.0.iter().find(is_it).expect("it was sent").at_ms
    }

    /// The queries of an application.
    pub fn queries_of(&self, number: usize) -> BTreeSet<u64> {
        let query = |entry: &Entry| match entry.event {
            Event::Asked {
                query, application, ..
            } if application == number => Some(query),
            _ => None,
        };
        self.0.iter().filter_map(query).collect()
    }

    /// Adds an event at the end.
    pub fn add(&mut self, event: Event) {
        self.add_at(5000, event);
    }

    /// Adds an event at a time.
    pub fn add_at(&mut self, at_ms: u64, event: Event) {
        let place = self.0.partition_point(|entry| entry.at_ms <= at_ms);
        self.0.insert(place, Entry { at_ms, event });
    }

    /// Removes the events for which `is_so` holds.
    pub fn remove(&mut self, is_so: impl Fn(&Event) -> bool) {
        self.0.retain(|entry| !is_so(&entry.event));
    }

    /// Replaces the events for which `change` returns another one.
    pub fn replace(&mut self, change: impl Fn(&Event) -> Option<Event>) {
        for entry in &mut self.0 {
            if let Some(event) = change(&entry.event) {
                entry.event = event;
            }
        }
    }
}

fn plan() -> Plan {
    let application = |name: &str, is_modest| Application {
        name: name.to_owned(),
        alpha_ms: 5,
        beta_ms: 5,
        rate: 5.0,
        latency_ms: None,
        is_modest,
    };
    Plan {
        seed: SEED,
        length_ms: 5000,
        setting: Setting::Fleet {
            dispatchers: 2,
            front_ends: 1,
            workers: 2,
            wrong_clock: None,
        },
        applications: vec![application("quiet", true), application("loud", false)],
        jobs: vec![Job {
            name: "job-1".to_owned(),
            application: 0,
            at_ms: Some(500),
            records: RECORDS,
        }],
        registrations: vec![Registration {
            name: "late-1".to_owned(),
            at_ms: Some(600),
        }],
        failing: FailureRates::default(),
        faults: faults()
            .map(|kind| Fault {
                at_ms: 4500,
                for_ms: 100,
                kind,
            })
            .to_vec(),
        registry_away_ms: 0,
        losses: Vec::new(),
    }
}

fn faults() -> [Kind; 3] {
    let process = "worker-1".to_owned();
    [Kind::DiskFull, Kind::RedisKilled, Kind::Kill { process }]
}
