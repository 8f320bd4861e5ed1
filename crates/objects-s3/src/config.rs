//! What a store is opened with.

use std::{fmt, path::PathBuf, time::Duration};

use aws_sdk_s3::{
    Client,
    config::{
        BehaviorVersion, Config, Region, RequestChecksumCalculation, ResponseChecksumValidation,
        StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig,
    },
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::{Error, keys::MAX_PREFIX_BYTES};

/// S3 refuses smaller parts, but for the last one.
const MIN_PART_BYTES: usize = 5 << 20;

/// Where S3 servers other than Amazon's believe themselves to be.
const USUAL_REGION: &str = "us-east-1";

/// A text that shows itself to nobody by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Who we are to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Found where the tools of the platform look: environment variables, the default profile, a web
    /// identity token, the container's or machine's role; in this order.
    Environment,
    /// A named profile of the shared configuration files.
    Profile(String),
    /// Given.
    Given {
        /// The access key's name.
        access_key: String,
        /// The access key's secret.
        secret_key: Secret,
    },
}

/// How to reach the bucket and how patient to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Config {
    /// The bucket; it must exist.
    pub bucket: String,
    /// Begins every key; empty, or a path that ends in `/`.
    pub prefix: String,
    /// The server's address, `http://` or `https://`; `None` for Amazon's of the region.
    pub endpoint: Option<String>,
    /// The region; `None` for the environment's, or `us-east-1` where an endpoint is given.
    pub region: Option<String>,
    /// Whether the bucket is named in the path rather than in the host name: what most servers other
    /// than Amazon's want.
    pub path_style: bool,
    /// Who we are.
    pub credentials: Credentials,
    /// Most attempts for each request, at least 1.
    pub max_attempts: u32,
    /// The mean pause before the second attempt; it doubles with each further one.
    pub backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take to begin, or to go on once begun. A request with a body is given
    /// a second more for each 128 KiB of it.
    pub timeout: Duration,
    /// Size of the parts in which what is large is sent, bytes; at least 5 MiB. An object has at most
    /// 10,000 parts.
    pub part_bytes: usize,
    /// Most parts of one object under way at a time; memory use is one part more than this.
    pub parallel_parts: usize,
    /// Folder for streamed blobs whose name is not known yet: on disk, not in memory, with room for
    /// the largest. `None` for the system's temporary folder.
    pub spool: Option<PathBuf>,
}

// === impl Secret ===

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

// === impl S3Config ===

impl S3Config {
    /// A bucket of Amazon's, everything else as it usually is.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            region: None,
            path_style: false,
            credentials: Credentials::Environment,
            max_attempts: 6,
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            part_bytes: 8 << 20,
            parallel_parts: 4,
            spool: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let fault = |setting, problem: &str| {
            Err(Error::Config {
                setting,
                problem: problem.to_owned(),
            })
        };
        if self.bucket.is_empty() || self.bucket.contains(['/', ':', ' ']) {
            return fault("bucket", "give a bucket's name, without `s3://` and path");
        }
        if !self.prefix.is_empty() && (!self.prefix.ends_with('/') || self.prefix.starts_with('/'))
        {
            return fault("prefix", "it must end in `/` and not begin with one");
        }
        if self.prefix.len() > MAX_PREFIX_BYTES {
            return fault("prefix", "it is longer than 256 bytes");
        }
        if let Some(endpoint) = &self.endpoint {
            let host = endpoint.split_once("://");
            // The address itself may hold a password: it is not repeated.
            match host {
                Some(("http" | "https", host)) if host.contains('@') => {
                    return fault(
                        "endpoint",
                        "it has a user name: give an access key as the credentials instead",
                    );
                }
                Some(("http" | "https", host)) if !host.is_empty() => {}
                _ => return fault("endpoint", "it must begin with `http://` or `https://`"),
            }
        }
        if self.part_bytes < MIN_PART_BYTES {
            return fault("part_bytes", "it must be at least 5 MiB");
        }
        if self.max_attempts == 0 || self.parallel_parts == 0 {
            return fault("max_attempts, parallel_parts", "they must be at least 1");
        }
        Ok(())
    }

    /// A client that tries each request once: trying again is ours, since a broken body must be tried
    /// again as well.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let timeouts = TimeoutConfig::builder().connect_timeout(self.connect_timeout);
        let builder = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(self.http_client())
            .force_path_style(self.path_style)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenSupported)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        let mut builder = self.identify(builder).await?;
        builder.set_endpoint_url(self.endpoint.clone());
        Ok(Client::from_conf(builder.build()))
    }

    fn http_client(&self) -> aws_sdk_s3::config::SharedHttpClient {
        let builder = aws_smithy_http_client::Builder::new();
        let in_clear = self.endpoint.as_deref();
        if in_clear.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            return builder.build_http();
        }
        builder
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https()
    }

    async fn identify(
        &self,
        builder: aws_sdk_s3::config::Builder,
    ) -> Result<aws_sdk_s3::config::Builder, Error> {
        let given = self.region.clone().map(Region::new);
        if let Credentials::Given {
            access_key,
            secret_key,
        } = &self.credentials
        {
            let region = given.unwrap_or(Region::from_static(USUAL_REGION));
            let credentials = aws_sdk_s3::config::Credentials::new(
                access_key,
                &secret_key.0,
                None,
                None,
                "sextant",
            );
            return Ok(builder.region(region).credentials_provider(credentials));
        }
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        if self.endpoint.is_none() || given.is_none() {
            loader = loader.http_client(
                aws_smithy_http_client::Builder::new()
                    .tls_provider(Provider::Rustls(CryptoMode::Ring))
                    .build_https(),
            );
        }
        if let Credentials::Profile(profile) = &self.credentials {
            loader = loader.profile_name(profile);
        }
        if let Some(region) = given {
            loader = loader.region(region);
        }
        let found = loader.load().await;
        let usual = self.endpoint.as_ref().map(|_| Region::new(USUAL_REGION));
        let region = found.region().cloned().or(usual);
        let region = region.ok_or_else(|| Error::Config {
            setting: "region",
            problem: "none is given, and neither the environment nor a profile names one".into(),
        })?;
        let mut builder = builder.region(region);
        builder.set_credentials_provider(found.credentials_provider());
        Ok(builder)
    }
}
