//! The files that pages load.

/// A file that pages load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// The file of that name.
pub fn file(name: &str) -> Option<Asset> {
    let (media_type, content) = match name {
        "style.css" => (
            "text/css; charset=utf-8",
            include_str!("../assets/style.css"),
        ),
        "live.js" => (
            "text/javascript; charset=utf-8",
            include_str!("../assets/live.js"),
        ),
        "icon.svg" => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return None,
    };
    Some(Asset {
        media_type,
        content,
    })
}
