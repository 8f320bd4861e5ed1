//! Messages to a real receiver.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread::JoinHandle,
};

use bytes::Bytes;
use sextant_rpc::{Notice, Notify};
use sextant_webhook::{Options, Webhooks, signature};

const BODY: &str = "{\"job\":\"j\"}";

/// Answers one request with `answer` and returns the request.
fn receiver(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let taken = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a sender");
        let request = request(&mut stream);
        stream.write_all(answer.as_bytes()).expect("it is sent");
        request
    });
    (format!("http://{address}/hook?key=hidden"), taken)
}

fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.ends_with(BODY) {
        let count = stream.read(&mut buffer).expect("a request");
        assert!(count > 0, "the request was cut off: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

fn notice(url: String) -> Notice {
    Notice {
        url,
        id: "job-1".to_owned(),
        body: Bytes::from_static(BODY.as_bytes()),
    }
}

#[tokio::test]
async fn a_message_arrives_signed() {
    let (url, taken) = receiver("HTTP/1.1 204 No Content\r\n\r\n");
    let webhooks = Webhooks::new(Options {
        secret: Some("key".to_owned()),
        allow_link_local: false,
    });
    assert_eq!(webhooks.notify(&notice(url)).await, Ok(204));
    let request = taken.join().expect("a request").to_lowercase();
    assert!(
        request.starts_with("post /hook?key=hidden http/1.1"),
        "{request}"
    );
    assert!(request.contains("x-sextant-delivery: job-1"), "{request}");
    assert!(
        request.contains("content-type: application/json"),
        "{request}"
    );
    let header = request.split("x-sextant-signature: ").nth(1);
    let header = header.and_then(|rest| rest.lines().next()).expect("signed");
    let time = header.trim_start_matches("t=").split(',').next();
    let time = time.expect("a time").parse().expect("seconds");
    assert_eq!(header, signature("key", time, BODY.as_bytes()));
}

#[test]
fn the_signature_is_that_of_the_standard() {
    // From `printf '1.{}' | openssl dgst -sha256 -hmac key`.
    assert_eq!(
        signature("key", 1, b"{}"),
        "t=1,v1=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"
    );
}

#[tokio::test]
async fn refusals_say_whether_to_try_again_and_not_where() {
    let webhooks = Webhooks::new(Options::default());
    for (answer, retry) in [
        ("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", true),
        ("HTTP/1.1 429 Later\r\ncontent-length: 0\r\n\r\n", true),
        ("HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n", false),
        (
            "HTTP/1.1 302 There\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
            false,
        ),
        ("", true),
    ] {
        let (url, taken) = receiver(answer);
        let failure = webhooks.notify(&notice(url)).await.expect_err("a refusal");
        assert_eq!(failure.retry, retry, "{answer}");
        assert!(!failure.reason.contains("hidden"), "{failure}");
        let request = taken.join().expect("a request").to_lowercase();
        assert!(!request.contains("x-sextant-signature"), "{request}");
    }
}

#[tokio::test]
async fn what_a_machine_has_for_itself_is_never_asked() {
    let webhooks = Webhooks::new(Options::default());
    for address in [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://0.0.0.0:9/",
        "http://2852039166/",
        "gopher://127.0.0.1/",
    ] {
        let failure = webhooks.notify(&notice(address.to_owned())).await;
        assert!(!failure.expect_err("a refusal").retry, "{address}");
    }
}
