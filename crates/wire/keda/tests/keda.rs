//! What KEDA is told.

mod keda {
    mod calls;
    mod shutdown;
    mod streams;
    mod support;
    mod tls;
}
