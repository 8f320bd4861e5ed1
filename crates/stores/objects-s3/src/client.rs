//! The SDK's client for a configuration: the credentials, the address of the bucket, TLS.

use aws_config::{
    environment::EnvironmentVariableRegionProvider,
    meta::region::ProvideRegion,
    profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider},
    provider_config::ProviderConfig,
};
use aws_sdk_s3::{
    Client,
    config::{
        BehaviorVersion, Builder, Config, ProvideCredentials, Region, RequestChecksumCalculation,
        ResponseChecksumValidation, SharedHttpClient, StalledStreamProtectionConfig,
        retry::RetryConfig, timeout::TimeoutConfig,
    },
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::{Credentials, Error, S3Config, failure};

/// The region that S3 servers other than Amazon's use.
const USUAL_REGION: &str = "us-east-1";

/// A client that tries each request once. This crate retries itself, because it must also retry
/// after a broken body. For the same reason the client has no time limit except that for
/// connecting.
pub(crate) async fn build(config: &S3Config) -> Result<Client, Error> {
    let timeouts = TimeoutConfig::builder().connect_timeout(config.connect_timeout);
    let mut builder = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client(config))
        .force_path_style(config.path_style)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts.build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenSupported)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    builder.set_endpoint_url(config.endpoint.clone());
    let builder = identify(config, builder).await?;
    Ok(Client::from_conf(builder.build()))
}

fn http_client(config: &S3Config) -> SharedHttpClient {
    let endpoint = config.endpoint.as_deref();
    // Without TLS no certificates of authorities are needed, so none are loaded.
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        aws_smithy_http_client::Builder::new().build_http()
    } else {
        https_client()
    }
}

fn https_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

async fn identify(config: &S3Config, builder: Builder) -> Result<Builder, Error> {
    let given = config.region.clone().map(Region::new);
    if let Credentials::Given {
        access_key,
        secret_key,
    } = &config.credentials
    {
        let region = given.unwrap_or(Region::from_static(USUAL_REGION));
        let secret_key = secret_key.reveal();
        let credentials =
            aws_sdk_s3::config::Credentials::new(access_key, secret_key, None, None, "sextant");
        return Ok(builder.region(region).credentials_provider(credentials));
    }
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https_client());
    let region = match given {
        Some(region) => Some(region),
        None => region_beside_endpoint(config).await,
    };
    if let Some(region) = region.clone() {
        loader = loader.region(region);
    }
    if let Credentials::Profile(name) = &config.credentials {
        let provider = ProviderConfig::default()
            .with_http_client(https_client())
            .with_region(region);
        let profile = ProfileFileCredentialsProvider::builder().configure(&provider);
        loader = loader.credentials_provider(profile.profile_name(name).build());
    }
    let found = loader.load().await;
    let region = found.region().cloned().ok_or_else(|| Error::Config {
        setting: "region",
        problem: "none is given, and neither the environment nor a profile names one".into(),
    })?;
    let Some(provider) = found.credentials_provider() else {
        return Err(no_credentials(config, "nothing gives any"));
    };
    // If they were requested with the first request, each attempt would fail for want of them
    // again.
    if let Err(error) = provider.provide_credentials().await {
        return Err(no_credentials(config, &failure::chain("", &error)));
    }
    Ok(builder.region(region).credentials_provider(provider))
}

fn no_credentials(config: &S3Config, cause: &str) -> Error {
    let place = match &config.credentials {
        Credentials::Profile(name) => format!("profile `{name}`"),
        Credentials::Environment | Credentials::Given { .. } => "the environment".to_owned(),
    };
    let cause = cause.trim_start_matches(": ");
    Error::Config {
        setting: "credentials",
        problem: format!("{place} has none that can be used: {cause}"),
    }
}

/// The region if an endpoint and no region is given. The endpoint need not run on Amazon's
/// machines, so this does not query the service that tells those machines their region.
async fn region_beside_endpoint(config: &S3Config) -> Option<Region> {
    config.endpoint.as_ref()?;
    if let Some(region) = EnvironmentVariableRegionProvider::new().region().await {
        return Some(region);
    }
    let mut profile = ProfileFileRegionProvider::builder();
    if let Credentials::Profile(name) = &config.credentials {
        profile = profile.profile_name(name);
    }
    let region = profile.build().region().await;
    Some(region.unwrap_or(Region::from_static(USUAL_REGION)))
}
