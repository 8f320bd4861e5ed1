use sextant_provider::bind_provider_conformance;

use super::support::Children;

bind_provider_conformance!(async { Some(Children::new()) });
