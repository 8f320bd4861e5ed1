//! Whether a client gets a page or a document.

use axum::http::{HeaderMap, header};

/// Whether a client names HTML and prefers it to JSON, or likes both alike. A client that accepts anything gets JSON.
pub(crate) fn prefers_page(headers: &HeaderMap) -> bool {
    let html = liking(headers, "text/html");
    html > 0.0 && html >= liking(headers, "application/json")
}

/// The quality that a client gives to a type that it names, 0 to 1; 0 if it does not name the type.
fn liking(headers: &HeaderMap, wanted: &str) -> f64 {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let ranges = accepted.flat_map(|value| value.split(','));
    let weights = ranges.filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_wanted = parts.next()?.eq_ignore_ascii_case(wanted);
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        is_wanted.then_some(weight)
    });
    weights.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_name_html_get_pages() {
        for (accepted, is_page) in [
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                true,
            ),
            ("application/json, text/html", true),
            ("TEXT/HTML", true),
            ("*/*", false),
            ("application/json", false),
            ("text/html;q=0.5, application/json", false),
            ("text/html;q=0", false),
            ("text/html;q=x", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accepted.parse().expect("a header"));
            assert_eq!(prefers_page(&headers), is_page, "{accepted}");
        }
        assert!(!prefers_page(&HeaderMap::new()));
    }
}
