//! The places of a pool's machines.

use std::{fs, slice};

use rustix::thread::{CpuSet, sched_getaffinity};
use sextant_provider::{
    Machine, Provider,
    process::{Place, Processes},
};

use super::support::{Children, LONG_MS, pool, template, until};

/// Prints its arguments, and the cores that its own child may use.
const SHOWS: &str = "echo \"given $2\"; sh -c 'grep Cpus_allowed_list /proc/self/status'; echo up; \
                     trap 'exit 0' TERM; n=0; while [ $n -lt 1200 ]; do sleep 0.1; n=$((n+1)); done";

fn own_cores() -> Vec<usize> {
    let own = sched_getaffinity(None).expect("this process's cores");
    (0..CpuSet::MAX_CPU)
        .filter(|core| own.is_set(*core))
        .collect()
}

/// A provider with a place for each of two machines.
fn open(children: &Children) -> Processes {
    let mut settings = children.settings();
    settings.template = template(SHOWS);
    // The arguments after the script, `$0` and `$1`.
    let cores = own_cores();
    let place = |name: &str, core: usize| Place {
        arguments: vec![format!("{name}-of-{{pool}}")],
        cores: vec![core],
    };
    settings.template.places = vec![
        place("first", cores[0]),
        place("second", cores[cores.len() - 1]),
    ];
    Processes::open(settings).expect("it opens")
}

fn log(children: &Children, machine: &Machine) -> String {
    let log = children.folder().join(format!("{}.log", machine.id.0));
    fs::read_to_string(log).expect("its log")
}

/// The output of a machine with this place.
fn shown(name: &str, core: usize) -> String {
    format!("given {name}-of-held\nCpus_allowed_list:\t{core}\nup\n")
}

#[tokio::test]
async fn each_machine_has_a_place_of_its_own_and_the_next_one_takes_what_is_free() {
    let (children, pool) = (Children::new(), pool("held", LONG_MS));
    let (provider, cores) = (open(&children), own_cores());
    let machines = children.up(&provider, &pool, 2).await;
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    assert_eq!(log(&children, &machines[0]), shown("first", first));
    assert_eq!(log(&children, &machines[1]), shown("second", last));
    assert_eq!(own_cores(), cores, "this process goes on everywhere");

    let gone = machines[0].id.clone();
    let ended = provider.end(&pool, slice::from_ref(&gone)).await;
    ended.expect("end");
    until("it has ended", async || {
        provider.list(&pool).await.expect("list").len() == 1
    })
    .await;
    let machines = children.up(&provider, &pool, 2).await;
    let new = machines.iter().find(|it| it.id.0.starts_with("held-1-"));
    let new = new.expect("a machine with the number that became free");
    assert_ne!(new.id, gone);
    assert_eq!(log(&children, new), shown("first", first));
}

/// Machines that end keep their numbers, so there may be more numbers than places.
#[tokio::test]
async fn places_begin_again_behind_the_last() {
    let (children, pool) = (Children::new(), pool("held", LONG_MS));
    let provider = open(&children);
    let machines = children.up(&provider, &pool, 3).await;
    let third = shown("first", own_cores()[0]);
    assert_eq!(log(&children, &machines[2]), third);
}
