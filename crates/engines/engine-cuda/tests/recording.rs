//! The recording driver refuses everything that would be a race or a stray access on a device.

use sextant_engine::Error;
use sextant_engine_cuda::{
    driver::{
        Driver, Graph, Paging, Priority, Reservation, Stream,
        recording::{Pretence, RecordingDriver},
    },
    operation::{Address, Element, Operation, Unary, UnaryFunction},
};

const RESERVATION: Reservation = Reservation {
    arena_bytes: 1024,
    staging_bytes: 512,
    scratch_bytes: 0,
    paging: None,
};

fn started() -> (RecordingDriver, Stream) {
    let driver = RecordingDriver::new(Pretence::default());
    driver.start(&RESERVATION).expect("the first start");
    let stream = driver.create_stream(Priority::Normal).expect("a stream");
    (driver, stream)
}

fn relu(x: u64, y: u64) -> Operation {
    Operation::Unary(Unary {
        function: UnaryFunction::Relu,
        x: Address::new(x),
        y: Address::new(y),
        count: 4,
        element: Element::F32,
    })
}

#[track_caller]
fn refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("it is refused");
    assert!(matches!(error, Error::Failed(_)), "{error}");
}

#[test]
fn memory_is_made_once() {
    let driver = RecordingDriver::new(Pretence::default());
    refused(driver.create_stream(Priority::High));
    driver.start(&RESERVATION).expect("the first start");
    refused(driver.start(&RESERVATION));
}

#[test]
fn copies_stay_inside_and_read_what_was_written() {
    let (driver, stream) = started();
    driver
        .write_staging(Address::new(0), &[1; 16])
        .expect("it is inside");
    refused(driver.write_staging(Address::new(510), &[1; 16]));
    driver
        .copy_in(stream, Address::new(0), Address::new(1020), 16)
        .expect("it is late");
    refused(driver.synchronize(stream));
    driver
        .copy_out(stream, Address::new(0), Address::new(0), 16)
        .expect("it is late");
    refused(driver.synchronize(stream));
}

#[test]
fn staging_is_left_alone_while_a_copy_is_pending() {
    let (driver, stream) = started();
    driver
        .write_staging(Address::new(0), &[7; 16])
        .expect("it is free");
    driver
        .copy_in(stream, Address::new(0), Address::new(0), 16)
        .expect("it is inside");
    refused(driver.write_staging(Address::new(8), &[9; 4]));
    driver
        .write_staging(Address::new(16), &[9; 4])
        .expect("it is beside");
    driver
        .copy_out(stream, Address::new(0), Address::new(64), 16)
        .expect("it is inside");
    refused(driver.read_staging(Address::new(64), &mut [0; 16]));
    driver.synchronize(stream).expect("the copies are good");
    let mut bytes = [0; 16];
    driver
        .read_staging(Address::new(64), &mut bytes)
        .expect("the copy is done");
    assert_eq!(bytes, [7; 16]);
}

#[test]
fn operations_are_prepared_and_do_not_write_what_they_read() {
    let (driver, stream) = started();
    driver
        .write_staging(Address::new(0), &[0; 64])
        .expect("it is free");
    driver
        .copy_in(stream, Address::new(0), Address::new(0), 64)
        .expect("it is inside");
    refused(driver.launch(stream, &relu(0, 64)));
    driver.prepare(&relu(0, 64)).expect("it can be computed");
    driver.launch(stream, &relu(0, 64)).expect("it is prepared");
    driver
        .synchronize(stream)
        .expect("it reads what was written");
    driver.prepare(&relu(0, 8)).expect("it can be computed");
    driver.launch(stream, &relu(0, 8)).expect("it is prepared");
    refused(driver.synchronize(stream));
}

#[test]
fn graphs_may_not_use_what_an_earlier_run_has_left() {
    let (driver, stream) = started();
    let operations = [relu(64, 128), relu(0, 64)];
    operations
        .iter()
        .for_each(|it| driver.prepare(it).expect("it can be computed"));
    driver.begin_capture(stream).expect("nothing is captured");
    operations
        .iter()
        .for_each(|it| driver.launch(stream, it).expect("it is prepared"));
    refused(driver.synchronize_event(sextant_engine_cuda::driver::Event(9)));
    let graph = driver.end_capture(stream).expect("it was begun");
    driver
        .write_staging(Address::new(0), &[0; 128])
        .expect("it is free");
    driver
        .copy_in(stream, Address::new(0), Address::new(0), 64)
        .expect("it is inside");
    driver
        .launch_graph(stream, graph)
        .expect("the graph is there");
    refused(driver.synchronize(stream));
}

#[test]
fn streams_wait_for_events() {
    let (driver, first) = started();
    let second = driver.create_stream(Priority::High).expect("a stream");
    let [copied, end] = [0, 1].map(|_| driver.create_event().expect("an event"));
    driver
        .write_staging(Address::new(0), &[5; 8])
        .expect("it is free");
    driver
        .copy_in(first, Address::new(0), Address::new(0), 8)
        .expect("it is inside");
    driver.record(copied, first).expect("both are there");
    driver.wait(second, copied).expect("both are there");
    driver
        .copy_out(second, Address::new(0), Address::new(32), 8)
        .expect("it is inside");
    driver.record(end, second).expect("both are there");
    driver.synchronize_event(end).expect("the copies are good");
    let mut bytes = [0; 8];
    driver
        .read_staging(Address::new(32), &mut bytes)
        .expect("the copy is done");
    assert_eq!(bytes, [5; 8]);
    assert!(
        driver
            .elapsed(copied, end)
            .expect("both are reached")
            .as_micros()
            > 0
    );
}

/// A driver with two pages of 256 bytes, and room for four in windows.
fn with_windows() -> (RecordingDriver, Stream) {
    let driver = RecordingDriver::new(Pretence::default());
    let started = driver.start(&Reservation {
        paging: Some(Paging {
            page_bytes: 256,
            pages: 2,
            windows: Address::new(1024),
            slots: 4,
        }),
        ..RESERVATION
    });
    assert_eq!(started, Ok(true));
    let stream = driver.create_stream(Priority::Normal).expect("a stream");
    for page in 0..2u8 {
        let at = Address::new(u64::from(page) * 256);
        let values = [f32::from(page + 1); 64].map(f32::to_le_bytes);
        driver
            .write_staging(at, &values.concat())
            .expect("it is free");
        driver
            .copy_in(stream, at, Address::new(at.get()), 256)
            .expect("it is inside");
    }
    driver.synchronize(stream).expect("the copies are good");
    (driver, stream)
}

/// A graph that reads the first slot and writes behind the pages.
fn reader(driver: &RecordingDriver, stream: Stream) -> Graph {
    let operation = relu(1024, 512);
    driver.prepare(&operation).expect("it can be computed");
    driver.begin_capture(stream).expect("nothing is captured");
    driver.launch(stream, &operation).expect("it is prepared");
    driver.end_capture(stream).expect("it was begun")
}

#[test]
fn a_graph_reads_whatever_page_is_mapped() {
    let (driver, stream) = with_windows();
    let graph = reader(&driver, stream);
    let read = || {
        driver.launch_graph(stream, graph).expect("it is there");
        let ran = driver.synchronize(stream);
        let to = Address::new(0);
        driver
            .copy_out(stream, Address::new(512), to, 4)
            .expect("it is inside");
        // If the graph did not run, this copy is refused too.
        let copied = driver.synchronize(stream);
        ran.and(copied)?;
        let mut bytes = [0; 4];
        driver.read_staging(to, &mut bytes)?;
        Ok(f32::from_le_bytes(bytes))
    };
    refused::<f32>(read());
    for page in [0, 1, 0] {
        driver.map(Address::new(1024), &[page]).expect("a window");
        assert_eq!(read(), Ok(page as f32 + 1.0));
    }
    // Page 0 now lies in another slot, until it is mapped here again.
    driver.map(Address::new(1536), &[1, 0]).expect("a window");
    refused::<f32>(read());
    driver.map(Address::new(1024), &[0]).expect("a window");
    assert_eq!(read(), Ok(1.0));
}

#[test]
fn windows_are_read_and_stay_while_work_reads_them() {
    let (driver, stream) = with_windows();
    let window = Address::new(1024);
    for (at, pages) in [
        (Address::new(1000), &[0][..]),
        (Address::new(512), &[0]),
        (window, &[2]),
        (window, &[0, 0, 0, 0, 0]),
    ] {
        refused(driver.map(at, pages));
    }
    driver.map(window, &[0, 1]).expect("a window");
    let graph = reader(&driver, stream);
    driver.launch_graph(stream, graph).expect("it is there");
    refused(driver.map(window, &[1]));
    driver
        .map(Address::new(1280), &[1])
        .expect("nothing reads there");
    driver
        .synchronize(stream)
        .expect("it reads what was written");
    driver.map(window, &[1]).expect("the graph is done");
    let writes = relu(0, 1024);
    driver.prepare(&writes).expect("it can be computed");
    driver.launch(stream, &writes).expect("it is prepared");
    refused(driver.synchronize(stream));
    driver
        .copy_within(stream, Address::new(0), window, 16)
        .expect("it is late");
    refused(driver.synchronize(stream));
    driver
        .copy_within(stream, Address::new(1024 + 248), Address::new(512), 16)
        .expect("it is late");
    refused(driver.synchronize(stream));
}

#[test]
fn windows_lie_behind_the_arena_in_whole_pages() {
    for (windows, page_bytes) in [(768, 256), (1152, 256), (1200, 300)] {
        let driver = RecordingDriver::new(Pretence::default());
        refused(driver.start(&Reservation {
            paging: Some(Paging {
                page_bytes,
                pages: 2,
                windows: Address::new(windows),
                slots: 4,
            }),
            ..RESERVATION
        }));
    }
    let (driver, _) = started();
    refused(driver.map(Address::new(1024), &[0]));
}
