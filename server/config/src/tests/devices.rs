//! Devices of workers: how they are listed, and what they cost.

use super::*;

#[test]
fn devices_are_cpu_gpus_and_emulated_ones() {
    let (_folder, mut sources) = with_file(
        "[worker]\ndevices = ['cpu', 'cuda:1', 'cuda:0', 'emulated:4']\n\
         [worker.emulated]\ndelays = false\n\
         [worker.remote.triton]\nurl = 'http://localhost:8000'\nheaders = ['x-team: a']\n",
    );
    sources.set = vec!["worker.remote.triton.binary=never".to_owned()];
    let config = Config::load(&sources).expect("valid");
    let devices: Vec<String> = config.worker.devices.clone().into();
    assert_eq!(devices, ["cpu", "cuda:1", "cuda:0", "emulated:4"]);
    assert!(!config.worker.emulated.delays);
    let remote = &config.worker.remote["triton"];
    assert_eq!(remote.url.as_deref(), Some("http://localhost:8000"));
    assert_eq!(remote.binary, Binary::Never);
    assert_eq!(Config::default().worker.devices.0, [DeviceSpec::Cpu]);
}

#[test]
fn devices_that_are_unknown_or_listed_twice_are_refused() {
    for devices in [
        "gpu",
        "cuda:",
        "cuda:-1",
        "emulated",
        "emulated:0",
        "cpu,cpu",
        "cuda,cuda:0",
        "cuda:1,cuda:1",
        "emulated:1,emulated:2",
        "",
    ] {
        let text = message(&in_environment("SEXTANT_WORKER__DEVICES", devices));
        for part in ["`cpu`", "`cuda:0`", "`emulated:4`", "each once"] {
            assert!(text.contains(part), "{devices}: {text}");
        }
    }
}

#[test]
fn devices_have_prices_by_type() {
    let (_folder, sources) = with_file(
        "[worker]\ndevices = ['emulated:2@slow', 'emulated:1']\ndevice_type = 'rack-a'\n\
         [worker.emulated.types.slow]\nspeed = 0.5\n\
         [prices.devices.slow]\nhour_usd = 0.25\nstart_s = 9\n",
    );
    let config = Config::load(&sources).expect("usable");
    let devices: Vec<String> = config.worker.devices.clone().into();
    assert_eq!(devices, ["emulated:2@slow", "emulated:1"]);
    let slow = device_type("slow");
    assert_eq!(config.worker.emulated.types[&slow].speed, 0.5);
    let prices = sextant_types::Prices::from(config.prices);
    assert_eq!(prices.accelerator(&slow).0, 0.25);
    assert_eq!(prices.start_ms(&slow), 9000);
}

#[test]
fn a_price_that_is_none_is_refused_by_its_key() {
    for price in ["-1.0", "inf", "nan", "'dear'"] {
        let text = format!("[prices.devices.gpu]\nhour_usd = {price}\n");
        let (_folder, sources) = with_file(&text);
        let message = message(&sources);
        assert!(
            message.contains("`prices.devices.gpu.hour_usd`"),
            "{message}"
        );
    }
    let (_folder, sources) = with_file("[worker]\ndevices = ['emulated:1@a', 'emulated:2@a']\n");
    assert!(message(&sources).contains("worker.devices"));
}
