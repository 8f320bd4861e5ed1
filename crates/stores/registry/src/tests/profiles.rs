//! Profiles on further types of devices.

use sextant_types::{Code, DeviceTypeName};

use super::*;
use crate::{FailedProfile, Failure};

on_both! {
    measured_profiles_come_with_the_variant_and_go_with_it,
    failures_count_up_until_a_success,
}

fn gpu() -> DeviceTypeName {
    DeviceTypeName::new("gpu").unwrap()
}

async fn with_variant(registry: &Registry) -> Variant {
    registry.create_application(&application()).await.unwrap();
    create_model(registry, &new_model("m"), 1).await.unwrap();
    let variant = variant("m", 8);
    let both = [super::variant("m", 1), variant.clone()];
    registry.put_variants(&both).await.unwrap();
    variant
}

async fn measured_profiles_come_with_the_variant_and_go_with_it(place: Place) {
    let registry = place.open().await;
    let variant = with_variant(&registry).await;
    let profile = variant.profile.slowed(0.25).into_owned();
    registry
        .put_profile(&variant.id, &gpu(), &profile, 5)
        .await
        .unwrap();
    let read = registry.variant(&variant.id).await.unwrap();
    assert_eq!(read.measured(&gpu()), Some(&profile));
    assert_eq!(read.profile, variant.profile);
    let of_model = registry.variants_of(&model_id("m")).await.unwrap();
    let counts: Vec<usize> = of_model.iter().map(|it| it.profiles.len()).collect();
    assert_eq!(counts, [0, 1]);
    // A variant that is stored again keeps its profiles.
    registry
        .put_variants(std::slice::from_ref(&variant))
        .await
        .unwrap();
    let read = registry.variant(&variant.id).await.unwrap();
    assert_eq!(read.profiles.len(), 1);
    finish_registrations(&registry).await;
    registry.delete_model(&model_id("m"), 50).await.unwrap();
    create_model(&registry, &new_model("m"), 60).await.unwrap();
    registry
        .put_variants(std::slice::from_ref(&variant))
        .await
        .unwrap();
    let read = registry.variant(&variant.id).await.unwrap();
    assert!(read.profiles.is_empty(), "{:?}", read.profiles);
}

async fn failures_count_up_until_a_success(place: Place) {
    let registry = place.open().await;
    let variant = with_variant(&registry).await;
    let failure = Failure::new(Code::EngineFailed, "it broke");
    for at in [7, 9] {
        registry
            .fail_profile(&variant.id, &gpu(), &failure, at)
            .await
            .unwrap();
    }
    let wanted = FailedProfile {
        variant: variant.id.clone(),
        device_type: gpu(),
        failures: 2,
        failure: Some(failure.clone()),
        updated_ms: 9,
    };
    assert_eq!(registry.failed_profiles().await.unwrap(), [wanted]);
    let read = registry.variant(&variant.id).await.unwrap();
    assert!(read.profiles.is_empty(), "nothing was measured");
    registry
        .put_profile(&variant.id, &gpu(), &variant.profile, 10)
        .await
        .unwrap();
    assert_eq!(registry.failed_profiles().await.unwrap(), []);
    // A later failure does not remove the profile.
    registry
        .fail_profile(&variant.id, &gpu(), &failure, 11)
        .await
        .unwrap();
    let read = registry.variant(&variant.id).await.unwrap();
    assert_eq!(read.profiles.len(), 1);
    let gone = VariantId::new("gone").unwrap();
    let told = registry
        .put_profile(&gone, &gpu(), &variant.profile, 1)
        .await;
    assert_eq!(told.unwrap_err().code(), Code::VariantNotFound);
}
