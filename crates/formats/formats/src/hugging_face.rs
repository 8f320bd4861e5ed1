//! What a folder by Hugging Face's exporters says about its model.

use serde_json::Value;

/// The file that describes the model.
pub const CONFIG: &str = "config.json";

/// Names of a validation set in the folder; the first that exists is used.
pub const VALIDATION: [&str; 4] = [
    "validation.npz",
    "validation.jsonl",
    "validation.csv",
    "validation.parquet",
];

/// The classes of a classifier, by `id2label` of its [`CONFIG`]; none if it names none. Other models have the same
/// entry with the meaningless names `LABEL_0`, `LABEL_1`; a configuration that was saved without its model does not say
/// what the model is.
pub fn classes(config: &[u8]) -> Vec<String> {
    let Ok(config) = serde_json::from_slice::<Value>(config) else {
        return Vec::new();
    };
    let Some(labels) = config["id2label"].as_object() else {
        return Vec::new();
    };
    let of = |at: usize| Some(labels.get(&at.to_string())?.as_str()?.to_owned());
    let classes: Option<Vec<String>> = (0..labels.len()).map(of).collect();
    let classes = classes.unwrap_or_default();
    let are_named = || classes.iter().all(|name| !name.starts_with("LABEL_"));
    let is_classifier = match config["architectures"].as_array() {
        Some(architectures) => architectures
            .iter()
            .filter_map(Value::as_str)
            .any(|it| it.ends_with("Classification")),
        None => are_named(),
    };
    if is_classifier { classes } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_classifier_names_its_classes_in_their_order() {
        let config = r#"{"architectures": ["BertForSequenceClassification"], "id2label": {"1": "good", "0": "bad"}}"#;
        assert_eq!(classes(config.as_bytes()), ["bad", "good"]);
        let alone = r#"{"architectures": null, "id2label": {"0": "bad", "1": "good"}}"#;
        assert_eq!(classes(alone.as_bytes()), ["bad", "good"]);
        let gap = config.replace("\"0\"", "\"2\"");
        assert!(classes(gap.as_bytes()).is_empty());
    }

    #[test]
    fn labels_of_an_encoder_are_no_classes() {
        let config = r#"{"architectures": ["BertModel"], "id2label": {"0": "LABEL_0"}}"#;
        let alone = r#"{"id2label": {"0": "LABEL_0"}}"#;
        for config in [config, alone, "{}", "[1]", "no JSON"] {
            assert!(classes(config.as_bytes()).is_empty(), "{config}");
        }
    }
}
