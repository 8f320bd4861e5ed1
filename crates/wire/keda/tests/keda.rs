//! The answers to KEDA.

mod keda {
    mod calls;
    mod shutdown;
    mod streams;
    mod support;
    mod tls;
}
