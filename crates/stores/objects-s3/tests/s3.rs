//! The store over a real S3 server.

mod s3 {
    mod cache;
    mod conformance;
    mod faults;
    mod opening;
    mod support;
    mod uploads;
}
