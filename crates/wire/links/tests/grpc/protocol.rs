//! Processes of one release and of the next.

use sextant_links::grpc::{Caller, Error, GrpcConfig, Hello, Limits, Protocol};

use crate::{
    double::{infer, part, there},
    process::{FIRST, Process, config, connector, hello, reach},
};

fn calling(protocol: Protocol) -> Hello {
    Hello {
        protocol,
        ..hello(Caller::Dispatcher, Some(FIRST))
    }
}

#[tokio::test]
async fn one_release_and_the_next_run_batches_for_each_other() {
    for called in [Protocol::OWN, Protocol::BEFORE] {
        let process = Process::start(GrpcConfig {
            protocol: called,
            ..config()
        });
        let process = process.await;
        for caller in [Protocol::OWN, Protocol::BEFORE] {
            let connector = connector(Limits::default(), calling(caller));
            let reached = reach(&connector, &process.endpoint).await;
            let ran = infer(&*reached.worker, vec![part(1.0)]).await;
            assert!(ran.is_ok(), "{caller} calls {called}: {ran:?}");
        }
        process.stop().await;
    }
}

#[tokio::test]
async fn releases_without_a_version_in_common_tell_each_other() {
    let newest = Protocol::up_to(4).expect("this release has it");
    assert_eq!(newest, Protocol::OWN);
    assert_eq!(Protocol::up_to(3), Some(Protocol::BEFORE));
    assert_eq!(Protocol::up_to(5), None);
    let process = Process::start(GrpcConfig {
        protocol: Protocol::BEFORE,
        ..config()
    });
    let process = process.await;
    // A still later release that no longer understands version 3.
    let later = Protocol {
        oldest: 4,
        newest: 5,
    };
    let later = connector(Limits::default(), calling(later));
    let refused = later.connect_worker(there(), &process.endpoint).await;
    let Err(Error::Refused { reason, .. }) = refused.map(|_| ()) else {
        panic!("it is let in");
    };
    assert!(reason.contains("versions 4 to 5"), "{reason}");
    process.stop().await;
}
