//! Registrations that are made to do harm, one after the other with one service. `cargo xtask bench trust` builds and
//! starts it. Prints how each ended and the state of the service afterwards.

#![expect(clippy::print_stdout, reason = "results go to standard output")]
#![expect(clippy::print_stderr, reason = "and progress to standard error")]

use std::process::ExitCode;

use serde_json::json;
use sextant_tests::hostile::{self, Survival};

#[tokio::main]
async fn main() -> ExitCode {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let growths = hostile::growths().await;
    for growth in &growths {
        eprintln!(
            "{}: {} with {} bytes more",
            growth.name, growth.state, growth.bytes
        );
    }
    let growth = growths.iter().map(|growth| growth.bytes).max();
    let growth = growth.unwrap_or_default() >> 20;
    let wait_s = hostile::wait_behind_endless().await;
    eprintln!("good-behind-endless: ready in {wait_s:.1} s");
    let survival = hostile::survive_all(|ending| {
        eprintln!(
            "{}: {} in {:.1} s",
            ending.name, ending.code, ending.seconds
        );
    })
    .await;
    let survived = survival.tried - survival.wrong.len();
    let Survival {
        tried, restarts, ..
    } = survival;
    if is_json {
        let figures = json!({
            "hostile_registrations": tried,
            "hostile_registrations_survived": survived,
            "hostile_restarts": restarts,
            "registration_growth_mib": growth,
            "registration_wait_s": wait_s,
        });
        println!("{figures}");
    } else {
        println!("{survived} of {tried} survived, {restarts} restarts");
        println!("a set took {growth} MiB of the service, a good model waited {wait_s:.1} s");
    }
    ExitCode::from(u8::from(survived < tried || restarts > 0))
}
