use sextant_provider::bind_provider_conformance;

use super::support::Fleet;

bind_provider_conformance!(Fleet::new());
