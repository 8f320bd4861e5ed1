//! The store over a real S3 server.

mod s3 {
    mod conformance;
    mod faults;
    mod opening;
    mod support;
    mod uploads;
}
